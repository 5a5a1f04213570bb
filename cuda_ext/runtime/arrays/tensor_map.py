"""``CUtensorMap``, a tensor map of the tensor memory accelerator that a kernel takes by value."""

from __future__ import annotations

import ctypes
import sys

__all__ = ["TENSOR_MAPS", "read_tensor_map"]

# The structure in cuda.h, and its tag.
TENSOR_MAPS = ("CUtensorMap", "CUtensorMap_st")

_SIZE = 128


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
