"""`dyntrain status` shows nodes and jobs; `dyntrain explain` shows why an instance has its status."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from dyntrain.controller.cli.shell.completion import INSTANCE
from dyntrain.controller.cli.shell.connection import connect, stage_of_command
from dyntrain.controller.cli.shell.errors import errors_on_one_line
from dyntrain.controller.cli.shell.instances import check_instance_ids
from dyntrain.controller.cli.shell.options import cluster_argument, output_options, width_of_terminal
from dyntrain.controller.cli.shell.waiting import calling_aws, waiting
from dyntrain.controller.cli.text.words import moment, printable, printable_lines

if TYPE_CHECKING:
    from dyntrain.controller.contract.stage import Stage

LOCAL_DIRECTORY = "DYNTRAIN_LOCAL_DIRECTORY"  # `dyntrain local up` prints a shell command that sets this variable
WATCH_SECONDS = 1.0
Clusters = list[dict[str, Any]]
COLOUR = click.option(
    "--color",
    type=click.Choice(["auto", "always", "never"]),
    default="auto",
    show_default=True,
    help="auto: on a terminal, unless NO_COLOR is set.",
)


@click.command(
    epilog="Examples:\n\n\b\n  dyntrain status\n  dyntrain status --cluster demo --watch\n"
    "  dyntrain status --output json | jq '.clusters[].job.progress'"
)
@cluster_argument
@click.option("--watch", is_flag=True, help="Show it again every second until interrupted.")
@output_options(
    '{"clusters": [...], "invalid": {name: problem}}, one line each time with --watch',
    "as many columns as the terminal has room for",
    "all there are",
)
@click.option("--gone", is_flag=True, help="Also list terminated nodes.")
@COLOUR
def status(cluster: str | None, watch: bool, output: str, gone: bool, color: str) -> None:
    """Show each cluster's nodes with status and reason, and its job with progress, loss and samples/s."""
    with errors_on_one_line():
        with waiting("reading the clusters"):
            stage = stage_of_command()
            ports, registry, elastic = connect(stage)
            from dyntrain.controller.cli.answers.query import snapshot, summary, with_price
            from dyntrain.controller.cli.answers.unmanaged import unmanaged_message

            invalid: dict[str, str] = {}

            doubt = _unverified(stage)

            def read() -> Clusters:
                names = [cluster] if cluster else sorted(registry.all())
                invalid.clear()
                invalid.update({} if cluster else registry.problems())
                snapshots = (snapshot(ports, registry, name, elastic) for name in names)
                return [{**summary(state, gone=gone), "unverified": doubt} for state in snapshots]

            summaries = read()
            if any(data["stays"] and data["stays"]["instances"] for data in summaries) and not watch:
                price = _price()
                summaries = [with_price(cluster_data, price) for cluster_data in summaries]
        readings = chain([summaries], _repeated(read) if watch else ())
        if output == "json":
            for reading in readings:
                click.echo(json.dumps({"clusters": reading, "invalid": invalid}))
            return

        def page(clusters: Clusters) -> str:
            from dyntrain.controller.cli.text.status import cluster_lines

            now, wide = time.time() if sys.stdout.isatty() else None, output == "wide"
            width = None if wide else width_of_terminal()
            colour, log_of = coloured(color), _logs_of_an_embedded_cloud()
            texts = [
                "\n".join(cluster_lines(cluster_data, now, width, wide=wide, colour=colour, log_of=log_of))
                for cluster_data in clusters
            ]
            texts += [printable(unmanaged_message(name, problem)) for name, problem in sorted(invalid.items())]
            return "\n\n".join(texts) or "no cluster is registered"

        if watch and sys.stdout.isatty():
            _live_status(map(page, readings))
        else:
            _plain_status(map(page, readings))


