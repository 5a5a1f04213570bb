"""Tables on a terminal. A heading such as ``>size`` aligns its column to the right, as numbers are."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["Row", "show_groups", "show_table"]

# The cells of a row, and its style.
Row = tuple[Sequence[str], str]


def show_table(
    console: Console, headings: Sequence[str], rows: Iterable[Sequence[str]], most: int | None = None
) -> None:
    """Print an empty line and a table, if there are rows; those beyond `most` are only counted.

    Names in the first column, and texts in the last one, are folded where the terminal is narrow.
    """
    rows = list(rows)
    if not rows:
        return
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    has_numbers = any(heading.startswith(">") for heading in headings)
    for heading in headings:
        is_number = heading.startswith(">")
        may_fold = heading is headings[0] or (heading is headings[-1] and not has_numbers)
        table.add_column(
            heading.removeprefix(">"),
            justify="right" if is_number else "left",
            no_wrap=not may_fold,
            overflow="fold",
        )
    for row in rows[:most]:
        table.add_row(*row)
    console.print()
    console.print(table)
    if most is not None and len(rows) > most:
        console.print(f"and {len(rows) - most:,} more, which --json lists", style="dim")


def show_groups(
    console: Console, headings: Sequence[str], groups: Sequence[tuple[str, Sequence[Row]]], most: int
) -> None:
    """Print an empty line and a table in which each group of rows is a kernel, whose name may be long.

    All but the first column are numbers; a row of two cells has a text in place of them. Kernels beyond
    `most` are only counted.
    """
    if not groups:
        return
    shown = groups[:most]
    rows = [cells for _, group in shown for cells, _ in group if len(cells) == len(headings)]
    first, *widths = (max(map(len, column)) for column in zip(headings, *rows, strict=True))

    def show_row(cells: Sequence[str], style: str) -> None:
        name, *rest = cells
        if len(cells) == len(headings):
            rest = [f"{cell:>{width}}" for cell, width in zip(rest, widths, strict=True)]
        console.print(Text("  ".join(["", f"{name:<{first}}", *rest]), style), soft_wrap=True)

    console.print()
    show_row(headings, "dim")
    for title, group in shown:
        console.print(Text(title, "bold"))
        for row in group:
            show_row(*row)
    if len(groups) > most:
        console.print(f"and {len(groups) - most:,} more; --kernel selects, --json lists all", style="dim")
