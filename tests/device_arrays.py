"""Arrays as libraries that are not installed here have them; their memory is numpy's, or only an address.

Under the fake driver device memory is host memory, so that what is copied there can be looked at.
"""

from __future__ import annotations

import ctypes
import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np

__all__ = [
    "Array",
    "Buffer",
    "CupyArray",
    "Exchanged",
    "Lent",
    "Tensor",
    "TensorInfo",
    "exchange_capsule",
    "exchange_table",
    "import_cupy",
    "import_torch",
]


class Array:
    """As CuPy's and Numba's: what `array` is, but in device memory; `more` overrides that."""

    def __init__(self, array: np.ndarray[Any, Any], read_only: bool = False, **more: Any) -> None:
        interface = dict(array.__array_interface__)
        interface["data"] = (interface["data"][0], read_only)
        self.__cuda_array_interface__ = {**interface, **more}
        self.array = array


class Tensor:
    """As PyTorch's."""

    def __init__(
        self, array: np.ndarray[Any, Any], device: int = 0, dtype: str = "", address: int | None = None
    ) -> None:
        self.array = array
        # Dtypes are singletons.
        self.dtype = sys.intern(f"torch.{dtype or array.dtype.name}")
        self.is_cuda = device >= 0
        self.device = f"cuda:{device}" if self.is_cuda else "cpu"
        self.shape = array.shape
        self.negated = False
        self._ordinal = device
        self._address = array.ctypes.data if address is None else address

    def data_ptr(self) -> int:
        return self._address

    def numel(self) -> int:
        return self.array.size

    def stride(self) -> tuple[int, ...]:
        return tuple(stride // self.array.itemsize for stride in self.array.strides)

    def element_size(self) -> int:
        return self.array.itemsize

    def get_device(self) -> int:
        return self._ordinal

    def is_conj(self) -> bool:
        return False

    def is_neg(self) -> bool:
        return self.negated

    def __index__(self) -> int:
        raise AssertionError("would wait for the GPU")

    __float__ = __index__


class CupyArray(Array):
    """As CuPy's, which is known by its class."""

    def __init__(self, array: np.ndarray[Any, Any], device: int = 0, **more: Any) -> None:
        super().__init__(array, **more)
        self.dtype = array.dtype
        self.data = SimpleNamespace(ptr=self.__cuda_array_interface__["data"][0], device_id=device)


def import_torch() -> None:
    """Have a PyTorch imported whose tensors are those above, and whose current stream is the default one."""
    torch: Any = ModuleType("torch")
    torch.Tensor = Tensor
    torch._C = SimpleNamespace(_cuda_getCurrentRawStream=lambda device: 0)
    integers = [f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)]
    for name in (*integers, "bool", "float16", "bfloat16", "float32", "float64", "complex64", "complex128"):
        setattr(torch, name, sys.intern(f"torch.{name}"))
    sys.modules["torch"] = torch


def import_cupy() -> None:
    """As :func:`import_torch`, with CuPy."""
    cupy: Any = ModuleType("cupy")
    cupy.ndarray, cupy.dtype = CupyArray, np.dtype
    cupy.cuda = SimpleNamespace(get_current_stream=lambda device: SimpleNamespace(ptr=0))
    sys.modules["cupy"] = cupy


class Buffer:
    """As cuda.core's; one of no array has been closed."""

    device_id = 0

    def __init__(self, array: np.ndarray[Any, Any] | None, on_the_host: bool = False) -> None:
        self._array = array
        self._on_the_host = on_the_host

    @property
    def handle(self) -> int:
        return 0 if self._array is None else self._array.ctypes.data

    @property
    def size(self) -> int:
        return 0 if self._array is None else self._array.nbytes

    @property
    def is_device_accessible(self) -> bool:
        if self._array is None:
            raise RuntimeError("Cannot get an attribute of a closed buffer")
        return not self._on_the_host


class TensorInfo(ctypes.Structure):
    """``DLTensor``."""

    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    )


class _Managed(ctypes.Structure):
    _fields_ = (("tensor", TensorInfo), ("context", ctypes.c_void_p), ("deleter", ctypes.c_void_p))


