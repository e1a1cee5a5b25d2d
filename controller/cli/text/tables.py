"""Tables that fit the terminal: a narrow terminal shows fewer columns. No cell is cut, so that a cell's text can be
copied.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from io import StringIO

GAP = 2  # number of spaces between two columns
MIN_WORDS_WIDTH = 24  # the least width of a column whose cells may take several lines


@dataclass(frozen=True)
class Column:  # of a table
    """A table column with a rank: in a narrow terminal, the columns of the highest rank are left out first."""

    name: str
    rank: int  # a column of rank 0 is never left out
    words: bool = False  # a cell of the column may take several lines


def fitting_columns(columns: Sequence[Column], widths: Sequence[int], width: int | None) -> list[int]:
    """The indexes of the columns that fit into `width` characters, or of all columns if `width` is None."""
    visible_indexes = list(range(len(columns)))
    while width is not None:
        needed_width = sum(min(widths[i], MIN_WORDS_WIDTH) if columns[i].words else widths[i] for i in visible_indexes)
        least_important_index = max(visible_indexes, key=lambda i: (columns[i].rank, i))
        if needed_width + GAP * (len(visible_indexes) - 1) <= width or columns[least_important_index].rank == 0:
            break
        visible_indexes.remove(least_important_index)
    return visible_indexes


def table(
    columns: Sequence[Column],
    rows: Sequence[Sequence[str]],
    width: int | None,
    colours: Sequence[str | None] = (),
    *,
    colour: bool = False,
) -> list[str]:
    """The text lines of the table. `colours` contains one colour for each row, or is empty."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    column_widths = [max([len(column.name), *(len(row[i]) for row in rows)]) for i, column in enumerate(columns)]
    visible_indexes = fitting_columns(columns, column_widths, width)
    rich_table = Table(box=None, pad_edge=False, padding=(0, GAP, 0, 0), header_style="bold")
    for index in visible_indexes:
        wraps = columns[index].words
        rich_table.add_column(
            columns[index].name, no_wrap=not wraps, overflow="fold", min_width=None if wraps else column_widths[index]
        )
    for row_index, row in enumerate(rows):
        row_style = colours[row_index] if row_index < len(colours) else None
        rich_table.add_row(*(Text(row[index]) for index in visible_indexes), style=row_style)
    min_width = sum(column_widths[i] for i in visible_indexes if not columns[i].words) + GAP * len(visible_indexes)
    full_width = sum(column_widths[i] for i in visible_indexes) + GAP * len(visible_indexes)
    output = StringIO()
    console = Console(
        file=output,
        width=full_width if width is None else max(min_width, min(width, full_width)),
        force_terminal=colour,
        color_system="standard" if colour else None,
        no_color=not colour,
        legacy_windows=False,
    )
    console.print(rich_table)
    return [line.rstrip() for line in output.getvalue().splitlines()]