def _unverified(stage: Stage) -> str:
    """Why the controller accepts reports without a check of the node's identity; "" with checks, or if unknown."""
    from botocore.session import Session
    from dyntrain.controller.contract.region_keys import unverified_cause

    return (
        unverified_cause(stage.identity, str(Session().get_config_variable("region") or "")) if stage.identity else ""
    )


def _logs_of_an_embedded_cloud() -> Callable[[str], str] | None:
    """A function that says where a worker's log is in an embedded cloud; None without DYNTRAIN_LOCAL_DIRECTORY."""
    directory = os.environ.get(LOCAL_DIRECTORY)
    if not directory:
        return None
    from dyntrain.controller.cli.answers.log_sources import files_of

    def log_place(instance: str) -> str:
        machine = Path(directory) / "machines" / instance
        logs = files_of(machine, "worker") if instance else []
        return f"its log: {logs[0] if logs else f'`dyntrain logs` reads it, in {directory}'}"

    return log_place


def _price() -> Callable[[str, str], float | None]:
    from dyntrain.controller.adapters.aws import Clients
    from dyntrain.controller.adapters.submission import AwsLauncher

    return AwsLauncher(Clients(attempts=2)).price_in


def _repeated(read: Callable[[], Clusters]) -> Iterator[Clusters]:
    while True:
        time.sleep(WATCH_SECONDS)
        yield read()


def coloured(choice: str) -> bool:
    if choice == "auto":
        return sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
    return choice == "always"


@click.command(epilog="Examples:\n\n\b\n  dyntrain explain i-0123456789abcdef0")
@click.argument("instance", type=INSTANCE)
@output_options("all of it as one object", "what a person wants to know", "with each fact as it is stored")
def explain(instance: str, output: str) -> None:
    """Explain an instance's status by its reason and by every stored fact."""
    with calling_aws(f"reading what is known of {instance}"):
        check_instance_ids([instance])
        ports, registry, elastic = connect()
        from dyntrain.controller.cli.answers.query import cluster_of_instance, explanation, snapshot

        cluster = cluster_of_instance(ports, registry, instance)
        answer = explanation(snapshot(ports, registry, cluster, elastic), instance)
    click.echo(json.dumps(answer) if output == "json" else _explanation_text(answer, wide=output == "wide"))


def _plain_status(pages: Iterable[str]) -> None:
    last_page = None
    for text in pages:
        if text != last_page:
            click.echo(text, color=True)
        last_page = text


def _live_status(pages: Iterable[str]) -> None:
    from rich.live import Live
    from rich.text import Text

    with Live(auto_refresh=False) as live:
        for text in pages:
            live.update(Text.from_ansi(text), refresh=True)


def _explanation_text(answer: dict[str, Any], *, wide: bool = False) -> str:
    lines = [
        f"{answer['instance']} of {answer['cluster']}: {answer['status']}",
        f"  reason: {answer['reason']}, {answer['sentence']}",
    ]
    if answer["detail"]:
        lines += ["  detail:", *(f"    {line}" for line in answer["detail"].splitlines())]
    lines.append(f"  since: {moment(answer['since'])}")
    lines.append(f"  what would change it: {answer['would_change']}")
    if answer["next_change"] is not None:
        lines.append(f"  may change by itself at: {moment(answer['next_change'])}")
    if answer["pending_actions"]:
        lines.append(f"  to be done: {', '.join(answer['pending_actions'])}")
    lines += ["  as it stands:", *(f"    {key}: {value}" for key, value in answer["effective"].items())]
    lines.append("  what is known, and from where:")
    lines += [
        f"    {moment(origin['at'])}  {origin['fact']}: {origin['says']}  [{origin['where']}]"
        for origin in answer["origins"]
    ]
    if answer["passed_over"]:
        lines += ["  passed over:", *(f"    {line}" for line in answer["passed_over"])]
    if wide:
        lines += ["  as it is stored:", *(f"    {name}: {json.dumps(fact)}" for name, fact in answer["facts"].items())]
    return printable_lines("\n".join(lines))
