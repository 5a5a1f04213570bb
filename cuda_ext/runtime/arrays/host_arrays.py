"""Arrays of numpy as arguments: which way each is copied, and which cannot be.

numpy is not imported here: where it is not loaded, nothing is of its types.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Any, Protocol

from cuda_ext.errors import ArgumentError
from cuda_ext.manifest import Parameter
from cuda_ext.runtime.arrays.dtypes import check_dtype, dtype_of_typestr

__all__ = ["HasArrayInterface", "HostArray", "Out", "host_array", "is_host_array", "out", "span"]


class HasArrayInterface(Protocol):
    """What a numpy array is to type checkers."""

    @property
    def __array_interface__(self) -> dict[str, Any]: ...


@dataclass(frozen=True, slots=True, eq=False)
class Out:
    """An array that a kernel only fills, as :func:`out` marks it."""

    array: Any

    @property
    def dtype(self) -> Any:
        return self.array.dtype


def out(array: HasArrayInterface) -> Out:
    """Mark a numpy array that a kernel fills, as its argument: it is copied from the GPU only, and not to it.

    What the kernel leaves out is undefined afterwards. Raises :class:`ArgumentError` for anything else.
    """
    if not is_host_array(array):
        raise ArgumentError(f"out: expected a numpy array, found {type(array).__qualname__}")
    return Out(array)


@dataclass(frozen=True, slots=True, eq=False)
class HostArray:
    """The memory from `start` to `stop` of a numpy array, which a kernel reads, writes, or both.

    It is there as long as `owner`. Where the array has gaps, this is a copy without them, and `gaps_in` is
    where its elements lie. `parameter` is the name of the parameter that it is for.
    """

    start: int
    stop: int
    reads: bool
    writes: bool
    owner: Any
    parameter: str
    gaps_in: tuple[int, int] | None = None


def is_host_array(value: object) -> bool:
    numpy = sys.modules.get("numpy")
    return numpy is not None and isinstance(value, numpy.ndarray)


def host_array(parameter: Parameter, argument: object) -> HostArray | None:
    """The memory of `argument`, if that is a numpy array for a pointer.

    Raises :class:`ArgumentError`, which names the argument, if it cannot be moved.
    """
    only_out = isinstance(argument, Out)
    array: Any = argument.array if isinstance(argument, Out) else argument
    if parameter.kind != "pointer" or not is_host_array(array):
        return None
    try:
        _check(parameter, array, only_out)
    except ArgumentError as error:
        raise ArgumentError(f"argument {parameter.name!r}: {error}") from None
    writes = not parameter.const
    if array.flags.c_contiguous:
        return HostArray(*span(array), not only_out, writes, array, parameter.name)
    packed = sys.modules["numpy"].ascontiguousarray(array)
    return HostArray(*span(packed), True, writes, packed, parameter.name, span(array))


def span(array: Any) -> tuple[int, int]:
    """Where the elements of a numpy array lie: the first address, and the one after the last."""
    low = array.__array_interface__["data"][0]
    if not array.size:
        return low, low
    steps = [(extent - 1) * stride for extent, stride in zip(array.shape, array.strides, strict=True)]
    below = sum(step for step in steps if step < 0)
    return low + below, low + sum(steps) - below + array.itemsize


def _check(parameter: Parameter, array: Any, only_out: bool) -> None:
    if array.dtype.hasobject:
        raise ArgumentError("expected numbers, found an array of Python objects")
    if not array.dtype.isnative:
        raise ArgumentError(f"expected this machine's byte order, found {array.dtype.str}")
    check_dtype(dtype_of_typestr(array.dtype.str), parameter.element)
    if parameter.const:
        if only_out:
            raise ArgumentError(f"expected an array to read ({parameter.type}), found cuda_ext.out")
        return
    if not array.flags.writeable:
        raise ArgumentError(f"expected writable memory ({parameter.type}), found a read-only array")
    if not array.flags.c_contiguous:
        # A kernel counts elements in memory, and would write others than the array's own.
        raise ArgumentError(
            f"expected a contiguous array in C order to write to ({parameter.type}), found one with gaps or "
            "in another order"
        )
