"""`dyntrain cost`: print the machine hours and the costs of clusters and jobs."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

import click
from dyntrain.controller.cli.shell.completion import CLUSTER, CLUSTER_OR_JOB
from dyntrain.controller.cli.shell.connection import connect_to_stage, stage_of_command
from dyntrain.controller.cli.shell.errors import errors_on_one_line
from dyntrain.controller.cli.shell.options import output_options, width_of_terminal
from dyntrain.controller.cli.shell.since import parse_since
from dyntrain.controller.cli.shell.waiting import waiting
from dyntrain.controller.contract.errors import GiveUp

if TYPE_CHECKING:
    from dyntrain.controller.adapters.submission import AwsLauncher
    from dyntrain.controller.cli.answers.cost import Usage


@click.command(
    epilog="Examples:\n\n\b\n  dyntrain cost\n  dyntrain cost demo --since 7d\n"
    "  dyntrain cost mnist --output wide\n  dyntrain cost demo --json"
)
@click.argument("name", metavar="[CLUSTER|JOB]", required=False, type=CLUSTER_OR_JOB)
@click.option("--cluster", type=CLUSTER, help="Only this cluster: the same as its name without the option.")
@click.option(
    "--since",
    default="30d",
    show_default=True,
    help="Of clusters, whose trail goes back 30 days: a span such as 2h or 7d, or an ISO 8601 time (UTC unless it says "
    "otherwise). A job is shown whole.",
)
@output_options("a list of one object each", "a line each role, type and purchase option", "a line each instance")
def cost(name: str | None, cluster: str | None, since: str, output: str) -> None:  # `dyntrain cost`
    """Print instance-hours by role and purchase option, with the cost where the price is known.

    The hours of a cluster come from the audit trail. The hours of a job come from files that the job's machines wrote
    to S3. The purchase option "reserved" means an instance in a capacity reservation.
    """
    if name is not None and cluster is not None:
        raise click.UsageError(f"{name} and --cluster {cluster} exclude each other: give one of them")
    name = name or cluster
    with errors_on_one_line():
        start_time = parse_since(since, time.time())
        from dyntrain.controller.adapters.aws import Clients
        from dyntrain.controller.adapters.submission import AwsLauncher
        from dyntrain.controller.cli.answers.cost import bills_for, usage_data
        from dyntrain.controller.cli.text.cost import PRICES_REMARK, bill_lines

        launcher = AwsLauncher(Clients(attempts=2))
        with waiting("reading what ran"):
            usages = list(_usages(name, start_time, launcher))
        with waiting("asking for prices"):
            bills = bills_for(usages, launcher.price_in, per_instance=output == "wide")
    if output == "json":
        click.echo(json.dumps([usage_data(usage, usage_bill) for usage, usage_bill in bills], indent=1))
        return
    if not bills:
        click.echo("no cluster is registered, and there is no job", err=True)
    for usage, usage_bill in bills:
        usage_title = f"{usage.kind} {usage.name}"
        for line in bill_lines(
            usage_title, usage.start, usage_bill, usage.notes, width_of_terminal(), each=output == "wide"
        ):
            click.echo(line)
        click.echo()
    if any(usage_bill.cost is not None for _usage, usage_bill in bills):
        click.echo(PRICES_REMARK)


def _usages(name: str | None, since: float, launcher: AwsLauncher) -> Iterator[Usage]:
    """The machine time of the clusters and of the jobs called `name`, or of all clusters and jobs if `name` is None."""
    from dyntrain.controller.adapters.jobs import job_ports
    from dyntrain.controller.cli.answers.cost import cluster_usage, job_usage

    stage = stage_of_command()
    ports, registry, elastic_tag = connect_to_stage(stage)
    ports_of_jobs = job_ports(launcher.clients, stage.table, time.time)
    stored_jobs = (
        ports_of_jobs.records.all()
        if name is None
        else [job for job in [ports_of_jobs.records.get(name)] if job is not None]
    )
    plain_jobs = [job.record for job in stored_jobs if not job.record.elastic]
    job_clusters = {job.record.name for job in stored_jobs if job.record.elastic}  # elastic jobs are clusters
    cluster_names = {*registry.all(), *job_clusters} if name is None else {name}
    cluster_usages = (cluster_usage(ports, registry, cluster, elastic_tag, since) for cluster in sorted(cluster_names))
    known_usages = [usage for usage in cluster_usages if usage is not None]
    if name is not None and not known_usages and not plain_jobs:
        known_names = ", ".join(sorted(registry.all())) or "none"
        raise GiveUp(
            f"there is neither a cluster nor a job {name!r} (clusters: {known_names}; `dyntrain job list` has jobs)"
        )
    yield from known_usages
    for record in sorted(plain_jobs, key=lambda record: record.name):
        yield job_usage(ports_of_jobs.machines, launcher, record, ports_of_jobs.clock())
