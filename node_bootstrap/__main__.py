"""`python -m node_bootstrap run`: what systemd starts on each node. `signal-ready`: what user data starts besides. `plan`: for people."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from node_bootstrap.layout import Layout
from node_bootstrap.pacing import Timing
from node_bootstrap.reaper import run_below


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="node_bootstrap", description="Prepares this EC2 instance for its cluster's job, and runs its part of it.")
    commands = parser.add_subparsers(required=True)
    run = commands.add_parser("run", help="run until the node is retired (exit code 0) or stopped")
    run.add_argument("--root", type=Path, default=Path("/"), help="directory that prefixes every file of the host")
    run.add_argument("--notice-seconds", type=float, default=Timing.notices, help="how often the metadata service is asked for notices")
    last_lines = "how long the training script may take to end by itself once it has left the job, for example to save the model"
    run.add_argument("--finish-seconds", type=float, default=Timing.finish, help=last_lines)
    look = commands.add_parser("plan", help="print which steps are done on this host and which a start would carry out, and carry out none")
    look.add_argument("--root", type=Path, default=Path("/"), help="directory that prefixes every file of the host")
    look.set_defaults(only_look=True)
    ready = commands.add_parser("signal-ready", help="on the master, tell CloudFormation when the coordinator listens")
    ready.add_argument("url", help="of the stack's wait condition handle")
    ready.add_argument("--seconds", type=float, default=21_600.0, help="give up after so long")
    options = parser.parse_args(arguments)
    if "url" in options:
        return signal_ready(options.url, options.seconds)
    if "only_look" in options:
        return show_plan(Layout(options.root.absolute()))
    timing = Timing(notices=options.notice_seconds, finish=options.finish_seconds)
    return run_below(lambda: bootstrap(Layout(options.root.absolute()), timing))


def bootstrap(layout: Layout, timing: Timing) -> int:
    """Ends the process rather than return when AWS calls still hang in threads: the interpreter would wait for them."""
    import asyncio  # here, so that the process above stays small

    from node_bootstrap.metadata import DEFAULT_URL
    from node_bootstrap.node import FAULT, run_node
    from node_bootstrap.setting import Setting

    url = os.environ.get("AWS_EC2_METADATA_SERVICE_ENDPOINT") or DEFAULT_URL
    with asyncio.Runner() as runner:
        try:
            code = runner.run(run_node(Setting(layout, url, timing=timing)))
        except OSError as error:  # before there is a log to write it to
            sys.stderr.write(f"node_bootstrap: cannot use the files below {layout.root}: {error}\n")
            code = FAULT
        sys.stderr.flush()
        os._exit(code)


def show_plan(layout: Layout) -> int:
    import asyncio

    from node_bootstrap.metadata import DEFAULT_URL
    from node_bootstrap.node import print_plan
    from node_bootstrap.setting import Setting

    timing = Timing(setup_tries=2)  # somebody waits for the answer
    return asyncio.run(print_plan(Setting(layout, os.environ.get("AWS_EC2_METADATA_SERVICE_ENDPOINT") or DEFAULT_URL, timing=timing)))


def signal_ready(url: str, seconds: float) -> int:
    import asyncio
    import logging

    from node_bootstrap import ready
    from node_bootstrap.metadata import DEFAULT_URL

    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    return asyncio.run(ready.signal_ready(url, seconds, os.environ.get("AWS_EC2_METADATA_SERVICE_ENDPOINT") or DEFAULT_URL))


if __name__ == "__main__":
    sys.exit(main())
