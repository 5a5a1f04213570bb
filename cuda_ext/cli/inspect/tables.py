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
    """Print an empty line and a table, if there are rows; those beyond `most` are only counted."""
    show_groups(headings, [("", [(row, "")]) for row in rows], most)


def show_groups(
    headings: Sequence[str], groups: Sequence[tuple[str, Sequence[Row]]], most: int | None = None
) -> None:
    """Print an empty line and a table of rows below titles; groups beyond `most` are only counted.

    Names in the first column, and texts in the last one, are folded where the terminal is narrow. A row of
    two cells has a text in place of further ones.
    """
    if not groups:
        return
    shown = groups[:most]
    indent = "  " if any(title for title, _ in shown) else ""
    numbers = [heading.startswith(">") for heading in headings]
    titles = [heading.removeprefix(">") for heading in headings]
    rows = [[*map(escape_controls, cells)] for _, group in shown for cells, _ in group]
    whole = [row for row in rows if len(row) == len(headings)]
    widths = [max(map(len, column)) for column in zip(titles, *whole, strict=True)]
    excess = len(indent) + sum(widths) + 2 * len(widths) - 2 - shutil.get_terminal_size().columns
    foldable = [0] if any(numbers) else [0, len(widths) - 1]
    for column in sorted(foldable, key=lambda column: -widths[column]):
        narrower = max(widths[column] - max(excess, 0), min(widths[column], _NARROWEST))
        excess -= widths[column] - narrower
        widths[column] = narrower

    def show_row(cells: Sequence[str], style: str = "") -> None:
        is_whole = len(cells) == len(headings)
        columns = [
            textwrap.wrap(cell, width, break_on_hyphens=False) if is_whole and column in foldable else [cell]
            for column, (cell, width) in enumerate(zip(cells, widths, strict=False))
        ]
        for line in zip_longest(*columns, fillvalue=""):
            aligned = zip(line, widths, numbers, strict=False)
            texts = (
                f"{text:>{width}}" if number and is_whole else f"{text:<{width}}"
                for text, width, number in aligned
            )
            show_line((f"{indent}{'  '.join(texts)}".rstrip(), style))

    show_line()
    show_row(titles, "dim")
    cells = iter(rows)
    for title, group in shown:
        if title:
            show_line((title, "bold"))
        for _, style in group:
            show_row(next(cells), style)
    if more := len(groups) - len(shown):
        show_line((f"and {more:,} more, which --json lists", "dim"))
