"""What images fix of launches: configuration, parameters that are no arguments, and kinds of types."""

# Annotations are evaluated here: named tuples of texts are slower to create, and to derive readers from.

import math
from collections.abc import Set
from typing import Annotated, NamedTuple

from cuda_ext import records

__all__ = ["LARGEST_PARAMETERS", "FixedLaunch", "HiddenParameter", "is_array_size", "is_kind"]

LARGEST_PARAMETERS = 32_764  # the most bytes that CUDA passes to a kernel
_ADDRESS = 8
# The kinds and sizes of types that are the same on every system.
_FUNDAMENTAL = {
    "bool": ("bool", 1),
    "signed char": ("integer", 1),
    "unsigned char": ("unsigned", 1),
    "short": ("integer", 2),
    "unsigned short": ("unsigned", 2),
    "int": ("integer", 4),
    "unsigned int": ("unsigned", 4),
    "long long": ("integer", 8),
    "unsigned long long": ("unsigned", 8),
    "float": ("float", 4),
    "double": ("float", 8),
}


def is_kind(type_: str, kind: str, size: int) -> bool:
    """Whether parameters of a type have this kind, as far as it says. Pointers to members are structures."""
    if type_ in _FUNDAMENTAL:
        return _FUNDAMENTAL[type_] == (kind, size)
    if kind == "pointer":
        return "*" in type_ or "&" in type_
    return not type_.endswith("*") or type_.endswith("::*")


def is_array_size(type_: str, size: int) -> bool:
    """Whether variables of a type have this size, if it is an array of a fundamental type."""
    element, *counts = type_.removeprefix("const ").replace("]", "").split("[")
    if element not in _FUNDAMENTAL or not all(len(n) < 16 and n.isascii() and n.isdigit() for n in counts):
        return True
    return not counts or math.prod(map(int, counts)) * _FUNDAMENTAL[element][1] == size


class HiddenParameter(NamedTuple):
    """A parameter that is no argument of a call, since a launch derives its value.

    ``position`` is that among all parameters of the kernel, ``size`` is in bytes. ``source`` is ``zero``, or
    ``scratch`` for the address of the memory of :class:`FixedLaunch`, or ``x.shape[0]`` or ``x.stride[0]``
    of the array argument ``x``; a stride counts elements.
    """

    position: Annotated[int, range(LARGEST_PARAMETERS)]
    size: Annotated[int, range(1, LARGEST_PARAMETERS + 1)]
    source: records.Text

    def is_derivable(self, pointers: Set[str]) -> bool:
        """Whether a launch can derive the value, from arguments with the names `pointers`."""
        if self.source in ("zero", "scratch"):
            return self.source == "zero" or self.size == _ADDRESS
        name, _, extent = self.source.partition(".")
        what, _, axis = extent.partition("[")
        is_axis = len(axis) <= 3 and axis[:-1].isascii() and axis[:-1].isdecimal() and axis[-1] == "]"
        return name in pointers and what in ("shape", "stride") and is_axis


class FixedLaunch(NamedTuple):
    """The launch configuration that a kernel was compiled for, which leaves only the grid to a call.

    ``shared`` is the dynamic shared memory of a block, and ``scratch`` the global memory that a launch
    allocates for each block, in bytes. The grid of a call counts clusters if ``cluster`` is not empty.
    """

    block: Annotated[tuple[records.Extent, ...], lambda extents: 1 <= len(extents) <= 3]
    shared: Annotated[int, range(1 << 31)] = 0
    cluster: Annotated[tuple[records.Extent, ...], lambda extents: len(extents) <= 3] = ()
    cooperative: bool = False
    dependent: bool = False
    scratch: records.Size = 0
