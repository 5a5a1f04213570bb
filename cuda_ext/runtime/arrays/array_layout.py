"""The memory layout of device arrays: shape, strides, contiguity. Copies and debug mode use it."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Any

from cuda_ext.errors import ArgumentError
from cuda_ext.runtime.arrays import dlpack

__all__ = ["ArrayLayout", "array_layout"]


@dataclass(frozen=True, slots=True)
class ArrayLayout:
    """A layout; ``strides`` and ``item``, the size of an element, are in bytes."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    item: int

    @property
    def size(self) -> int:
        """The size of all elements in bytes."""
        return self.item * math.prod(self.shape)

    @property
    def contiguous(self) -> bool:
        """Whether the elements are contiguous in C order."""
        return self.size == 0 or all(
            extent == 1 or stride == expected
            for extent, stride, expected in zip(
                self.shape, self.strides, _c_order(self.shape, self.item), strict=True
            )
        )


def array_layout(value: Any) -> ArrayLayout | None:
    """The layout of an array in device memory, or ``None`` for an address.

    Raises :class:`ArgumentError` for arrays that do not provide it.
    """
    if callable(getattr(value, "data_ptr", None)):
        return _tensor_layout(value)
    interface = getattr(value, "__cuda_array_interface__", None)
    if interface is not None:
        return _interface_layout(interface)
    if hasattr(type(value), "is_device_accessible") and hasattr(type(value), "handle"):
        return ArrayLayout((int(value.size),), (1,), 1)
    if hasattr(value, "__dlpack_device__"):
        shape, strides, item = dlpack.read_strides(value)
        return _layout_in_items(shape, strides, item)
    return None


def _tensor_layout(tensor: Any) -> ArrayLayout:
    try:
        return _layout_in_items(tuple(tensor.shape), tuple(tensor.stride()), int(tensor.element_size()))
    except (AttributeError, TypeError) as error:
        raise ArgumentError(f"expected a tensor with shape, stride and element_size ({error})") from None


def _interface_layout(interface: Any) -> ArrayLayout:
    try:
        shape = tuple(map(int, interface["shape"]))
        item = int(re.findall(r"\d+", interface["typestr"])[0])
        strides = interface.get("strides")
        return ArrayLayout(shape, _c_order(shape, item) if strides is None else tuple(strides), item)
    except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
        raise ArgumentError(
            f"expected a __cuda_array_interface__ with shape and typestr ({error!r})"
        ) from None


def _layout_in_items(shape: tuple[int, ...], strides: tuple[int, ...] | None, item: int) -> ArrayLayout:
    if strides is None:
        return ArrayLayout(shape, _c_order(shape, item), item)
    return ArrayLayout(shape, tuple(stride * item for stride in strides), item)


def _c_order(shape: tuple[int, ...], item: int) -> tuple[int, ...]:
    return tuple(item * math.prod(shape[axis:]) for axis in range(1, len(shape) + 1))
