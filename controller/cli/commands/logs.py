"""`dyntrain logs`: print log lines of a cluster's machines, also of terminated machines."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

import click
from dyntrain.controller.cli.answers.log_sources import KINDS, FromCloudWatch, FromFiles, LineFilter
from dyntrain.controller.cli.shell.completion import CLUSTER, INSTANCE
from dyntrain.controller.cli.shell.connection import connect_to_stage
from dyntrain.controller.cli.shell.errors import errors_on_one_line
from dyntrain.controller.cli.shell.instances import check_instance_ids
from dyntrain.controller.cli.shell.since import parse_since
from dyntrain.controller.cli.shell.waiting import follow as go_on
from dyntrain.controller.cli.shell.waiting import waiting
from dyntrain.controller.cli.text.words import printable
from dyntrain.controller.contract.errors import GiveUp

if TYPE_CHECKING:
    from collections.abc import Iterable

    from dyntrain.controller.cli.answers.log_sources import Source, SourceLine


@click.command(
    epilog="Examples:\n\n\b\n  dyntrain logs demo -f\n  dyntrain logs demo --rank 0 --since 10m\n"
    "  dyntrain logs demo --instance i-0123456789abcdef0 --kind prepare\n"
    "  dyntrain logs demo --directory /tmp/cloud     an embedded cloud's files"
)
@click.argument("cluster", type=CLUSTER)
@click.option("-f", "--follow", is_flag=True, help="Go on with what comes, until interrupted.")
@click.option("--rank", type=click.IntRange(0), help="Only the worker of this rank, of the job that runs.")
@click.option(
    "--instance", "instances", multiple=True, type=INSTANCE, help="Only this machine; may be given several times."
)
@click.option("--job", help="Of this job.  [default: of all; of CloudWatch only]")
@click.option(
    "--kind",
    "kinds",
    multiple=True,
    type=click.Choice(KINDS),
    help="Which logs; may be given several times.  [default: worker]",
)
@click.option("--since", default="1h", show_default=True, help="As for `dyntrain events`.")
@click.option(
    "--directory",
    type=click.Path(path_type=Path),
    envvar="DYNTRAIN_LOCAL_DIRECTORY",
    help="Read the files of an embedded cloud (`local up --directory`) in place of CloudWatch.",
)
def logs(  # `dyntrain logs`
    cluster: str,
    follow: bool,
    rank: int | None,
    instances: tuple[str, ...],
    job: str | None,
    kinds: tuple[str, ...],
    since: str,
    directory: Path | None,
) -> None:
    """Print log lines of CLUSTER's workers from CloudWatch, also of terminated machines."""
    with errors_on_one_line():
        start_time = parse_since(since, time.time())
        check_instance_ids(instances)
        with waiting("reading the logs"):
            wanted_instances = frozenset(instances) if rank is None else frozenset([_instance_of_rank(cluster, rank)])
            line_filter = LineFilter(cluster, job, wanted_instances or None, frozenset(kinds or ("worker",)))
            log_source: Source
            if directory is not None:
                log_source = FromFiles(directory, line_filter, start_time)
            else:
                from dyntrain.controller.adapters.aws import Clients
                from dyntrain.controller.adapters.logs import CloudWatchLogs

                log_source = FromCloudWatch(CloudWatchLogs(Clients(attempts=2)), line_filter, start_time)
            first_lines = list(log_source.next())
        line_count = _print_lines(first_lines)
        if not line_count and not follow:
            log_location = _log_location(cluster, directory)
            raise GiveUp(f"no log line since {since} matches in {log_location}; --since 7d looks further back")
        if follow:
            if not line_count:
                log_location = _log_location(cluster, directory)
                click.echo(f"no log line since {since} matches in {log_location}; waiting", err=True)
            go_on(lambda: _print_lines(log_source.next()))


def _log_location(cluster: str, directory: Path | None) -> str:
    if directory is not None:
        return str(directory)
    return f"the log group /dyntrain/{cluster} of this region (an embedded cloud's logs are files: --directory)"


def _print_lines(lines: Iterable[SourceLine]) -> int:
    line_count = 0
    for line_count, line in enumerate(lines, 1):  # noqa: B007
        click.echo(f"{line.who}  {printable(line.text.expandtabs())}")
    return line_count


def _instance_of_rank(cluster: str, rank: int) -> str:
    from dyntrain.controller.cli.answers.query import snapshot, summary

    ports, registry, elastic_tag = connect_to_stage()
    node_rows = summary(snapshot(ports, registry, cluster, elastic_tag))["nodes"]
    instances_by_rank = {node["rank"]: node["instance"] for node in node_rows if node["rank"] is not None}
    if rank not in instances_by_rank:
        ranks_text = ", ".join(map(str, sorted(instances_by_rank))) or "none: no job runs"
        raise GiveUp(
            f"no worker of {cluster} has rank {rank} now (ranks: {ranks_text}); use --instance for an earlier worker"
        )
    return str(instances_by_rank[rank])
