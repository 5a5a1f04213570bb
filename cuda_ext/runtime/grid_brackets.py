"""Brackets of launches in other libraries: ``k[grid](x)`` in Triton, ``k[grid, block](x)`` in Numba."""

from __future__ import annotations

from collections.abc import Sequence
from typing import SupportsIndex


def is_grid(item: object) -> bool:
    """Return True if `item` in brackets is a grid, as Triton writes it: numbers, or a function."""
    if callable(item):
        return not isinstance(item, type)
    each = item if isinstance(item, tuple | list) else (item,)
    return bool(each) and all(isinstance(extent, SupportsIndex) for extent in each)


def advise_keywords(launch: object, is_fixed: bool) -> str:
    """Suggest keywords for `launch`, the brackets of Triton and Numba: ``k[grid](x)``, ``k[1, 256](x)``.

    If the image of the kernel `is_fixed`, all of `launch` is the grid, as in Triton.
    """
    grid, *block = launch if isinstance(launch, tuple) and launch and not is_fixed else (launch,)
    extents = getattr(grid, "__name__", repr(grid)).replace("<lambda>", "lambda named: ...")
    keywords = f"grid={extents}" if is_fixed else f"grid={extents}, block={block[0] if block else '...'}"
    return f"give the launch as keywords of the call, {keywords}"


def takes_numbers(names: Sequence[str]) -> bool:
    """Return True if a number in brackets may be a template argument of the kernels `names`."""
    return not names or any(name.partition("<")[2].lstrip("-")[:1].isdigit() for name in names)


def is_launch(item: object, names: Sequence[str]) -> bool:
    """Return True if `item` can only be a launch of the kernels `names`: a grid, and perhaps a block."""
    first = item[0] if isinstance(item, tuple) and item else item
    if isinstance(first, tuple) or callable(first):
        return is_grid(first)
    return is_grid(item) and not takes_numbers(names)
