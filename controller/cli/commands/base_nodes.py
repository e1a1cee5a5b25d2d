"""`dyntrain base`: base nodes that are replaced on purpose."""

from __future__ import annotations

import click
from dyntrain.controller.cli.shell.completion import INSTANCE
from dyntrain.controller.cli.shell.connection import connect
from dyntrain.controller.cli.shell.instances import only_ids
from dyntrain.controller.cli.shell.options import DRY
from dyntrain.controller.cli.shell.place import say_where
from dyntrain.controller.cli.shell.waiting import asking


@click.group(epilog="Examples:\n\n\b\n  dyntrain base replace i-0123456789abcdef0 i-0fedcba9876543210")
def base() -> None:
    """Base nodes, which run the ps-lite servers, and one of them the coordinator."""


@base.command(epilog="Examples:\n\n\b\n  dyntrain base replace i-0123456789abcdef0 i-0fedcba9876543210")
@click.argument("old", type=INSTANCE)
@click.argument("new", type=INSTANCE)
@DRY
def replace(old: str, new: str, dry_run: bool) -> None:
    """Put the prepared node NEW in the place of the base node OLD.

    At one boundary NEW's ps-lite servers take over and OLD leaves; until NEW can serve, nothing changes. OLD is then
    released as an elastic node would be: terminated, if the cluster launched it. Repeating the command does no harm.
    The base node that runs the coordinator is refused.
    """
    with asking("asking AWS"):
        only_ids((old, new))
        from dyntrain.controller.cli.changing.asking import carried_out, replace_request

        connection = connect()
        result = carried_out(connection.ports, replace_request(connection, old, new), dry_run, say_where)
    click.echo(result)
