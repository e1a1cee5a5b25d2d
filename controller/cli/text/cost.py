"""The text of a bill for machine time. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from dyntrain.controller.cli.text.tables import Column, table
from dyntrain.controller.cli.text.words import moment, printable
from dyntrain.controller.core.history.bill import Bill, LineItem

COLUMNS = (
    Column("ROLE", 0),
    Column("TYPE", 0),
    Column("OPTION", 1),
    Column("INSTANCE", 4),
    Column("INSTANCES", 2),
    Column("RUN NOW", 2),
    Column("HOURS", 0),
    Column("$/HOUR", 3),
    Column("COST", 0),
)
PRICES_REMARK = (
    "Prices are today's, of Linux: on demand as listed, Spot as it is now. Discounts (Reserved Instances, Savings "
    "Plans), disks and traffic are in AWS's bill alone."
)


def bill_lines(
    title: str, start: float, costs: Bill, notes: Sequence[str], width: int | None, *, each: bool
) -> Iterator[str]:
    """The text lines of a bill for machine time. If `each` is true, each table row is about one instance."""
    yield f"{title} since {moment(start)}"
    if costs.lines:
        column_indexes = [
            index for index, column in enumerate(COLUMNS) if column.name != ("INSTANCES" if each else "INSTANCE")
        ]
        table_rows = [_table_row(line) for line in costs.lines]
        columns = [COLUMNS[index] for index in column_indexes]
        yield from table(columns, [[printable(row[index]) for index in column_indexes] for row in table_rows], width)
    else:
        yield "nothing ran"
    yield _total_line(costs)
    for note in notes:
        yield f"! {printable(note)}"


def money_text(dollars: float | None) -> str:
    return "-" if dollars is None else f"${dollars:,.2f}"


def _table_row(line: LineItem) -> list[str]:
    return [
        line.role,
        line.type,
        line.market,
        line.instance,
        str(line.instances),
        str(line.running),
        f"{line.hours:,.2f}",
        "-" if line.price is None else f"${line.price:,.4f}",
        money_text(line.cost),
    ]


def _total_line(costs: Bill) -> str:
    total_text = f"{costs.hours:,.2f} instance-hours"
    if costs.cost is not None:
        unpriced_text = f" and {costs.unpriced:,.2f} hours of unknown price" if costs.unpriced else ""
        total_text += f", {money_text(costs.cost)}{unpriced_text}"
    elif costs.hours:
        total_text += " (no price is known: pricing:GetProducts may not be allowed)"
    if not costs.running:
        return f"{total_text}; nothing runs now"
    hourly_text = f", {money_text(costs.hourly)} an hour" if costs.hourly is not None else ""
    return f"{total_text}; {costs.running} {'runs' if costs.running == 1 else 'run'} now{hourly_text}"
