"""A handler process, which imports the Chalice app once and then runs one invocation after another, as a Lambda
execution environment does.

The process reads invocations as JSON lines from stdin. Answers are written as JSON lines to the file descriptor of the
option `--answers`, so that the handlers' own output goes only to the log. The first answer says that the app is loaded,
or why the app could not be loaded. The handler process ends when stdin is closed, or when the parent process ends.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import sys
import time
import traceback
from dataclasses import dataclass
from typing import IO, Any

from dyntrain.training.host.parentage import die_with_parent


@dataclass(frozen=True)
class LambdaContext:
    """Attributes of the context object that Lambda passes to a handler."""

    function_name: str
    aws_request_id: str
    invoked_function_arn: str
    deadline: float  # seconds since the Unix epoch
    memory_limit_in_mb: int = 256
    function_version: str = "$LATEST"
    log_group_name: str = "embedded"
    log_stream_name: str = "embedded"
    identity: None = None
    client_context: None = None

    def get_remaining_time_in_millis(self) -> int:
        return max(0, int((self.deadline - time.time()) * 1000))


def load_app(app_target: str) -> Any:
    module, _, name = app_target.partition(":")
    return getattr(importlib.import_module(module), name or "app")


def run_handler(app: Any, request: dict[str, Any]) -> dict[str, Any]:
    os.environ["AWS_LAMBDA_FUNCTION_NAME"] = request["function"]
    context = LambdaContext(request["function"], request["request_id"], request["arn"], request["deadline"])
    try:
        result = app.handler_map[request["function"]](request["event"], context)
        json.dumps(result)
    except Exception as error:  # noqa: BLE001 - a handler may raise anything; Lambda reports it to the invoker
        traceback.print_exc()
        return {"ok": False, "error_type": type(error).__name__, "error": str(error)[:2000]}
    return {"ok": True, "result": result}


def main() -> None:
    parser = argparse.ArgumentParser(prog="dyntrain.controller.local.lambdas.runtime")
    parser.add_argument("app", help="module:attribute of the Chalice app")
    parser.add_argument("--answers", type=int, required=True)
    parser.add_argument("--parent", type=int, required=True)
    arguments = parser.parse_args()
    die_with_parent(arguments.parent)

    answers_file: IO[str]
    with os.fdopen(arguments.answers, "w", encoding="utf-8") as answers_file:

        def write_answer(answer: dict[str, Any]) -> None:
            answers_file.write(json.dumps(answer) + "\n")
            answers_file.flush()

        try:
            app = load_app(arguments.app)
            write_answer({"ok": True})
        # importing the app runs its code; the cloud reports the error to the user
        except Exception as error:  # noqa: BLE001
            traceback.print_exc()
            write_answer({"ok": False, "error": f"{type(error).__name__}: {error}"})
            raise SystemExit(1) from None
        for line in sys.stdin:
            write_answer(run_handler(app, json.loads(line)))
            sys.stdout.flush()


if __name__ == "__main__":
    main()
