"""The types of other libraries that launches in C take: arrays, numbers, and structures.

All others, such as subclasses of tensors, are read carefully at each launch.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import Any
from weakref import WeakSet

from cuda_ext.runtime.launch import _launch

__all__ = ["register"]

_examined: WeakSet[type] = WeakSet()


def register(arguments: Iterable[object]) -> None:
    """Let launches in C take arguments of the types of these, where they are known."""
    for kind in map(type, arguments):
        if kind not in _examined:
            _examined.add(kind)
            _register(kind)


def _register(kind: type) -> None:
    torch, cupy = map(sys.modules.get, ("torch", "cupy"))
    capsule = getattr(kind, "__dlpack_c_exchange_api__", None)
    if torch is not None and issubclass(kind, torch.Tensor):
        _register_tensor(torch, kind, capsule)
    elif capsule is not None:
        _launch.register_exchange(kind, capsule, None)
    elif cupy is not None and kind is cupy.ndarray:
        dtypes = {name: cupy.dtype(name) for name in _launch.DTYPES if name != "bfloat16"}
        _launch.register_cupy(kind, cupy.cuda.get_current_stream, dtypes)
    elif issubclass(kind, _value_types()):
        _launch.register_value(kind)


def _value_types() -> tuple[type, ...]:
    """The types of numbers and structures that C converts."""
    names = {"numpy": ("integer", "floating", "void"), "ctypes": ("Structure", "Union", "Array")}
    return tuple(
        getattr(sys.modules[library], name)
        for library in sys.modules.keys() & names.keys()
        for name in names[library]
    )


def _register_tensor(torch: Any, kind: type, capsule: object) -> None:
    tensor = torch.Tensor
    if kind is not tensor and kind is not getattr(torch.nn, "Parameter", None):
        return  # other subclasses may be anything
    if capsule is None or not _launch.register_exchange(kind, capsule, tensor.is_neg):
        dtypes = {name: getattr(torch, name) for name in _launch.DTYPES if hasattr(torch, name)}
        stream = torch._C._cuda_getCurrentRawStream
        _launch.register_torch(kind, tensor.is_neg, tensor.data_ptr, tensor.get_device, stream, dtypes)
