"""`dyntrain base`: replace base nodes, which run the ps-lite servers and the coordinator."""

from __future__ import annotations

import click
from dyntrain.controller.cli.shell.completion import INSTANCE
from dyntrain.controller.cli.shell.connection import connect_to_stage
from dyntrain.controller.cli.shell.instances import check_instance_ids
from dyntrain.controller.cli.shell.options import DRY_RUN
from dyntrain.controller.cli.shell.place import say_where
from dyntrain.controller.cli.shell.waiting import calling_aws


@click.group(epilog="Examples:\n\n\b\n  dyntrain base replace i-0123456789abcdef0 i-0fedcba9876543210")
def base() -> None:  # `dyntrain base`
    """Replace base nodes, which run the ps-lite servers and the coordinator."""


@base.command(epilog="Examples:\n\n\b\n  dyntrain base replace i-0123456789abcdef0 i-0fedcba9876543210")
@click.argument("old", type=INSTANCE)
@click.argument("new", type=INSTANCE)
@DRY_RUN
def replace(old: str, new: str, dry_run: bool) -> None:  # `dyntrain base replace`
    """Replace the base node OLD by the prepared node NEW.

    Once NEW can run ps-lite servers, NEW's servers replace OLD's servers at the next boundary of epochs or segments.
    After the replacement OLD leaves the job, and is terminated if the cluster launched OLD. Repeating the command is
    safe. The base node that runs the coordinator cannot be replaced.
    """
    with calling_aws("asking AWS"):
        check_instance_ids((old, new))
        from dyntrain.controller.cli.changing.asking import carry_out_unless_dry_run, replacement_request

        stage_connection = connect_to_stage()
        result_text = carry_out_unless_dry_run(
            stage_connection.ports, replacement_request(stage_connection, old, new), dry_run, say_where
        )
    click.echo(result_text)
