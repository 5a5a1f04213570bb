"""DLPack, the exchange format of array libraries: read-only views of device arrays.

See https://dmlc.github.io/dlpack/latest. A ``DLTensor`` comes from ``__dlpack__``, or faster from the table
of C functions in ``__dlpack_c_exchange_api__``.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from contextlib import suppress
from ctypes import POINTER, c_char_p, c_int, c_int32, c_int64, c_uint8, c_uint16, c_uint32, c_uint64, c_void_p
from typing import Any, NamedTuple

from cuda_ext.errors import ArgumentError
from cuda_ext.runtime.driver.driver import open_driver

CPU, _CUDA, _CUDA_HOST, _CUDA_MANAGED = 1, 2, 3, 13
_READ_ONLY, _COPIED = 1, 2
_KINDS = {0: "int", 1: "uint", 2: "float", 4: "bfloat", 5: "complex", 6: "bool"}


class _Device(ctypes.Structure):
    _fields_ = (("type", c_int32), ("id", c_int32))


class _Tensor(ctypes.Structure):
    _fields_ = (
        ("data", c_void_p),
        ("device", _Device),
        ("ndim", c_int32),
        ("code", c_uint8),
        ("bits", c_uint8),
        ("lanes", c_uint16),
        ("shape", POINTER(c_int64)),
        ("strides", POINTER(c_int64)),
        ("byte_offset", c_uint64),
    )


class _Versioned(ctypes.Structure):
    _fields_ = (
        ("major", c_uint32),
        ("minor", c_uint32),
        ("manager_context", c_void_p),
        ("deleter", c_void_p),
        ("flags", c_uint64),
        ("tensor", _Tensor),
    )


class _Exchange(ctypes.Structure):
    _fields_ = (
        ("major", c_uint32),
        ("minor", c_uint32),
        ("previous", c_void_p),
        ("allocate", c_void_p),
        ("managed_from_object", c_void_p),
        ("managed_to_object", c_void_p),
        ("tensor_from_object", c_void_p),
        ("current_stream", c_void_p),
    )


_TENSOR_FROM_OBJECT = ctypes.PYFUNCTYPE(c_int, ctypes.py_object, POINTER(_Tensor))
_CURRENT_STREAM = ctypes.PYFUNCTYPE(c_int, c_int32, c_int32, POINTER(c_void_p))

# Function objects of our own: all users of ctypes.pythonapi share the prototypes of its functions.
_capsule_name = ctypes.PYFUNCTYPE(c_char_p, ctypes.py_object)(("PyCapsule_GetName", ctypes.pythonapi))
_capsule_pointer = ctypes.PYFUNCTYPE(c_void_p, ctypes.py_object, c_char_p)(
    ("PyCapsule_GetPointer", ctypes.pythonapi)
)


class Borrowed(NamedTuple):
    """A tensor of another library, whose current stream on a device is ``stream(device)``.

    ``owner`` keeps the tensor valid.
    """

    tensor: _Tensor
    read_only: bool
    stream: Callable[[int], int]
    owner: object = None

    @property
    def dtype(self) -> str:
        name = _KINDS.get(self.tensor.code, f"DLPack type {self.tensor.code} of ")
        return name if name == "bool" else f"{name}{self.tensor.bits}"


def borrow(value: Any) -> Borrowed:
    """Borrow the tensor of `value`. Raises :class:`ArgumentError` for memory that a kernel cannot access."""
    if table := _exchange_table(type(value)):
        return _borrow_through(value, table)
    kind, device = device_of(value)
    _check_reachable(kind)
    try:
        owner = _export(value)
    except Exception as error:  # whatever the library raises
        try:
            # PyTorch exports only arrays on the current GPU.
            with open_driver().device(device).current():
                owner = _export(value)
        except Exception:
            raise _cannot_lend(error) from None
    try:
        name = _capsule_name(owner)
        pointer = _capsule_pointer(owner, name)
    except ValueError:
        raise _cannot_lend(f"__dlpack__ returned {owner!r}, which is not a capsule") from None
    if name not in (b"dltensor", b"dltensor_versioned"):
        raise _cannot_lend(f"__dlpack__ returned a capsule called {name!r}")
    if name == b"dltensor_versioned":
        versioned = _Versioned.from_address(pointer)
        if versioned.flags & _COPIED:
            raise ArgumentError("expected an array that DLPack can lend, found one that gives a copy")
        return Borrowed(versioned.tensor, bool(versioned.flags & _READ_ONLY), lambda _: 0, owner)
    return Borrowed(_Tensor.from_address(pointer), False, lambda _: 0, owner)


def device_of(value: Any) -> tuple[int, int]:
    """Return DLPack's type and number of the device of `value`. Raises :class:`ArgumentError`."""
    try:
        kind, device = map(int, value.__dlpack_device__())
    except Exception as error:  # whatever the library raises
        raise _cannot_lend(f"__dlpack_device__: {error!r}") from None
    return kind, device


def _cannot_lend(reason: object) -> ArgumentError:
    return ArgumentError(f"expected an array that DLPack can lend: {reason}")


def _export(value: Any) -> object:
    # DLPack does not allow stream 0; 1 is the legacy default stream, in which the kernel is launched.
    for options in ({"max_version": (1, 0), "copy": False}, {"max_version": (1, 0)}):
        with suppress(TypeError):  # raised by libraries with an older version of DLPack
            return value.__dlpack__(stream=1, **options)
    return value.__dlpack__(stream=1)


def _exchange_table(kind: type) -> _Exchange | None:
    """Return the exchange table of `kind` in DLPack version 1, or ``None``."""
    capsule = getattr(kind, "__dlpack_c_exchange_api__", None)
    if capsule is None or _capsule_name(capsule) != b"dlpack_exchange_api":
        return None
    address = _capsule_pointer(capsule, b"dlpack_exchange_api")
    while address:
        table = _Exchange.from_address(address)
        if table.major == 1:
            return table if table.tensor_from_object and table.current_stream else None
        address = table.previous
    return None


def _borrow_through(value: Any, table: _Exchange) -> Borrowed:
    tensor = _Tensor()
    try:
        status = _TENSOR_FROM_OBJECT(table.tensor_from_object)(value, ctypes.byref(tensor))
    except Exception as error:
        raise _cannot_lend(error) from None
    if status != 0:
        raise ArgumentError("expected an array that DLPack can lend, found one that its library refuses")
    _check_reachable(tensor.device.type)

    def stream(device: int) -> int:
        handle = c_void_p()
        _CURRENT_STREAM(table.current_stream)(tensor.device.type, device, ctypes.byref(handle))
        return handle.value or 0

    return Borrowed(tensor, False, stream)


def _check_reachable(kind: int) -> None:
    if kind not in (_CUDA, _CUDA_HOST, _CUDA_MANAGED):
        raise ArgumentError(f"expected device memory of CUDA, found DLPack's device type {kind}")
