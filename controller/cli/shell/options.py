"""Options that several commands share: the output format, the cluster, and `--dry-run`."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar, cast

import click
from dyntrain.controller.cli.shell.completion import CLUSTER

DRY_RUN = click.option("--dry-run", is_flag=True, help="Say what would be done, and do nothing.")
F = TypeVar("F", bound=Callable[..., Any])


def output_options(json: str, table: str, wide: str) -> Callable[[F], F]:
    """A decorator that adds the options `--output` and `--json` to a command. The command gets the chosen format as the
    argument `output`.
    """

    def decorate(command: F) -> F:
        @wraps(command)
        def run_command(*arguments: Any, output: str, as_json: bool, **other_options: Any) -> Any:
            return command(*arguments, output="json" if as_json else output, **other_options)

        return cast("F", output_option(json_option(run_command)))

    json_option = click.option("--json", "as_json", is_flag=True, help="The same as --output json.")
    output_option = click.option(
        "--output",
        type=click.Choice(["json", "table", "wide"]),
        default="table",
        show_default=True,
        help=f"json: {json}. table: {table}. wide: {wide}.",
    )
    return decorate


def cluster_argument(command: F) -> F:
    """A decorator by which a command accepts a cluster's name as the argument CLUSTER or as the option `--cluster`. The
    command's parameter `cluster` is None for all registered clusters.
    """

    @wraps(command)
    def run_command(*arguments: Any, cluster: str | None, named: str | None, **other_options: Any) -> Any:
        if named is not None and cluster is not None:
            raise click.UsageError(f"{named} and --cluster {cluster} exclude each other: give one of them")
        return command(*arguments, cluster=named or cluster, **other_options)

    cluster_option = click.option(
        "--cluster", type=CLUSTER, help="The same as CLUSTER; default: all that are registered."
    )
    return cast(
        "F", click.argument("named", metavar="[CLUSTER]", required=False, type=CLUSTER)(cluster_option(run_command))
    )


def width_of_terminal() -> int | None:
    """The terminal's width in characters, or None for output to a file or a pipe, where lines may have any length."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None
