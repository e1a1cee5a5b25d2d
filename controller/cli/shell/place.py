"""Print the AWS account and region in which a command will change something."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click
from dyntrain.controller.cli.text.words import printable

if TYPE_CHECKING:
    from dyntrain.controller.adapters.aws import Clients


def say_where(object_name: str, clients: Clients | None = None) -> None:
    """Print to stderr the AWS account, region and profile, and the name of the object that the command will change."""
    from dyntrain.controller.adapters.account import account_and_region
    from dyntrain.controller.adapters.aws import Clients

    click.echo(printable(f"{account_and_region(clients or Clients(attempts=1))}: {object_name}"), err=True)
