"""`dyntrain scale`, `add` and `remove`: change the number of a cluster's workers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click
from dyntrain.controller.cli.shell.completion import CLUSTER, INSTANCE
from dyntrain.controller.cli.shell.connection import connect_to_stage
from dyntrain.controller.cli.shell.instances import check_instance_ids
from dyntrain.controller.cli.shell.options import DRY_RUN
from dyntrain.controller.cli.shell.place import say_where
from dyntrain.controller.cli.shell.waiting import calling_aws
from dyntrain.controller.contract.errors import Misconfigured

if TYPE_CHECKING:
    from dyntrain.controller.cli.changing.requests import Request

GROUP_OPTION = click.option("--group", help="Which of the cluster's groups; default: the only one of elastic workers.")


class CommandWithNumber(click.Command):
    """A command that reports the argument -1 as a wrong number of workers, and not as an unknown option."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        for argument in args:
            if argument.startswith("-") and argument[1:].isdecimal():
                raise click.UsageError(f"{argument} is no number of workers: it must be 0 or more.", ctx)
        return super().parse_args(ctx, args)


@click.command(
    cls=CommandWithNumber,
    epilog="Examples:\n\n\b\n  dyntrain scale demo 4\n  dyntrain scale demo 0 --dry-run\n"
    "\b\nIt says the same as an aws command; either will do.",
)
@click.argument("cluster", type=CLUSTER)
@click.argument("n", type=click.IntRange(0))
@GROUP_OPTION
@DRY_RUN
def scale(cluster: str, n: int, group: str | None, dry_run: bool) -> None:  # `dyntrain scale`
    """Set the number of elastic workers in CLUSTER's group to N. N does not include base nodes."""
    with calling_aws("asking AWS"):
        from dyntrain.controller.cli.changing.asking import carry_out_unless_dry_run, scaling_request

        stage_connection = connect_to_stage()
        result_text = carry_out_unless_dry_run(
            stage_connection.ports, scaling_request(stage_connection, cluster, n, group), dry_run, say_where
        )
    click.echo(result_text)


@click.command(
    epilog="Examples:\n\n\b\n  dyntrain add demo\n  dyntrain add demo --count 3\n"
    "  dyntrain add demo --instance i-0123456789abcdef0"
)
@click.argument("cluster", type=CLUSTER)
@click.option("--count", type=click.IntRange(1), help="How many the group launches.  [default: 1]")
@click.option("--instance", "instances", multiple=True, help="Take this machine that runs, rather than launch one.")
@GROUP_OPTION
@DRY_RUN
def add(cluster: str, count: int | None, instances: tuple[str, ...], group: str | None, dry_run: bool) -> None:
    """Add workers to CLUSTER: the cluster's group launches new machines, or running machines are tagged."""
    with calling_aws("asking AWS"):
        if instances and (count is not None or group is not None):
            raise Misconfigured(
                "--instance adds running machines, but --count and --group launch new machines: give --instance alone"
            )
        check_instance_ids(instances)
        from dyntrain.controller.cli.changing.asking import carry_out_unless_dry_run, launch_request, tagging_request

        stage_connection = connect_to_stage()
        size_request: Request
        if instances:
            size_request = tagging_request(stage_connection, cluster, instances)
        else:
            size_request = launch_request(stage_connection, cluster, count or 1, group)
        result_text = carry_out_unless_dry_run(stage_connection.ports, size_request, dry_run, say_where)
    click.echo(result_text)


@click.command(
    epilog="Examples:\n\n\b\n  dyntrain remove i-0123456789abcdef0\n"
    "  dyntrain remove i-0123456789abcdef0 --now --dry-run"
)
@click.argument("instances", metavar="INSTANCE...", nargs=-1, required=True, type=INSTANCE)
@click.option("--now", is_flag=True, help="Wait for no leave window of the cluster, also when it is to leave already.")
@DRY_RUN
def remove(instances: tuple[str, ...], now: bool, dry_run: bool) -> None:  # `dyntrain remove`
    """Delete the elastic tag of workers. Workers without the tag leave the job at the next boundary of epochs or
    segments.
    """
    with calling_aws("asking AWS"):
        check_instance_ids(instances)
        from dyntrain.controller.cli.changing.asking import carry_out_unless_dry_run, removal_request

        stage_connection = connect_to_stage()
        result_text = carry_out_unless_dry_run(
            stage_connection.ports, removal_request(stage_connection, instances, now=now), dry_run, say_where
        )
    click.echo(result_text)
