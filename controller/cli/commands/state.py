"""The command `dyntrain status` shows nodes and jobs. The command `dyntrain explain` shows why an instance has its
status.
"""

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
from dyntrain.controller.cli.shell.connection import connect_to_stage, stage_of_command
from dyntrain.controller.cli.shell.errors import errors_on_one_line
from dyntrain.controller.cli.shell.instances import check_instance_ids
from dyntrain.controller.cli.shell.options import cluster_argument, output_options, width_of_terminal
from dyntrain.controller.cli.shell.waiting import calling_aws, waiting
from dyntrain.controller.cli.text.words import moment, printable, printable_lines

if TYPE_CHECKING:
    from dyntrain.controller.contract.stage import Stage

LOCAL_DIRECTORY_VARIABLE = (
    "DYNTRAIN_LOCAL_DIRECTORY"  # `dyntrain local up` prints a shell command that sets this variable
)
WATCH_SECONDS = 1.0  # between two reads with --watch
ClusterSummaries = list[dict[str, Any]]  # what `dyntrain status` shows, by cluster
COLOUR_OPTION = click.option(
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
@COLOUR_OPTION
def status(cluster: str | None, watch: bool, output: str, gone: bool, color: str) -> None:  # `dyntrain status`
    """Show each cluster's nodes with status and reason, and its job with progress, loss and samples/s."""
    with errors_on_one_line():
        with waiting("reading the clusters"):
            stage = stage_of_command()
            ports, registry, elastic_tag = connect_to_stage(stage)
            from dyntrain.controller.cli.answers.query import snapshot, summary, with_price
            from dyntrain.controller.cli.answers.unmanaged import unmanaged_message

            policy_problems: dict[str, str] = {}

            identity_problem = _identity_problem(stage)

            def read_summaries() -> ClusterSummaries:
                cluster_names = [cluster] if cluster else sorted(registry.all())
                policy_problems.clear()
                policy_problems.update({} if cluster else registry.problems())
                snapshots = (snapshot(ports, registry, name, elastic_tag) for name in cluster_names)
                return [
                    {**summary(cluster_snapshot, gone=gone), "unverified": identity_problem}
                    for cluster_snapshot in snapshots
                ]

            summaries = read_summaries()
            if (
                any(cluster_data["stays"] and cluster_data["stays"]["instances"] for cluster_data in summaries)
                and not watch
            ):
                price_of = _price_lookup()
                summaries = [with_price(cluster_data, price_of) for cluster_data in summaries]
        successive_summaries = chain([summaries], _read_repeatedly(read_summaries) if watch else ())
        if output == "json":
            for cluster_summaries in successive_summaries:
                click.echo(json.dumps({"clusters": cluster_summaries, "invalid": policy_problems}))
            return

        def status_page(clusters: ClusterSummaries) -> str:
            from dyntrain.controller.cli.text.status import cluster_lines

            shown_at, wide = time.time() if sys.stdout.isatty() else None, output == "wide"
            width = None if wide else width_of_terminal()
            colour, log_of = is_coloured(color), _local_log_finder()
            cluster_texts = [
                "\n".join(cluster_lines(cluster_data, shown_at, width, wide=wide, colour=colour, log_of=log_of))
                for cluster_data in clusters
            ]
            cluster_texts += [
                printable(unmanaged_message(name, problem)) for name, problem in sorted(policy_problems.items())
            ]
            return "\n\n".join(cluster_texts) or "no cluster is registered"

        if watch and sys.stdout.isatty():
            _show_live_pages(map(status_page, successive_summaries))
        else:
            _print_pages(map(status_page, successive_summaries))


def _identity_problem(stage: Stage) -> str:
    """The reason why the controller accepts reports without verifying the sender's identity. The reason is "" if the
    controller verifies identities, or if the stage has no setting for identities.
    """
    from botocore.session import Session
    from dyntrain.controller.contract.region_keys import unverified_cause

    return (
        unverified_cause(stage.identity, str(Session().get_config_variable("region") or "")) if stage.identity else ""
    )


def _local_log_finder() -> Callable[[str], str] | None:
    """Return a function that finds a worker's log in an emulation of AWS, or None if DYNTRAIN_LOCAL_DIRECTORY is not
    set.
    """
    directory = os.environ.get(LOCAL_DIRECTORY_VARIABLE)
    if not directory:
        return None
    from dyntrain.controller.cli.answers.log_sources import files_of

    def log_location(instance: str) -> str:
        machine_folder = Path(directory) / "machines" / instance
        log_files = files_of(machine_folder, "worker") if instance else []
        return f"its log: {log_files[0] if log_files else f'`dyntrain logs` reads it, in {directory}'}"

    return log_location


def _price_lookup() -> Callable[[str, str], float | None]:
    from dyntrain.controller.adapters.aws import Clients
    from dyntrain.controller.adapters.submission import AwsLauncher

    return AwsLauncher(Clients(attempts=2)).price_in


def _read_repeatedly(read: Callable[[], ClusterSummaries]) -> Iterator[ClusterSummaries]:
    while True:
        time.sleep(WATCH_SECONDS)
        yield read()


def is_coloured(choice: str) -> bool:
    if choice == "auto":
        return sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
    return choice == "always"


@click.command(epilog="Examples:\n\n\b\n  dyntrain explain i-0123456789abcdef0")
@click.argument("instance", type=INSTANCE)
@output_options("all of it as one object", "what a person wants to know", "with each fact as it is stored")
def explain(instance: str, output: str) -> None:  # `dyntrain explain`
    """Explain an instance's status by its reason and by every stored fact."""
    with calling_aws(f"reading what is known of {instance}"):
        check_instance_ids([instance])
        ports, registry, elastic_tag = connect_to_stage()
        from dyntrain.controller.cli.answers.query import cluster_of_instance, explanation, snapshot

        cluster = cluster_of_instance(ports, registry, instance)
        explanation_data = explanation(snapshot(ports, registry, cluster, elastic_tag), instance)
    click.echo(
        json.dumps(explanation_data) if output == "json" else _explanation_text(explanation_data, wide=output == "wide")
    )


def _print_pages(pages: Iterable[str]) -> None:
    last_page = None
    for page in pages:
        if page != last_page:
            click.echo(page, color=True)
        last_page = page


def _show_live_pages(pages: Iterable[str]) -> None:
    from rich.live import Live
    from rich.text import Text

    with Live(auto_refresh=False) as live_display:
        for page in pages:
            live_display.update(Text.from_ansi(page), refresh=True)


def _explanation_text(explanation_data: dict[str, Any], *, wide: bool = False) -> str:
    text_lines = [
        f"{explanation_data['instance']} of {explanation_data['cluster']}: {explanation_data['status']}",
        f"  reason: {explanation_data['reason']}, {explanation_data['sentence']}",
    ]
    if explanation_data["detail"]:
        text_lines += ["  detail:", *(f"    {line}" for line in explanation_data["detail"].splitlines())]
    text_lines.append(f"  since: {moment(explanation_data['since'])}")
    text_lines.append(f"  what would change it: {explanation_data['would_change']}")
    if explanation_data["next_change"] is not None:
        text_lines.append(f"  may change by itself at: {moment(explanation_data['next_change'])}")
    if explanation_data["pending_actions"]:
        text_lines.append(f"  to be done: {', '.join(explanation_data['pending_actions'])}")
    text_lines += ["  as it stands:", *(f"    {key}: {value}" for key, value in explanation_data["effective"].items())]
    text_lines.append("  what is known, and from where:")
    text_lines += [
        f"    {moment(origin['at'])}  {origin['fact']}: {origin['says']}  [{origin['where']}]"
        for origin in explanation_data["origins"]
    ]
    if explanation_data["passed_over"]:
        text_lines += ["  passed over:", *(f"    {line}" for line in explanation_data["passed_over"])]
    if wide:
        text_lines += [
            "  as it is stored:",
            *(f"    {name}: {json.dumps(fact)}" for name, fact in explanation_data["facts"].items()),
        ]
    return printable_lines("\n".join(text_lines))
