"""Command line of the node's program. The command `run` is the service that systemd starts on each node.

The user data script calls the commands `signal-ready` and `tell`. Users call the commands `plan` and `mark-prepared` by
hand. `dyntrain launch` starts the command `launched` on each host.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from dyntrain.missing import exit_with_advice
from dyntrain.node_bootstrap.core.pacing import Timing
from dyntrain.node_bootstrap.host.errors import CONFIGURATION, FAULT
from dyntrain.node_bootstrap.host.layout import Layout
from dyntrain.node_bootstrap.host.watchdog import make_beat, take_notifier
from dyntrain.training.host.reaper import run_below

if TYPE_CHECKING:
    from dyntrain.node_bootstrap.steps.run import Dependencies

TELL_SECONDS = 120.0  # default time limit of the command `tell`
REPORTED_OUTPUT_CHARACTERS = 1500  # length to which the script's output is shortened in a report
SIGNAL_READY_SECONDS = 3_300.0  # timeout of the wait condition in the cluster's template


def main(arguments: list[str] | None = None) -> int:
    """Run the command that the arguments name; returns the exit code."""
    parser = argparse.ArgumentParser(
        prog="node_bootstrap",
        description="Prepares this EC2 instance for its cluster's job, and runs the instance's part of it.",
    )
    subparsers = parser.add_subparsers(required=True)
    run_command = subparsers.add_parser("run", help="run until the node is retired (exit code 0) or stopped")
    run_command.add_argument(
        "--root", type=Path, default=Path("/"), help="directory that prefixes every file of the host"
    )
    run_command.add_argument(
        "--volume", type=Path, help="where the shared volume is mounted, if not where the cluster's configuration says"
    )
    run_command.add_argument(
        "--notice-seconds",
        type=float,
        default=Timing.notice_poll_seconds,
        help="seconds between reads of the metadata service's notices",
    )
    finish_help = (
        "how many seconds the training script may take to end once it has left the job, for example to save the model"
    )
    run_command.add_argument(
        "--user",
        help="user that runs the training script, prepare-data, the coordinator and the servers; default: current user",
    )
    run_command.add_argument("--finish-seconds", type=float, default=Timing.finish_seconds, help=finish_help)
    plan_command = subparsers.add_parser(
        "plan", help="print which steps are done on this host and which are left, without carrying out any"
    )
    plan_command.add_argument(
        "--root", type=Path, default=Path("/"), help="directory that prefixes every file of the host"
    )
    plan_command.set_defaults(only_look=True)
    ready_command = subparsers.add_parser(
        "signal-ready", help="on the master, signal CloudFormation that people can log in and copy their scripts"
    )
    ready_command.add_argument("url", help="URL of the stack's wait condition handle")
    ready_command.add_argument("--seconds", type=float, default=SIGNAL_READY_SECONDS, help="give up after so long")
    mark_command = subparsers.add_parser(
        "mark-prepared",
        help="mark this node's data as prepared although prepare-data did not succeed; the node joins within seconds",
    )
    mark_command.add_argument(
        "--root", type=Path, default=Path("/"), help="directory that prefixes every file of the host"
    )
    mark_command.add_argument(
        "--volume", type=Path, help="where the shared volume is mounted, if not where the cluster's configuration says"
    )
    mark_command.set_defaults(marks=True)
    tell_command = subparsers.add_parser(
        "tell", help="report the progress of the user data script to the controller, before `run` starts"
    )
    tell_command.add_argument(
        "outcome",
        choices=["alive", "failed"],
        help="failed: the controller gives up the launch, except for a base node",
    )
    tell_command.add_argument(
        "reason", help="what the user data script does, or why it failed; lines of standard input are added"
    )
    tell_command.add_argument(
        "--root", type=Path, default=Path("/"), help="directory that prefixes every file of the host"
    )
    tell_command.add_argument("--seconds", type=float, default=TELL_SECONDS, help="give up after so long")
    launched_command = subparsers.add_parser(
        "launched", help="run a node of a launched job, described by the line on standard input"
    )
    launched_command.set_defaults(launched=True)
    options = parser.parse_args(arguments)
    if "launched" in options:
        return run_launched_node()
    if "url" in options:
        return signal_ready(options.url, options.seconds)
    if "outcome" in options:
        return report_user_data(Layout(options.root.absolute()), options.outcome, options.reason, options.seconds)
    if "only_look" in options:
        return show_plan(Layout(options.root.absolute()))
    if "marks" in options:
        return mark_as_prepared(Layout(options.root.absolute()), options.volume)
    timing = Timing(notice_poll_seconds=options.notice_seconds, finish_seconds=options.finish_seconds)
    notify_systemd, parent_pid = take_notifier(os.environ), os.getpid()
    watchdog_beat = make_beat(parent_pid) if notify_systemd is not None else None
    return run_below(
        lambda: run_node_and_exit(Layout(options.root.absolute()), timing, options.user, watchdog_beat, options.volume),
        notify_systemd,
    )


def run_node_and_exit(
    layout: Layout, timing: Timing, user: str | None, beat: Callable[[], None] | None, volume: Path | None
) -> int:
    """Run the node, then exit with `os._exit`, since a normal exit would wait for AWS calls that hang in threads."""
    import asyncio  # imported here, so that the parent process stays small

    with exit_with_advice(code=CONFIGURATION):
        from dyntrain.node_bootstrap.instance.metadata import DEFAULT_URL
        from dyntrain.node_bootstrap.node import run_node
        from dyntrain.node_bootstrap.steps.run import Dependencies

    metadata_url = os.environ.get("AWS_EC2_METADATA_SERVICE_ENDPOINT") or DEFAULT_URL
    with asyncio.Runner() as runner:
        try:
            exit_code = runner.run(run_node(Dependencies(layout, metadata_url, volume, timing=timing, user=user), beat))
        except OSError as error:  # the log file is not open yet
            sys.stderr.write(f"node_bootstrap: cannot use the files below {layout.root}: {error}\n")
            exit_code = FAULT
        sys.stderr.flush()
        os._exit(exit_code)


def run_launched_node() -> int:
    """Run this host's node of a job that was started with `dyntrain launch`; returns the node's exit code."""
    import tempfile

    def run_in_folder(folder: Path) -> int:
        with exit_with_advice(code=CONFIGURATION):
            from dyntrain.node_bootstrap import launched

        return launched.run(folder)

    with tempfile.TemporaryDirectory(
        prefix="dyntrain-node-"
    ) as folder:  # the parent process outlives the node and removes the folder
        return run_below(lambda: run_in_folder(Path(folder)))


def show_plan(layout: Layout) -> int:
    """Print which steps of the node are done and which are left; returns the exit code."""
    import asyncio

    with exit_with_advice(code=CONFIGURATION):
        from dyntrain.node_bootstrap.node import print_plan

    return asyncio.run(print_plan(interactive_dependencies(layout)))


def mark_as_prepared(layout: Layout, volume: Path | None) -> int:
    """Mark this node as prepared, for a person who prepared it by hand; returns the exit code."""
    import asyncio

    with exit_with_advice(code=CONFIGURATION):
        from dyntrain.node_bootstrap.node import mark_prepared

    return asyncio.run(mark_prepared(interactive_dependencies(layout, volume)))


def interactive_dependencies(layout: Layout, volume: Path | None = None) -> Dependencies:
    """Make the dependencies of a command for whose answer a person waits, so each request is tried only twice.

    The URL of the instance metadata service that will be queried is printed to stderr.
    """
    from dyntrain.node_bootstrap.instance.metadata import DEFAULT_URL
    from dyntrain.node_bootstrap.steps.run import Dependencies

    metadata_url = os.environ.get("AWS_EC2_METADATA_SERVICE_ENDPOINT") or DEFAULT_URL
    sys.stderr.write(f"asking the instance metadata service at {metadata_url} which node this is\n")
    sys.stderr.flush()
    timing = Timing(setup_tries=2, metadata_tries=2, metadata_timeout_seconds=1.0)  # a person waits for the answer
    return Dependencies(layout, metadata_url, volume, timing=timing)


def signal_ready(url: str, seconds: float) -> int:
    """Signal CloudFormation that this host, the cluster's master, has the shared volume; returns the exit code."""
    import asyncio
    import logging

    from dyntrain.node_bootstrap.instance.metadata import DEFAULT_URL
    from dyntrain.node_bootstrap.reports import ready

    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    return asyncio.run(
        ready.signal_ready(url, seconds, os.environ.get("AWS_EC2_METADATA_SERVICE_ENDPOINT") or DEFAULT_URL)
    )


