"""``CUtensorMap``: how the tensor memory accelerator sees an array, by value."""

from __future__ import annotations

import ctypes
import sys

__all__ = ["TENSOR_MAPS", "tensor_map"]

# The structure in cuda.h, and its other name.
TENSOR_MAPS = ("CUtensorMap", "CUtensorMap_st")

_SIZE = 128


def tensor_map(value: object) -> bytes | None:
    """The 128 bytes of cuda.core's ``TensorMapDescriptor`` or cuda-bindings' ``CUtensorMap``, or ``None``."""
    kind = type(value)
    if kind.__name__ == "CUtensorMap" and hasattr(value, "getPtr"):
        return ctypes.string_at(int(value.getPtr()), _SIZE)
    core = sys.modules.get("cuda.core._kernel_arg_handler")
    if kind.__name__ == "TensorMapDescriptor" and core is not None:
        # cuda.core shows what it holds to its own launches only, as an array of pointers.
        holder = core.ParamHolder((value,))
        address = ctypes.c_void_p.from_address(int(holder.ptr)).value
        return ctypes.string_at(address, _SIZE) if address else None
    return None
