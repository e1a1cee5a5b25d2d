"""One Lambda execution environment: a process that answers one invocation at a time."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dyntrain.controller.local.errors import AppNotLoaded
from dyntrain.controller.local.lines import read_line
from dyntrain.controller.local.pace import Deadline
from dyntrain.controller.local.spawner import Spawner

LOAD_SECONDS = 60.0


class Died(Exception):
    """Raised when the process ended before it answered, or was killed because it did not answer in time."""


class TimedOut(Died):
    """Raised when the process did not answer in time and was killed."""


class ExecutionEnvironment:
    """A process that runs handlers. Not thread-safe: each environment belongs to one worker thread. The next invocation
    replaces a process that has ended.
    """

    def __init__(
        self, spawner: Spawner, app: str, environment: dict[str, str], log: Path, directory: Path | None
    ) -> None:
        self._spawner = spawner
        self._app = app
        self._environment = environment
        self._log = log
        self._directory = directory
        self._process: subprocess.Popen[bytes] | None = None
        self._answers: int | None = None
        self._pending = b""
        self._closed = False

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process is not None else None

    def add_variables(self, variables: Mapping[str, str]) -> None:
        """Add the variables of the function's configuration to the process's environment."""
        self._environment = {**self._environment, **variables}

    def load(self) -> None:
        """Start the process. Raises AppNotLoaded with the reason."""
        self.kill()
        if self._closed:
            raise AppNotLoaded("the cloud is stopping")
        read_end, write_end = os.pipe()
        try:
            with self._log.open("ab") as log:
                self._process = self._spawner.spawn(
                    (
                        sys.executable,
                        "-m",
                        "dyntrain.controller.local.lambdas.runtime",
                        self._app,
                        "--answers",
                        str(write_end),
                        "--parent",
                        str(os.getpid()),
                    ),
                    environment=self._environment,
                    directory=self._directory,
                    stdin=subprocess.PIPE,
                    output=log,
                    inherited_descriptors=(write_end,),
                )
        finally:
            os.close(write_end)
        self._answers, self._pending = read_end, b""
        try:
            first_answer = self._read(Deadline(LOAD_SECONDS))
        except Died as error:
            raise AppNotLoaded(
                f"the handlers' process of {self._app!r} ended before the app was loaded; see {self._log}"
            ) from error
        if not first_answer["ok"]:
            raise AppNotLoaded(
                f"the Chalice app {self._app!r} cannot be loaded: {first_answer['error']}; see {self._log}"
            )

    def invoke(self, request: dict[str, Any], timeout: float) -> dict[str, Any]:
        """Run a handler and return its answer. `timeout` is the function's time limit in seconds; a busy host gets more
        time. Raises TimedOut or Died; the next call then starts another process.
        """
        if self._process is None or self._process.poll() is not None:
            try:
                self.load()
            except AppNotLoaded as error:
                raise Died(str(error)) from error
        assert self._process is not None
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(request).encode() + b"\n")
            self._process.stdin.flush()
        except OSError as error:
            self.kill()
            raise Died("the handler process ended before its answer") from error
        return self._read(Deadline(timeout, headroom=1.0))

    def interrupt(self) -> None:
        """Kill the process from another thread, and prevent a new start. A waiting `invoke` raises Died."""
        self._closed = True
        process = self._process
        if process is not None:
            process.kill()

    def kill(self) -> None:
        """Kill the process and wait for its end. Safe to repeat."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            if self._process.stdin is not None:
                with contextlib.suppress(OSError):  # the ended process cannot receive unsent bytes
                    self._process.stdin.close()
            self._process = None
        if self._answers is not None:
            os.close(self._answers)
            self._answers = None

    def _read(self, deadline: Deadline) -> dict[str, Any]:
        assert self._answers is not None
        try:
            line, self._pending = read_line(self._answers, deadline, self._pending)
        except TimeoutError as error:
            self.kill()
            raise TimedOut("the handler did not answer in time and was killed") from error
        except EOFError as error:
            self.kill()
            raise Died("the handler process ended before its answer") from error
        answer: dict[str, Any] = json.loads(line)
        return answer
