"""``CUtensorMap``, a tensor map of the tensor memory accelerator that a kernel takes by value.

The caller passes one, or the launch makes one of an array if the image fixes its format.
"""

from __future__ import annotations

import ctypes
import struct
import sys
from typing import TYPE_CHECKING, Any

from cuda_ext.errors import ArgumentError, DriverCallError
from cuda_ext.runtime.arrays.device_memory import array_layout
from cuda_ext.runtime.driver import cuda_h

if TYPE_CHECKING:
    from cuda_ext.facts.launches import TensorMap
    from cuda_ext.runtime.driver.driver import Driver

# The structure in cuda.h, and its tag.
TENSOR_MAPS = ("CUtensorMap", "CUtensorMap_st")

_SIZE = 128
_ALIGNMENT = 64
# The alignment that the accelerator requires of addresses and strides, in bytes.
_DIVISOR = 16


def read_tensor_map(value: object) -> bytes | None:
    """Read the 128 bytes of a ``CUtensorMap`` of cuda-bindings or a ``TensorMapDescriptor`` of cuda.core.

    Return ``None`` for other values.
    """
    kind = type(value)
    if kind.__name__ == "CUtensorMap" and hasattr(value, "getPtr"):
        return ctypes.string_at(int(value.getPtr()), _SIZE)
    core = sys.modules.get("cuda.core._kernel_arg_handler")
    if kind.__name__ == "TensorMapDescriptor" and core is not None:
        # cuda.core exposes the tensor map only through the parameter holder of its own launches.
        holder = core.ParamHolder((value,))
        address = ctypes.c_void_p.from_address(int(holder.ptr)).value
        return ctypes.string_at(address, _SIZE) if address else None
    return None


def array_of(value: Any) -> Any:
    """Return the array that a ``TensorDescriptor`` of Triton describes; other values as they are."""
    if type(value).__name__ != "TensorDescriptor" or not hasattr(value, "block_shape"):
        return value
    base, shape, strides = value.base, [*value.shape], [*value.strides]
    is_whole = [*base.shape] == shape and [*base.stride()] == strides
    return base if is_whole else base.as_strided(shape, strides)


def encode_tensor_map(driver: Driver, format_: TensorMap, value: Any, address: int, where: str) -> bytes:
    """Make the tensor map of `value`, an array or a descriptor of one, whose elements begin at `address`.

    Raises :class:`ArgumentError` with `where` for an array that no tensor map can describe.
    """
    array = array_of(value)
    layout = array_layout(array)
    rank = len(format_.box)
    # Triton copies a block in several boxes if the swizzle requires it.
    blocks = format_.box if array is value else tuple(value.block_shape)
    if len(blocks) != rank or any(block % extent for block, extent in zip(blocks, format_.box, strict=True)):
        raise ArgumentError(f"was compiled for boxes of {format_.box}, found blocks of {blocks}", where=where)
    if layout is None or len(layout.shape) != rank:
        found = "an address" if layout is None else f"the shape {layout.shape}"
        raise ArgumentError(f"expected an array with {rank} axes, found {found}", where=where)
    *strides, last = layout.strides
    if last != layout.item or any(number % _DIVISOR for number in (address, *strides)):
        raise ArgumentError(
            f"expected contiguous elements on the last axis, and an address and other strides that are "
            f"multiples of {_DIVISOR} bytes, found {address:#x} and strides of {layout.strides} bytes",
            where=where,
            remedy="pass a contiguous copy, or pad its rows",
        )
    memory = ctypes.create_string_buffer(_SIZE + _ALIGNMENT)
    place = -(-ctypes.addressof(memory) // _ALIGNMENT) * _ALIGNMENT
    try:
        driver.call(
            "cuTensorMapEncodeTiled",
            place,
            format_.data_type,
            rank,
            address,
            struct.pack(f"<{rank}Q", *reversed(layout.shape)),
            struct.pack(f"<{rank}Q", *reversed(strides), 0),
            struct.pack(f"<{rank}I", *reversed(format_.box)),
            struct.pack(f"<{rank}I", *[1] * rank),
            cuda_h.CU_TENSOR_MAP_INTERLEAVE_NONE,
            format_.swizzle,
            cuda_h.CU_TENSOR_MAP_L2_PROMOTION_L2_128B,
            cuda_h.CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE,
        )
    except DriverCallError as error:
        raise ArgumentError(
            f"the driver makes no tensor map of the shape {layout.shape} with strides of {layout.strides} "
            f"bytes: {error}",
            where=where,
        ) from None
    return ctypes.string_at(place, _SIZE)
