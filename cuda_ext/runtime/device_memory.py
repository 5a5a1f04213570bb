"""Objects of other libraries that stand for memory of the GPU."""

from __future__ import annotations

import math
import operator
from dataclasses import dataclass
from typing import Any, Protocol

from cuda_ext.errors import ArgumentError
from cuda_ext.runtime.elements import dtype_of_typestr

__all__ = ["DeviceMemory", "HasCudaArrayInterface", "HasDataPtr", "contiguous_size", "device_memory"]


class HasDataPtr(Protocol):
    """A tensor as PyTorch's: ``data_ptr()``, and perhaps ``dtype`` and ``is_cuda``."""

    def data_ptr(self) -> int: ...


class HasCudaArrayInterface(Protocol):
    """An array as CuPy's or Numba's."""

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]: ...


@dataclass(frozen=True, slots=True)
class DeviceMemory:
    """An address in device memory with what is known of it; ``dtype`` is empty where nothing is."""

    address: int
    dtype: str
    read_only: bool


def device_memory(value: object) -> DeviceMemory | None:
    """The device memory that `value` stands for, or ``None`` if it is nothing of that sort.

    Raises :class:`ArgumentError` for a tensor that lies elsewhere.
    """
    data_ptr = getattr(value, "data_ptr", None)
    if callable(data_ptr):
        if not getattr(value, "is_cuda", True):
            raise ArgumentError(
                f"expected device memory, found a tensor on {getattr(value, 'device', 'the host')}"
            )
        return DeviceMemory(data_ptr(), str(getattr(value, "dtype", "")).rpartition(".")[2], read_only=False)
    interface = getattr(value, "__cuda_array_interface__", None)
    if interface is None:
        return None
    try:
        address, read_only = interface["data"]
        # The address of an empty array may be anything.
        return DeviceMemory(operator.index(address or 0), dtype_of_typestr(interface["typestr"]), read_only)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise ArgumentError(
            f"expected a __cuda_array_interface__ with data and typestr ({error!r})"
        ) from None


def contiguous_size(value: HasCudaArrayInterface) -> int:
    """The bytes of an array in device memory. Raises :class:`ArgumentError` if there are gaps in it."""
    interface = value.__cuda_array_interface__
    item = int(interface["typestr"][2:])
    expected = item
    for extent, stride in zip(
        reversed(interface["shape"]), reversed(interface.get("strides") or ()), strict=False
    ):
        if extent > 1 and stride != expected:
            raise ArgumentError("expected a contiguous array, found one with gaps")
        expected *= extent
    return item * math.prod(int(extent) for extent in interface["shape"])
