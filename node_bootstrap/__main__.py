"""`python -m dyntrain.node_bootstrap run`: what systemd starts on each node. `signal-ready` and `tell`: what user
data start besides. `plan` and `mark-prepared`: for people. `launched`: what `dyntrain launch` starts on each host.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from dyntrain.missing import one_sentence
from dyntrain.node_bootstrap.core.pacing import Timing
from dyntrain.node_bootstrap.host.errors import CONFIGURATION, FAULT
from dyntrain.node_bootstrap.host.layout import Layout
from dyntrain.node_bootstrap.host.watchdog import beat_of, take_notifier
from dyntrain.training.host.reaper import run_below

if TYPE_CHECKING:
    from dyntrain.node_bootstrap.steps.run import Dependencies

TELL_SECONDS = 120.0
TOLD_CHARACTERS = 1500
READY_SECONDS = 3_300.0  # as long as the wait condition of the cluster's template waits


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="node_bootstrap", description="Prepares this EC2 instance for its cluster's job, and runs its part of it."
    )
    commands = parser.add_subparsers(required=True)
    run = commands.add_parser("run", help="run until the node is retired (exit code 0) or stopped")
    run.add_argument("--root", type=Path, default=Path("/"), help="directory that prefixes every file of the host")
    run.add_argument(
        "--volume", type=Path, help="where the shared volume is mounted, if not where the cluster's configuration says"
    )
    run.add_argument(
        "--notice-seconds",
        type=float,
        default=Timing.notices,
        help="how often the metadata service is asked for notices",
    )
    last_lines = (
        "how long the training script may take to end by itself once it has left the job, for example to save the model"
    )
    run.add_argument(
        "--user",
        help="who runs the training script, prepare-data, the coordinator and the servers; without: whoever runs this",
    )
    run.add_argument("--finish-seconds", type=float, default=Timing.finish, help=last_lines)
    look = commands.add_parser(
        "plan", help="print which steps are done on this host and which a start would carry out, and carry out none"
    )
    look.add_argument("--root", type=Path, default=Path("/"), help="directory that prefixes every file of the host")
    look.set_defaults(only_look=True)
    ready = commands.add_parser(
        "signal-ready", help="on the master, tell CloudFormation that people can log in and bring their scripts"
    )
    ready.add_argument("url", help="of the stack's wait condition handle")
    ready.add_argument("--seconds", type=float, default=READY_SECONDS, help="give up after so long")
    marked = commands.add_parser(
        "mark-prepared",
        help="say that this node's data are there, though prepare-data did not succeed; it joins within seconds",
    )
    marked.add_argument("--root", type=Path, default=Path("/"), help="directory that prefixes every file of the host")
    marked.add_argument(
        "--volume", type=Path, help="where the shared volume is mounted, if not where the cluster's configuration says"
    )
    marked.set_defaults(marks=True)
    told = commands.add_parser("tell", help="tell the controller how the user data get on, before there is a node")
    told.add_argument("outcome", choices=["alive", "failed"], help="failed: the launch is given up, but of a base node")
    told.add_argument("reason", help="what the user data do, or how they ended; lines of standard input are added")
    told.add_argument("--root", type=Path, default=Path("/"), help="directory that prefixes every file of the host")
    told.add_argument("--seconds", type=float, default=TELL_SECONDS, help="give up after so long")
    launched = commands.add_parser("launched", help="be a node of a launched job, as the line on standard input says")
    launched.set_defaults(launched=True)
    options = parser.parse_args(arguments)
    if "launched" in options:
        return be_launched()
    if "url" in options:
        return signal_ready(options.url, options.seconds)
    if "outcome" in options:
        return tell(Layout(options.root.absolute()), options.outcome, options.reason, options.seconds)
    if "only_look" in options:
        return show_plan(Layout(options.root.absolute()))
    if "marks" in options:
        return mark(Layout(options.root.absolute()), options.volume)
    timing = Timing(notices=options.notice_seconds, finish=options.finish_seconds)
    notify, above = take_notifier(os.environ), os.getpid()
    beat = beat_of(above) if notify is not None else None
    return run_below(
        lambda: bootstrap(Layout(options.root.absolute()), timing, options.user, beat, options.volume), notify
    )


def bootstrap(
    layout: Layout, timing: Timing, user: str | None, beat: Callable[[], None] | None, volume: Path | None
) -> int:
    """Ends the process rather than return when AWS calls still hang in threads: the interpreter would wait for them."""
    import asyncio  # here, so that the process above stays small

    with one_sentence(code=CONFIGURATION):
        from dyntrain.node_bootstrap.instance.metadata import DEFAULT_URL
        from dyntrain.node_bootstrap.node import run_node
        from dyntrain.node_bootstrap.steps.run import Dependencies

    url = os.environ.get("AWS_EC2_METADATA_SERVICE_ENDPOINT") or DEFAULT_URL
    with asyncio.Runner() as runner:
        try:
            code = runner.run(run_node(Dependencies(layout, url, volume, timing=timing, user=user), beat))
        except OSError as error:  # before there is a log to write it to
            sys.stderr.write(f"node_bootstrap: cannot use the files below {layout.root}: {error}\n")
            code = FAULT
        sys.stderr.flush()
        os._exit(code)


def be_launched() -> int:
    import tempfile

    def run(folder: Path) -> int:
        with one_sentence(code=CONFIGURATION):
            from dyntrain.node_bootstrap import launched

        return launched.run(folder)

    with tempfile.TemporaryDirectory(prefix="dyntrain-node-") as folder:  # of the process above: it outlives the node
        return run_below(lambda: run(Path(folder)))


def show_plan(layout: Layout) -> int:
    import asyncio

    with one_sentence(code=CONFIGURATION):
        from dyntrain.node_bootstrap.node import print_plan

    return asyncio.run(print_plan(asked_by_a_person(layout)))


def mark(layout: Layout, volume: Path | None) -> int:
    import asyncio

    with one_sentence(code=CONFIGURATION):
        from dyntrain.node_bootstrap.node import mark_prepared

    return asyncio.run(mark_prepared(asked_by_a_person(layout, volume)))


def asked_by_a_person(layout: Layout, volume: Path | None = None) -> Dependencies:
    from dyntrain.node_bootstrap.instance.metadata import DEFAULT_URL
    from dyntrain.node_bootstrap.steps.run import Dependencies

    url = os.environ.get("AWS_EC2_METADATA_SERVICE_ENDPOINT") or DEFAULT_URL
    sys.stderr.write(f"asking the instance metadata service at {url} which node this is\n")
    sys.stderr.flush()
    timing = Timing(setup_tries=2, metadata_tries=2, metadata_timeout=1.0)  # somebody waits for the answer
    return Dependencies(layout, url, volume, timing=timing)


def signal_ready(url: str, seconds: float) -> int:
    import asyncio
    import logging

    from dyntrain.node_bootstrap.instance.metadata import DEFAULT_URL
    from dyntrain.node_bootstrap.reports import ready

    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    return asyncio.run(
        ready.signal_ready(url, seconds, os.environ.get("AWS_EC2_METADATA_SERVICE_ENDPOINT") or DEFAULT_URL)
    )


def tell(layout: Layout, outcome: str, reason: str, seconds: float) -> int:
    import asyncio
    import logging

    from dyntrain.node_bootstrap.core.pacing import Timing
    from dyntrain.node_bootstrap.instance.metadata import DEFAULT_URL, MetadataClient
    from dyntrain.node_bootstrap.reports import alive
    from dyntrain.node_bootstrap.reports.aws import EventBridgeReports

    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    text = layout.attempt.read_text(encoding="utf-8", errors="replace").strip() if layout.attempt.exists() else ""
    attempt = int(text) if text.isascii() and text.isdigit() and int(text) else 1
    said = "" if sys.stdin.isatty() else sys.stdin.read()
    metadata = MetadataClient(os.environ.get("AWS_EC2_METADATA_SERVICE_ENDPOINT") or DEFAULT_URL, Timing())
    kind: Literal["alive", "prepare_failed"] = "alive" if outcome == "alive" else "prepare_failed"
    words = f"{reason}; its last output:\n{said.strip()[-TOLD_CHARACTERS:]}" if said.strip() else reason
    return asyncio.run(alive.tell(metadata, EventBridgeReports, attempt, kind, words, seconds))


if __name__ == "__main__":
    sys.exit(main())
