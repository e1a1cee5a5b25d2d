"""`dyntrain pool plan`: print and explain the sizes that pools of reserved instances should have now."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import click
from dyntrain.controller.cli.shell.completion import CLUSTER
from dyntrain.controller.cli.shell.connection import stage_of_command
from dyntrain.controller.cli.shell.errors import errors_on_one_line
from dyntrain.controller.cli.shell.options import output_options
from dyntrain.controller.cli.shell.waiting import waiting
from dyntrain.controller.cli.text.words import printable_lines
from dyntrain.controller.contract.errors import GiveUp
from dyntrain.controller.contract.wrong_fields import wrong_fields

if TYPE_CHECKING:  # not imported at run time, so that `--help` is fast
    from dyntrain.controller.core.pool.inputs import Inputs


@click.group(epilog="Examples:\n\n\b\n  dyntrain pool plan")
def pool() -> None:  # `dyntrain pool`
    """Show how idle reserved instances are given to clusters."""


@pool.command(
    epilog="Examples:\n\n\b\n  dyntrain pool plan --cluster demo\n"
    "  dyntrain pool plan --json | jq .inputs > inputs.json\n  dyntrain pool plan --from-file inputs.json"
)
@click.option("--cluster", type=CLUSTER, help="Only this cluster; the sum is over all of them either way.")
@click.option(
    "--from-file",
    "file",
    type=click.Path(path_type=Path),
    help="Decide on recorded inputs (a JSON file) and read nothing from AWS.",
)
@output_options(
    '{"problem", "sum", "pools", "inputs"}; the inputs fit --from-file', "sums, line by line", "with all that was read"
)
def plan(cluster: str | None, file: Path | None, output: str) -> None:  # `dyntrain pool plan`
    """Print the idle reserved instances and the size that each cluster's pool should have.

    The exit code is 1 if a reading from AWS failed.
    """
    from dyntrain.controller.cli.text.pool import pool_plan_data, pool_plan_text
    from dyntrain.controller.core.pool.plan import plan_pools

    with errors_on_one_line():
        with waiting("reading reservations and instances"):
            inputs = _inputs_from_file(file) if file is not None else _inputs_from_aws()
        pool_clusters = [pool_inputs.cluster for pool_inputs in inputs.pools]
        if cluster is not None and cluster not in pool_clusters:
            raise GiveUp(
                f"cluster {cluster!r} has no pool (clusters with a pool: {', '.join(pool_clusters) or 'none'})"
            )
    pool_plan = plan_pools(inputs)
    if output == "json":
        click.echo(json.dumps(pool_plan_data(pool_plan, inputs, cluster)))
    else:
        click.echo(printable_lines(pool_plan_text(pool_plan, inputs, cluster, wide=output == "wide")))
    if inputs.problem:
        raise click.exceptions.Exit(1)


def _inputs_from_file(file: Path) -> Inputs:
    from dyntrain.controller.cli.rehearsal.recorded import text_of
    from dyntrain.controller.core.pool.inputs import Inputs
    from pydantic import ValidationError

    try:
        return Inputs.model_validate_json(text_of(file))
    except ValidationError as error:
        raise GiveUp(f"{file}: {wrong_fields(error, 'file')}") from error


def _inputs_from_aws() -> Inputs:
    from dyntrain.controller.cli.answers.pool import inputs_from_aws

    return inputs_from_aws(stage_of_command())
