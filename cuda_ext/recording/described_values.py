"""Describe the values that a launch passes: arrays of any library, numbers and tuples."""

from __future__ import annotations

import numbers
import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from cuda_ext.compiler.front_ends.instantiation import DIVISOR
from cuda_ext.compiler.front_ends.kernel_description import DTYPES
from cuda_ext.recording.records import Argument

_TORCH = {name: each for each in DTYPES for name in (each.torch, each.triton)}
_KINDS = {"b": "bool", "i": "int", "u": "uint", "f": "float", "c": "complex"}


class Array(NamedTuple):
    """An array: PyTorch's name of its dtype, its address, and its shape and strides in elements."""

    dtype: str
    address: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    item: int

    @property
    def is_divisible(self) -> bool:
        return self.address % DIVISOR == 0

    @property
    def has_divisible_strides(self) -> bool:
        """True if 16 divides its address, and in bytes each stride that is not 1, as cuTile asks."""
        steps = [stride * self.item for stride in self.strides if stride != 1]
        return not any(number % DIVISOR for number in (self.address, *steps))

    def describe(self, argument: Argument) -> Argument:
        """Return `argument` with the layout of this array."""
        return argument._replace(dtype=self.dtype, shape=self.shape, strides=self.strides)


def read_array(value: Any) -> Array | None:
    """Return the array that `value` is, in any memory; ``None`` if it is none, as numbers of numpy."""
    if isinstance(value, numbers.Number):
        return None
    if callable(getattr(value, "data_ptr", None)):
        dtype = str(value.dtype).removeprefix("torch.")
        dtype = _TORCH[dtype].torch if dtype in _TORCH else dtype
        owner = value if hasattr(value, "element_size") else value.base  # Triton's view with another dtype
        return Array(dtype, value.data_ptr(), (*value.shape,), (*value.stride(),), owner.element_size())
    value = getattr(value, "array", value)  # cuda_ext.out
    for name in ("__cuda_array_interface__", "__array_interface__"):
        if (interface := getattr(value, name, None)) is not None and interface.get("shape") is not None:
            return _read_interface(interface, getattr(value, "dtype", ""), name.startswith("__cuda"))
    return None


def _read_interface(interface: Mapping[str, Any], dtype: object, on_device: bool) -> Array:
    kind, bits = re.findall(r"[a-z]|\d+", interface["typestr"])[:2]
    item = int(bits)
    shape = (*map(int, interface["shape"]),)
    strides, step = [], item
    for extent in reversed(shape):
        strides.append(step)
        step *= extent
    strides = interface.get("strides") or strides[::-1]
    name = _KINDS[kind] + (str(8 * item) if kind != "b" else "") if kind in _KINDS else str(dtype)
    address = interface["data"][0] or 0 if on_device else 0  # that of a copy on the GPU is divisible
    return Array(name, address, shape, tuple(stride // item for stride in strides), item)


def number_of(value: Any) -> int | float | bool | None:
    """Return the number of Python that `value` is, also as one of numpy."""
    if isinstance(value, numbers.Number) or type(value).__name__ in ("bool_", "bool"):
        value = getattr(value, "item", lambda: value)()
    if isinstance(value, int) and not isinstance(value, bool):
        return int(value)  # not a member of an enumeration
    return value if isinstance(value, bool | float) else None


def describe_number(argument: Argument, value: Any, names: Mapping[str, str]) -> Argument:
    """Return `argument` with the number `value`; its type, if it has none, is that of :func:`type_of_number`.

    Raises :class:`TypeError` for another value.
    """
    number = number_of(value)
    if number is None:
        raise TypeError(f"argument {argument.name!r} is a {type(value).__name__}")
    typed = argument._replace(type=argument.type or type_of_number(number, names))
    return with_number(typed, number)


def with_number(argument: Argument, number: float) -> Argument:
    """Return `argument` with this number, and whether 16 divides it."""
    is_divisible = type(number) is int and number % DIVISOR == 0
    return argument._replace(value=repr(number), divisible=is_divisible)


def flatten(value: Any, path: tuple[int, ...] = ()) -> Iterator[tuple[tuple[int, ...], Any]]:
    """Yield the items of nested tuples with their positions; any other value is its own only item."""
    if isinstance(value, tuple):
        for number, item in enumerate(value):
            yield from flatten(item, (*path, number))
    else:
        yield path, value


def type_of_number(value: float, names: Mapping[str, str]) -> str:
    """Return the type of a number as the front-ends infer it; `names` are theirs of PyTorch's dtypes."""
    if isinstance(value, bool):
        return names["bool"]
    if isinstance(value, float):
        return names["float32"]
    if -(1 << 31) <= value < 1 << 31:
        return names["int32"]
    return names["int64" if value < 1 << 63 else "uint64"]
