"""How both pages look: names give way where the terminal is narrow, and numbers stand to the right."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from rich.console import Console
from rich.table import Table
from rich.text import Text

from cuda_ext.formats.quantities import format_size as size

__all__ = ["DIGEST", "NOTHING", "Row", "console", "count", "growth", "show_groups", "show_table"]

NOTHING = "\N{EN DASH}"
# Digits of a digest that tell two of a project apart.
DIGEST = 10


@dataclass(frozen=True, slots=True)
class Row:
    """The cells of a line. Where `is_remark`, the second is a text that stands for all others."""

    cells: Sequence[str]
    style: str = ""
    is_remark: bool = False


def console() -> Console:
    """Names of kernels are no markup."""
    return Console(highlight=False, markup=False, emoji=False)


def show_table(
    target: Console,
    headings: Sequence[str],
    rows: Iterable[Sequence[str | Text]],
    numbers: int,
    most: int | None = None,
) -> None:
    """Print an empty line and a table, if there are any rows; the last `numbers` columns stand to the right.

    Of more than `most` rows the others are counted.
    """
    everything = list(rows)
    if not everything:
        return
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    for index, heading in enumerate(headings):
        is_number = index >= len(headings) - numbers
        gives_way = index == 0 or (numbers == 0 and index == len(headings) - 1)
        table.add_column(
            heading, justify="right" if is_number else "left", no_wrap=not gives_way, overflow="fold"
        )
    for row in everything[:most]:
        table.add_row(*row)
    target.print()
    target.print(table)
    if most is not None and len(everything) > most:
        target.print(f"and {len(everything) - most:,} more, which --json lists", style="dim")


def show_groups(
    target: Console, headings: Sequence[str], groups: Iterable[tuple[str, Sequence[Row]]]
) -> None:
    """Print an empty line and a table in which groups of rows have titles of any length.

    All but the first column are numbers.
    """
    everything = list(groups)
    aligned = [headings, *(row.cells for _, rows in everything for row in rows if not row.is_remark)]
    widths = [max(map(len, column)) for column in zip(*aligned, strict=True)]
    target.print()
    target.print(_line(Row(headings, "dim"), widths), soft_wrap=True)
    for title, rows in everything:
        target.print(Text(title, "bold"))
        for row in rows:
            target.print(_line(row, widths), soft_wrap=True)


def _line(row: Row, widths: Sequence[int]) -> Text:
    first, *rest = row.cells
    if not row.is_remark:
        rest = [f"{cell:>{width}}" for cell, width in zip(rest, widths[1:], strict=True)]
    return Text("  ".join(["", f"{first:<{widths[0]}}", *rest]), row.style)


def count(number: int | None) -> str:
    return NOTHING if number is None else f"{number:,}"


def growth(before: int | None, after: int | None) -> str:
    """How much larger something became.

    >>> growth(1024, 3072), growth(None, 100), growth(2048, 1024)
    ('+2 KiB', '+100 B', '-1 KiB')
    """
    change = (after or 0) - (before or 0)
    return f"{'-' if change < 0 else '+'}{size(abs(change))}" if change else ""