def report_user_data(layout: Layout, outcome: str, reason: str, seconds: float) -> int:
    """Report the progress or the failure of the user data script to the controller; returns the exit code."""
    import asyncio
    import logging

    from dyntrain.node_bootstrap.core.pacing import Timing
    from dyntrain.node_bootstrap.instance.metadata import DEFAULT_URL, MetadataClient
    from dyntrain.node_bootstrap.reports import alive
    from dyntrain.node_bootstrap.reports.aws import EventBridgeReports

    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    attempt_text = (
        layout.attempt_file.read_text(encoding="utf-8", errors="replace").strip()
        if layout.attempt_file.exists()
        else ""
    )
    attempt = int(attempt_text) if attempt_text.isascii() and attempt_text.isdigit() and int(attempt_text) else 1
    script_output = "" if sys.stdin.isatty() else sys.stdin.read()
    metadata = MetadataClient(os.environ.get("AWS_EC2_METADATA_SERVICE_ENDPOINT") or DEFAULT_URL, Timing())
    report_outcome: Literal["alive", "prepare_failed"] = "alive" if outcome == "alive" else "prepare_failed"
    report_reason = (
        f"{reason}; its last output:\n{script_output.strip()[-REPORTED_OUTPUT_CHARACTERS:]}"
        if script_output.strip()
        else reason
    )
    return asyncio.run(
        alive.report_user_data(metadata, EventBridgeReports, attempt, report_outcome, report_reason, seconds)
    )


if __name__ == "__main__":
    sys.exit(main())
