"""The types of other libraries that launches in C take: arrays, numbers, and structures.

All others, such as subclasses of tensors, are read carefully at each launch.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from contextlib import suppress
from itertools import takewhile
from typing import Any
from weakref import WeakSet

from cuda_ext.runtime.launch import _launch

__all__ = ["register"]

_examined: WeakSet[type] = WeakSet()
# The careful launcher asks for these before the exchange functions.
_PREFERRED = ("data_ptr", "__cuda_array_interface__")
# With one of these, a structure may stand for something else than its bytes.
_CONVERSIONS = {
    *("__index__", "__float__", "__complex__", "__buffer__", "__dlpack__", "ndim", "dtype"),
    *_PREFERRED,
}


def register(arguments: Iterable[object]) -> None:
    """Let launches in C take arguments of the types of these, where they are known."""
    for kind in map(type, arguments):
        meta = type(kind)
        # This runs after a launch, and must neither raise nor run code of a class of types.
        if meta.__hash__ is type.__hash__ and meta.__eq__ is type.__eq__ and kind not in _examined:
            _examined.add(kind)
            with suppress(Exception):
                _register(kind)


def _register(kind: type) -> None:
    tensor, cupy_array = _loaded("torch", "Tensor"), _loaded("cupy", "ndarray")
    capsule = getattr(kind, "__dlpack_c_exchange_api__", None)
    if tensor is not None and issubclass(kind, tensor):
        if kind is tensor or kind is _loaded("torch", "nn.Parameter"):  # other subclasses may be anything
            _register_tensor(tensor, kind, capsule)
    elif capsule is not None and not any(hasattr(kind, name) for name in _PREFERRED):
        _launch.register_exchange(kind, capsule, None)
    elif kind is cupy_array:
        dtype = sys.modules["cupy"].dtype
        dtypes = {name: dtype(name) for name in _launch.DTYPES if name != "bfloat16"}
        _launch.register_cupy(kind, sys.modules["cupy"].cuda.get_current_stream, dtypes)
    elif _is_numpy_scalar(kind) or _is_plain_structure(kind):
        _launch.register_value(kind)


def _register_tensor(tensor: Any, kind: type, capsule: object) -> None:
    torch: Any = sys.modules["torch"]
    if capsule is None or not _launch.register_exchange(kind, capsule, tensor.is_neg):
        dtypes = {name: getattr(torch, name) for name in _launch.DTYPES if hasattr(torch, name)}
        stream = torch._C._cuda_getCurrentRawStream
        _launch.register_torch(kind, tensor.is_neg, tensor.data_ptr, tensor.get_device, stream, dtypes)


def _is_numpy_scalar(kind: type) -> bool:
    """Whether `kind` is a number or record type of numpy itself; others may convert themselves in any way."""
    bases = [_loaded("numpy", name) for name in ("integer", "floating", "void")]
    return any(base in kind.__mro__ for base in bases) and _loaded("numpy", kind.__name__) is kind


def _is_plain_structure(kind: type) -> bool:
    """Whether `kind` is a type of ctypes whose values are their bytes and nothing else."""
    bases = [_loaded("ctypes", name) for name in ("Structure", "Union", "Array")]
    own = list(takewhile(lambda each: each not in bases, kind.__mro__))
    return len(own) < len(kind.__mro__) and all(_CONVERSIONS.isdisjoint(vars(each)) for each in own)


def _loaded(library: str, names: str) -> Any:
    """An attribute of `library`; ``None`` if that is not loaded, or another thread is still importing it."""
    value: Any = sys.modules.get(library)
    for name in names.split("."):
        value = getattr(value, name, None)
    return value
