"""Describe the values that a launch passes: arrays of any library, numbers, tuples and structures."""

from __future__ import annotations

import numbers
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from cuda_ext.compiler.front_ends.instantiation import DIVISOR
from cuda_ext.compiler.front_ends.kernel_description import DTYPES
from cuda_ext.recording.records import Argument
from cuda_ext.runtime.arrays.device_memory import ArrayLayout, array_layout, device_memory
from cuda_ext.runtime.arrays.dtypes import dtype_of_typestr
from cuda_ext.runtime.arrays.host_arrays import Out, is_host_array
from cuda_ext.runtime.launch.python_arguments import plain_value

# PyTorch's names of dtypes, by those of Triton's own views, and of numpy where it has no name.
_TORCH = {each.triton: each.torch for each in DTYPES} | {"V2": "bfloat16"}


@dataclass(frozen=True)
class Array:
    """An array of any library, also in host memory, as a tensor of PyTorch in device memory.

    ``strides`` count elements. A tensor descriptor of Triton has a ``block_shape``.
    """

    dtype: str
    address: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    item: int
    block_shape: tuple[int, ...] = ()

    def data_ptr(self) -> int:
        return self.address

    def stride(self) -> tuple[int, ...]:
        return self.strides

    def element_size(self) -> int:
        return self.item


def read_arrays(value: Any) -> Any:
    """Replace arrays by :class:`Array`, also in tuples. Other values stay, also memory without a dtype."""
    if isinstance(value, tuple):
        return tuple(map(read_arrays, value))
    if isinstance(value, Out):
        value = value.array
    if hasattr(value, "block_shape") and hasattr(value, "base"):
        shape, strides, block = (tuple(map(int, x)) for x in (value.shape, value.strides, value.block_shape))
        return replace(read_arrays(value.base), shape=shape, strides=strides, block_shape=block)
    if callable(getattr(value, "data_ptr", None)):  # also in host memory
        dtype, address = str(value.dtype).rpartition(".")[2], value.data_ptr()
        layout = array_layout(value)
    elif is_host_array(value):
        dtype, address = dtype_of_typestr(value.dtype.str), DIVISOR  # that of a copy on the GPU is divisible
        layout = ArrayLayout(value.shape, value.strides, value.itemsize)
    elif (memory := device_memory(value)) and memory.dtype:
        dtype, address, layout = memory.dtype, memory.address, array_layout(value)
    else:
        return value
    if layout is None:
        return value
    strides = tuple(stride // layout.item for stride in layout.strides)
    return Array(_TORCH.get(dtype, dtype), address, tuple(layout.shape), strides, layout.item)


def describe_arguments(values: Mapping[str, Any]) -> Iterator[Argument]:
    """Describe the values of arguments, by name."""
    for name, given in values.items():
        value = given if isinstance(given, Array) else read_arrays(given)
        if isinstance(value, Array):
            is_divisible = value.address % DIVISOR == 0
            yield Argument(name, value.dtype, value.shape, value.strides, is_divisible)
        elif isinstance(value, tuple):
            yield from describe_arguments({f"{name}_{number}": item for number, item in enumerate(value)})
        elif hasattr(value, "__members__"):  # a structure
            yield from describe_arguments(
                {f"{name}.{each}": getattr(value, each) for each in value.__members__}
            )
        else:
            number, text = plain_value(value), ""
            if isinstance(number, numbers.Real):
                text = repr(number if isinstance(number, int) else float(number))
            yield Argument(name, str(getattr(value, "dtype", "")), value=text)