class _Versioned(ctypes.Structure):
    _fields_ = (
        ("version", ctypes.c_uint32 * 2),
        ("context", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
        ("flags", ctypes.c_uint64),
        ("tensor", TensorInfo),
    )


_CODES = {"i": 0, "u": 1, "f": 2, "c": 5, "b": 6}
_FREE = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
_new_capsule = ctypes.pythonapi.PyCapsule_New
_new_capsule.restype, _new_capsule.argtypes = ctypes.py_object, (ctypes.c_void_p, ctypes.c_char_p, _FREE)


def _info(array: np.ndarray[Any, Any], kind: int, device: int, more: dict[str, Any]) -> TensorInfo:
    shape = (ctypes.c_int64 * array.ndim)(*array.shape)
    strides = (ctypes.c_int64 * array.ndim)(*(stride // array.itemsize for stride in array.strides))
    info = TensorInfo(array.ctypes.data, kind, device, array.ndim, _CODES[array.dtype.kind])
    info.bits, info.lanes, info.shape, info.strides = 8 * array.itemsize, 1, shape, strides
    for name, value in more.items():
        setattr(info, name, value)
    return info


class Lent:
    """An array that is lent through ``__dlpack__``; `more` overrides fields of its ``DLTensor``.

    ``requests`` are the keywords that it was asked with, ``freed`` counts the capsules that are gone.
    """

    def __init__(
        self,
        array: np.ndarray[Any, Any],
        kind: int = 2,
        device: int = 0,
        versioned: bool = True,
        flags: int = 0,
        **more: Any,
    ) -> None:
        self.array = array
        self.requests: list[dict[str, Any]] = []
        self.freed = 0
        self._device = kind, device
        self._flags = flags if versioned else None
        self._info = _info(array, kind, device, more)
        self._free = _FREE(self._count)

    def _count(self, capsule: int) -> None:
        self.freed += 1

    def __dlpack_device__(self) -> tuple[int, int]:
        return self._device

    def __dlpack__(self, **keywords: Any) -> object:
        self.requests.append(keywords)
        if self._flags is None:
            if "max_version" in keywords:
                raise TypeError("__dlpack__() got an unexpected keyword argument 'max_version'")
            self._managed: Any = _Managed(self._info)
            return _new_capsule(ctypes.addressof(self._managed), b"dltensor", self._free)
        self._managed = _Versioned((1, 0), None, None, self._flags, self._info)
        return _new_capsule(ctypes.addressof(self._managed), b"dltensor_versioned", self._free)


_Lend = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.POINTER(TensorInfo))
_Stream = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_int32, ctypes.c_int32, ctypes.POINTER(ctypes.c_void_p))


class _Table(ctypes.Structure):
    _fields_ = (
        ("version", ctypes.c_uint32 * 2),
        ("previous", ctypes.c_void_p),
        ("allocate", ctypes.c_void_p),
        ("managed_from_object", ctypes.c_void_p),
        ("managed_to_object", ctypes.c_void_p),
        ("tensor_from_object", ctypes.c_void_p),
        ("current_stream", ctypes.c_void_p),
    )


class Exchanged(Lent):
    """An array that is lent through the table that its class shows, whose stream is 7 on the first GPU."""

    __dlpack_c_exchange_api__: object


def _lend(array: Exchanged, info: Any) -> int:
    ctypes.memmove(info, ctypes.byref(array._info), ctypes.sizeof(TensorInfo))
    return 0


def _current_stream(kind: int, device: int, stream: Any) -> int:
    stream[0] = 7 + 1000 * device
    return 0


_functions = _Lend(_lend), _Stream(_current_stream)
_tables: list[_Table] = []


def exchange_table(
    major: int = 1, previous: int | None = None, lend: Any = _functions[0], stream: Any = _functions[1]
) -> int:
    """The address of a table; it is never freed, as DLPack wants."""
    table = _Table((major, 3), previous)
    table.tensor_from_object = ctypes.cast(lend, ctypes.c_void_p) if lend else None
    table.current_stream = ctypes.cast(stream, ctypes.c_void_p) if stream else None
    _tables.append(table)
    return ctypes.addressof(table)


def exchange_capsule(table: int) -> object:
    return _new_capsule(table, b"dlpack_exchange_api", _FREE())


Exchanged.__dlpack_c_exchange_api__ = exchange_capsule(exchange_table())
