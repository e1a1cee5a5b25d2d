"""Tables that fit the terminal: a narrow terminal shows fewer columns. No cell is cut, so that a cell's text can be
copied.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from io import StringIO

GAP = 2
MIN_WORDS_WIDTH = 24  # the least width of a column of words


@dataclass(frozen=True)
class Column:
    """A column of a table. In a narrow terminal the columns of the highest `rank` are left out first, rank 0 never.
    `words`: a cell may take several lines.
    """

    name: str
    rank: int
    words: bool = False


def fitting(columns: Sequence[Column], widths: Sequence[int], width: int | None) -> list[int]:
    """The indexes of the columns that fit into `width` characters (None: any number)."""
    visible = list(range(len(columns)))
    while width is not None:
        needed_width = sum(min(widths[i], MIN_WORDS_WIDTH) if columns[i].words else widths[i] for i in visible)
        least_important = max(visible, key=lambda i: (columns[i].rank, i))
        if needed_width + GAP * (len(visible) - 1) <= width or columns[least_important].rank == 0:
            break
        visible.remove(least_important)
    return visible


def table(
    columns: Sequence[Column],
    rows: Sequence[Sequence[str]],
    width: int | None,
    colours: Sequence[str | None] = (),
    *,
    colour: bool = False,
) -> list[str]:
    """The table's lines of text. `colours`: one colour per row, or empty."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    widths = [max([len(column.name), *(len(row[i]) for row in rows)]) for i, column in enumerate(columns)]
    visible = fitting(columns, widths, width)
    rich_table = Table(box=None, pad_edge=False, padding=(0, GAP, 0, 0), header_style="bold")
    for index in visible:
        words = columns[index].words
        rich_table.add_column(
            columns[index].name, no_wrap=not words, overflow="fold", min_width=None if words else widths[index]
        )
    for number, row in enumerate(rows):
        style = colours[number] if number < len(colours) else None
        rich_table.add_row(*(Text(row[index]) for index in visible), style=style)
    min_width = sum(widths[i] for i in visible if not columns[i].words) + GAP * len(visible)
    full_width = sum(widths[i] for i in visible) + GAP * len(visible)
    page = StringIO()
    console = Console(
        file=page,
        width=full_width if width is None else max(min_width, min(width, full_width)),
        force_terminal=colour,
        color_system="standard" if colour else None,
        no_color=not colour,
        legacy_windows=False,
    )
    console.print(rich_table)
    return [line.rstrip() for line in page.getvalue().splitlines()]
