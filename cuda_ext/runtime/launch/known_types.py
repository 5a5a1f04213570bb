"""The types of other libraries that launches in C take: arrays, numbers, and structures.

All others, such as subclasses of tensors, are read carefully at each launch.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
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
    tensor, cupy_array = _loaded("torch", "Tensor"), _loaded("cupy", "ndarray")
    try:
        capsule = getattr(kind, "__dlpack_c_exchange_api__", None)
    except Exception:  # the class of the type may do anything
        return
    if tensor is not None and issubclass(kind, tensor):
        if kind is tensor or kind is _loaded("torch", "nn.Parameter"):  # other subclasses may be anything
            _register_tensor(tensor, kind, capsule)
    elif capsule is not None:
        _launch.register_exchange(kind, capsule, None)
    elif kind is cupy_array:
        dtype = sys.modules["cupy"].dtype
        dtypes = {name: dtype(name) for name in _launch.DTYPES if name != "bfloat16"}
        _launch.register_cupy(kind, sys.modules["cupy"].cuda.get_current_stream, dtypes)
    elif any(base in kind.__mro__ for base in _value_types()):
        _launch.register_value(kind)


def _register_tensor(tensor: Any, kind: type, capsule: object) -> None:
    torch: Any = sys.modules["torch"]
    if capsule is None or not _launch.register_exchange(kind, capsule, tensor.is_neg):
        dtypes = {name: getattr(torch, name) for name in _launch.DTYPES if hasattr(torch, name)}
        stream = torch._C._cuda_getCurrentRawStream
        _launch.register_torch(kind, tensor.is_neg, tensor.data_ptr, tensor.get_device, stream, dtypes)


def _value_types() -> Iterator[type]:
    """The types of numbers and structures that C converts."""
    for name in ("integer", "floating", "void"):
        yield _loaded("numpy", name)
    for name in ("Structure", "Union", "Array"):
        yield _loaded("ctypes", name)


def _loaded(library: str, names: str) -> Any:
    """An attribute of `library`; ``None`` if that is not loaded, or another thread is still importing it."""
    value: Any = sys.modules.get(library)
    for name in names.split("."):
        value = getattr(value, name, None)
    return value
