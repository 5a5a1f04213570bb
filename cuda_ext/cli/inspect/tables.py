"""Tables on a terminal: names are folded where it is narrow, and numbers are aligned to the right."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from rich.console import Console
from rich.table import Table
from rich.text import Text

__all__ = ["Row", "open_console", "show_groups", "show_table"]


@dataclass(frozen=True, slots=True)
class Row:
    """The cells of a line; with `is_remark`, the second cell is a text in place of all numbers."""

    cells: Sequence[str]
    style: str = ""
    is_remark: bool = False


def open_console() -> Console:
    """Return a console that takes names of kernels literally."""
    return Console(highlight=False, markup=False, emoji=False)


def show_table(
    console: Console,
    headings: Sequence[str],
    rows: Iterable[Sequence[str]],
    numbers: int = 0,
    most: int | None = None,
) -> None:
    """Print an empty line and a table, if there are rows; the last `numbers` columns are numbers.

    Rows beyond `most` are only counted.
    """
    rows = list(rows)
    if not rows:
        return
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    for index, heading in enumerate(headings):
        is_number = index >= len(headings) - numbers
        may_fold = index == 0 or (numbers == 0 and index == len(headings) - 1)
        table.add_column(
            heading, justify="right" if is_number else "left", no_wrap=not may_fold, overflow="fold"
        )
    for row in rows[:most]:
        table.add_row(*row)
    console.print()
    console.print(table)
    if most is not None and len(rows) > most:
        console.print(f"and {len(rows) - most:,} more, which --json lists", style="dim")


def show_groups(
    console: Console, headings: Sequence[str], groups: Iterable[tuple[str, Sequence[Row]]]
) -> None:
    """Print an empty line and a table in which groups of rows have titles of any length.

    All but the first column are numbers.
    """
    groups = list(groups)
    aligned = [headings, *(row.cells for _, rows in groups for row in rows if not row.is_remark)]
    widths = [max(map(len, column)) for column in zip(*aligned, strict=True)]
    console.print()
    console.print(_align(Row(headings, "dim"), widths), soft_wrap=True)
    for title, rows in groups:
        console.print(Text(title, "bold"))
        for row in rows:
            console.print(_align(row, widths), soft_wrap=True)


def _align(row: Row, widths: Sequence[int]) -> Text:
    first, *rest = row.cells
    if not row.is_remark:
        rest = [f"{cell:>{width}}" for cell, width in zip(rest, widths[1:], strict=True)]
    return Text("  ".join(["", f"{first:<{widths[0]}}", *rest]), row.style)
