"""Tables on a terminal. A heading such as ``>size`` aligns its column to the right, as numbers are."""

from __future__ import annotations

import shutil
import textwrap
from collections.abc import Iterable, Sequence
from itertools import zip_longest

from cuda_ext.cli.terminal import show_line
from cuda_ext.errors import escape_controls

# The cells of a row, and its style.
Row = tuple[Sequence[str], str]

# Characters that a folded column has at least.
_NARROWEST = 12


def show_table(headings: Sequence[str], rows: Iterable[Sequence[str]], most: int | None = None) -> None:
    """Print an empty line and a table, if there are rows; those beyond `most` are only counted.

    Names in the first column, and texts in the last one, are folded where the terminal is narrow.
    """
    rows = [[*map(escape_controls, row)] for row in rows]
    if not rows:
        return
    numbers = [heading.startswith(">") for heading in headings]
    titles = [heading.removeprefix(">") for heading in headings]
    widths = [max(map(len, column)) for column in zip(titles, *rows[:most], strict=True)]
    excess = sum(widths) + 2 * len(widths) - 2 - shutil.get_terminal_size().columns
    foldable = [0] if any(numbers) else [0, len(widths) - 1]
    for column in sorted(foldable, key=lambda column: -widths[column]):
        narrower = max(widths[column] - max(excess, 0), min(widths[column], _NARROWEST))
        excess -= widths[column] - narrower
        widths[column] = narrower

    def show_row(cells: Sequence[str], style: str = "") -> None:
        columns = [
            textwrap.wrap(cell, width, break_on_hyphens=False) if column in foldable else [cell]
            for column, (cell, width) in enumerate(zip(cells, widths, strict=True))
        ]
        for line in zip_longest(*columns, fillvalue=""):
            aligned = zip(line, widths, numbers, strict=True)
            texts = (f"{text:>{width}}" if number else f"{text:<{width}}" for text, width, number in aligned)
            show_line(("  ".join(texts).rstrip(), style))

    show_line()
    show_row(titles, "dim")
    for row in rows[:most]:
        show_row(row)
    if most is not None and len(rows) > most:
        show_line((f"and {len(rows) - most:,} more, which --json lists", "dim"))


def show_groups(headings: Sequence[str], groups: Sequence[tuple[str, Sequence[Row]]], most: int) -> None:
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
        show_line(("  ".join(["", f"{name:<{first}}", *rest]), style))

    show_line()
    show_row(headings, "dim")
    for title, group in shown:
        show_line((title, "bold"))
        for row in group:
            show_row(*row)
    if len(groups) > most:
        show_line((f"and {len(groups) - most:,} more; --kernel selects, --json lists all", "dim"))
