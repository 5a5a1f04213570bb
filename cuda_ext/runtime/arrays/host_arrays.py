"""numpy arrays as arguments: check that they can be copied, and in which direction.

This module does not import numpy: if numpy is not loaded, no argument is a numpy array.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Any, Protocol

from cuda_ext.errors import ArgumentError
from cuda_ext.facts.kernels import Parameter
from cuda_ext.runtime.arrays.device_memory import ArrayLayout
from cuda_ext.runtime.arrays.dtypes import check_dtype, dtype_of_typestr


class HasArrayInterface(Protocol):
    """A numpy array, for type checkers."""

    @property
    def __array_interface__(self) -> dict[str, Any]: ...


@dataclass(frozen=True, slots=True, eq=False)
class Out:
    """An array that :func:`out` marks as output."""

    array: Any

    @property
    def dtype(self) -> Any:
        return self.array.dtype


def out(array: HasArrayInterface) -> Out:
    """Mark a numpy array as output: it is copied from the GPU after the launch, but not to it before.

    Elements that the kernel does not write are undefined afterwards. Raises :class:`ArgumentError` for
    objects that are not numpy arrays.
    """
    if not is_host_array(array):
        raise ArgumentError(f"expected a numpy array, found {type(array).__qualname__}", where="out")
    return Out(array)


@dataclass(frozen=True, slots=True, eq=False)
class HostArray:
    """The memory of a numpy array, at the addresses `place`, that a kernel reads, writes, or both.

    `owner` keeps it alive. If the array is not contiguous, `place` is a contiguous copy, and `strided` is the
    place of the array itself. `parameter` is the name of the parameter.
    """

    place: range
    reads: bool
    writes: bool
    owner: Any
    parameter: str
    strided: range | None = None


def is_host_array(value: object) -> bool:
    numpy = sys.modules.get("numpy")
    return numpy is not None and isinstance(value, numpy.ndarray)


def host_array(parameter: Parameter, argument: object) -> HostArray | None:
    """Return the memory of `argument`, or ``None`` unless it is a numpy array for a pointer.

    Raises :class:`ArgumentError` with the argument's name if the array cannot be copied.
    """
    only_out = isinstance(argument, Out)
    array: Any = argument.array if isinstance(argument, Out) else argument
    if parameter.kind != "pointer" or not is_host_array(array):
        return None
    try:
        _check(parameter, array, only_out)
    except ArgumentError as error:
        error.where = f"argument {parameter.name!r}"
        raise
    writes = not parameter.const
    if array.flags.c_contiguous:
        return HostArray(place_of(array), not only_out, writes, array, parameter.name)
    packed = sys.modules["numpy"].ascontiguousarray(array)
    return HostArray(place_of(packed), True, writes, packed, parameter.name, place_of(array))


def place_of(array: Any) -> range:
    """Return the addresses of a numpy array's elements."""
    first = array.__array_interface__["data"][0]
    reach = ArrayLayout(array.shape, array.strides, array.itemsize).reach
    return range(first + reach.start, first + reach.stop)


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
        # The kernel would write to the elements between those of the array.
        raise ArgumentError(
            f"expected a contiguous array in C order to write to ({parameter.type}), found one with gaps or "
            "in another order"
        )
