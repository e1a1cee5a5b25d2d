"""`python -m node_bootstrap run`: what systemd starts on each node."""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
from pathlib import Path

from node_bootstrap.layout import Layout
from node_bootstrap.metadata import DEFAULT_URL
from node_bootstrap.node import FAULT, Setting, run_node
from node_bootstrap.pacing import Timing


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="node_bootstrap", description="Prepares this EC2 instance for its cluster's job, and runs its part of it.")
    commands = parser.add_subparsers(required=True)
    run = commands.add_parser("run", help="run until the node is retired (exit code 0) or stopped")
    run.add_argument("--root", type=Path, default=Path("/"), help="directory that prefixes every file of the host")
    run.add_argument("--notice-seconds", type=float, default=Timing.notices, help="how often the metadata service is asked for notices")
    last_lines = "how long the training script may take to end by itself once it has left the job, for example to save the model"
    run.add_argument("--finish-seconds", type=float, default=Timing.finish, help=last_lines)
    options = parser.parse_args(arguments)
    url = os.environ.get("AWS_EC2_METADATA_SERVICE_ENDPOINT") or DEFAULT_URL
    setting = Setting(Layout(options.root.absolute()), url, timing=Timing(notices=options.notice_seconds, finish=options.finish_seconds))
    with asyncio.Runner() as runner:
        try:
            code = runner.run(run_node(setting))
        except OSError as error:  # before there is a log to write it to
            sys.stderr.write(f"node_bootstrap: cannot use the files below {options.root}: {error}\n")
            code = FAULT
        # An AWS call may still hang in a thread, and the interpreter would wait for it. All that must end in order has ended.
        sys.stderr.flush()
        os._exit(code)


if __name__ == "__main__":
    sys.exit(main())
