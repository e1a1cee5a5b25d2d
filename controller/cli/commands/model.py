"""`dyntrain model`: predict the durations of training steps and membership changes by placement of ps-lite servers."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import click
from dyntrain.controller.cli.shell.options import output_options, width_of_terminal

if TYPE_CHECKING:
    from dyntrain.training.model.table import Row

GIGABIT, GIGABYTE = 1e9 / 8, 1e9  # bytes
LATENCY_SECONDS, FORMING_SECONDS = 0.005, 0.3  # of an empty exchange and of a change: `make bench BENCH="model reform"`
DEFAULT_WORKERS = (2, 4, 8, 16, 32, 64)  # numbers of workers
NETWORK_NAMES = ("ResNet-50", "BERT-large")
COLUMNS = ("network", "workers", "servers on", "exchange s", "waits for", "step s", "computing", "pause s", "release s")
POSITIVE_NUMBER = click.FloatRange(min=0, min_open=True)


@click.command(
    epilog="Examples:\n\n\b\n  dyntrain model\n  dyntrain model --network ResNet-50 --link 10 --compute 0.3\n"
    "  dyntrain model --workers 24 --bases 3 --bases 6 --output json"
)
@click.option("--network", "networks", multiple=True, type=click.Choice(NETWORK_NAMES), help="Which.  [default: both]")
@click.option(
    "--workers", type=click.IntRange(2, 64), multiple=True, help="How many; may be repeated.  [default: 2 4 ... 64]"
)
@click.option("--bases", type=click.IntRange(1, 64), multiple=True, help="Base nodes with servers.  [default: 1 2 4]")
@click.option("--link", type=POSITIVE_NUMBER, default=25.0, show_default=True, help="Gb/s of a node, each way.")
# The default is from https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/ec2-instance-network-bandwidth.html
@click.option(
    "--connection",
    type=POSITIVE_NUMBER,
    default=5.0,
    show_default=True,
    help="Gb/s of one TCP connection: 5 between any two instances, 10 within a cluster placement group.",
)
@click.option(
    "--serving", type=POSITIVE_NUMBER, default=1.0, show_default=True, help="GB/s that one ps-lite server adds up."
)
@click.option(
    "--compute", type=POSITIVE_NUMBER, help="Seconds a step computes.  [default: a V100's, see training/SCALING.md]"
)
@click.option(
    "--overlap",
    type=click.FloatRange(0, 1),
    default=0.66,
    show_default=True,
    help="Share of the computing in which gradients go out: of the backward pass on a GPU; 0 on CPUs.",
)
@output_options("a list of rows and what follows, as one object", "a row a line, then what follows", "the same")
def model(  # `dyntrain model`
    networks: tuple[str, ...],
    workers: tuple[int, ...],
    bases: tuple[int, ...],
    link: float,
    connection: float,
    serving: float,
    compute: float | None,
    overlap: float,
    output: str,
) -> None:
    """Predict the durations of steps, of pauses when a worker joins, and of the survivors' wait after a worker's crash.
    The durations are predicted for several placements of ps-lite servers on nodes.

    The model assumes that all nodes are equal. See training/SCALING.md for the accuracy of the predictions and for
    settings.
    """
    from dyntrain.training.model.prediction import Machines
    from dyntrain.training.model.table import BASES, COMPUTE, advice, rows

    machines = Machines(
        link=link * GIGABIT,
        connection=min(connection, link) * GIGABIT,
        serving=serving * GIGABYTE,
        latency=LATENCY_SECONDS,
        forming=FORMING_SECONDS,
    )
    network_names = networks or NETWORK_NAMES
    prediction_rows = list(rows(network_names, workers or DEFAULT_WORKERS, bases or BASES, machines, compute, overlap))
    advice_lines = [
        advice_line
        for network in network_names
        for advice_line in advice(network, bases or BASES, machines, compute or COMPUTE[network])
    ]
    if output == "json":
        row_fields = [{**vars(row), "placement": str(row.placement)} for row in prediction_rows]
        click.echo(json.dumps({"rows": row_fields, "advice": advice_lines}))
        return
    for line in [*_table_lines(prediction_rows), "", *advice_lines]:
        click.echo(line)


def _table_lines(rows: list[Row]) -> list[str]:
    """The predicted durations as lines of a table that fits the terminal's width."""
    from dyntrain.controller.cli.text.tables import Column, table

    table_rows = [
        (
            row.network,
            str(row.workers),
            str(row.placement),
            f"{row.exchange:.2f}",
            row.limit,
            f"{row.step:.2f}",
            f"{row.efficiency:.0%}",
            f"{row.pause:.1f}",
            f"{row.release:.1f}",
        )
        for row in rows
    ]
    table_columns = [Column(column_name, 0 if column_name in COLUMNS[:4] else 1) for column_name in COLUMNS]
    return table(table_columns, table_rows, width_of_terminal())
