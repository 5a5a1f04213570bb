"""Format results as text of at most 110 columns."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from statistics import median

WIDTH = 110


def format_pairs(pairs: Mapping[str, object], title: str = "") -> str:
    """Format one line for each pair, below `title` if there is one."""
    width = max(map(len, pairs))
    lines = [f"{'  ' if title else ''}{name:{width}}  {value}" for name, value in pairs.items()]
    return "\n".join([*([f"\n{title}"] if title else []), *lines])


def format_spread(values: Sequence[float], digits: int) -> str:
    """Format the median, and the least and greatest value in parentheses."""
    return f"{median(values):.{digits}f} ({min(values):.{digits}f} .. {max(values):.{digits}f})"


def format_table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Format the columns that have values: the first aligned left, the others right."""
    columns = [column for column in zip(head, *rows, strict=True) if any(column[1:])]
    widths = [max(map(len, column)) for column in columns]
    lines = (
        f"  {first:{widths[0]}}  "
        + "  ".join(f"{cell:>{width}}" for cell, width in zip(rest, widths[1:], strict=True))
        for first, *rest in zip(*columns, strict=True)
    )
    return "\n".join(line.rstrip() for line in lines)
