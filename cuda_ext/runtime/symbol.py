"""``Symbol``: a variable in device memory, with copies from and to it."""

from __future__ import annotations

import ctypes
import math
import numbers
import operator
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, SupportsFloat, SupportsIndex, TypeAlias

from cuda_ext.errors import ArgumentError
from cuda_ext.facts import symbols
from cuda_ext.facts.kernels import Parameter, ParameterKind
from cuda_ext.runtime.arrays.device_memory import DeviceArray, DeviceMemory, array_layout, device_memory
from cuda_ext.runtime.arrays.dtypes import (
    check_dtype,
    dtype_of_format,
    dtype_of_typestr,
    element_and_shape,
    item_dtype,
)
from cuda_ext.runtime.arrays.host_arrays import HasArrayInterface
from cuda_ext.runtime.driver.driver import Device, Driver, open_driver
from cuda_ext.runtime.driver.functions import OUT
from cuda_ext.runtime.launch.arguments import describe_value, make_fields
from cuda_ext.runtime.launch.streams import GivenStream, Stream
from cuda_ext.runtime.loaded_library import Library

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from typing_extensions import Buffer

Memory: TypeAlias = "DeviceArray | HasArrayInterface | Buffer"
# The kinds of parameters that convert a number to each dtype. C++ has structures for 16-bit floats.
_KINDS: dict[str, ParameterKind] = {
    "bool": "bool",
    "int": "integer",
    "uint": "unsigned",
    "float": "float",
    "float16": "struct",
    "bfloat": "struct",
    "complex": "struct",
}


@dataclass(frozen=True, slots=True, repr=False)
class Symbol:
    """A ``__constant__`` or ``__device__`` variable. Each GPU has its own copy.

    ``weights.copy_from(array)`` fills it, ``weights.numpy()`` and ``weights.copy_to(array)`` read it. Host
    memory is any object with the buffer protocol, device memory any array that a kernel takes for a pointer.
    The GPU is that of `device`, its ordinal; by default it is the one that holds the array, the one of the
    stream, the current one, or the first.

    Without a `stream`, a copy is complete when the call returns. A copy from or to host memory waits for all
    work on the GPU, and one from or to a device array for the work in the current stream of its library. With
    a `stream`, the copy is asynchronous work in that stream: do not change the host memory until it is done.
    """

    _library: Library
    _symbol: symbols.Symbol

    @property
    def name(self) -> str:
        """Its qualified C++ name, ``ns::weights``."""
        return self._symbol.name

    @property
    def type(self) -> str:
        """Its C++ type without typedefs, ``float[3][3]``."""
        return self._symbol.type

    @property
    def element(self) -> str:
        """The C++ type of its elements, ``float``; for a variable that is not an array, its type."""
        return element_and_shape(self.type)[0]

    @property
    def shape(self) -> tuple[int, ...]:
        """Its extents, ``(3, 3)``; ``()`` for a variable that is not an array."""
        return element_and_shape(self.type)[1]

    @property
    def dtype(self) -> str:
        """The dtype of its elements, ``float32``; empty for structures and other types without a dtype."""
        return item_dtype(self.element)

    @property
    def size(self) -> int:
        """Its size in bytes."""
        return self._symbol.size

    @property
    def address(self) -> int:
        """Its address on the current GPU, or on the first if none is current."""
        return self._address(open_driver().current_device())

    def address_on(self, device: SupportsIndex) -> int:
        """Return its address on the GPU with the ordinal `device`."""
        with self._name_in_errors():
            return self._address(_find_device(open_driver(), None, None, device))

    def copy_from(
        self,
        source: Memory | complex | SupportsFloat,
        *,
        stream: Stream | None = None,
        device: SupportsIndex | None = None,
    ) -> None:
        """Fill the variable from `source`: memory, or a number if the variable is a single number.

        Raises :class:`ArgumentError` unless `source` is contiguous and has exactly the variable's size and
        type (if its type is known), and for an array on another GPU than `device`.
        """
        with self._name_in_errors():
            if (number := self._pack_number(source)) is not None:
                self._copy(memoryview(number), stream, device, is_number=True)
            else:
                self._copy(self._memory_of(source), stream, device)

    def copy_to(
        self, destination: Memory, *, stream: Stream | None = None, device: SupportsIndex | None = None
    ) -> None:
        """Copy the variable to `destination`: writable memory as for :meth:`copy_from`."""
        with self._name_in_errors():
            self._copy(self._memory_of(destination, writable=True), stream, device, out=True)

    def tobytes(self, *, device: SupportsIndex | None = None) -> bytes:
        """Return the variable's content as bytes."""
        return bytes(self._content(device))

    def numpy(self, dtype: Any = None, *, device: SupportsIndex | None = None) -> NDArray[Any]:
        """Return the variable's content as a numpy array of its shape.

        Structures need a `dtype`. Vectors such as ``float4`` become a last axis. Raises
        :class:`ArgumentError` for types that numpy lacks, and for a `dtype` of another size.
        """
        import numpy

        size = self.size // math.prod(self.shape)
        with self._name_in_errors():
            try:
                item = numpy.dtype(self.dtype if dtype is None else dtype)
            except TypeError:
                known = self.element if dtype is None else repr(dtype)
                raise ArgumentError(f"numpy does not know {known}; give a dtype of {size} bytes") from None
            if not item.itemsize or size % item.itemsize:
                raise ArgumentError(f"expected a dtype of {size} bytes, found {item} of {item.itemsize}")
        count = size // item.itemsize
        shape = self.shape if count == 1 else (*self.shape, count)
        return numpy.frombuffer(self._content(device), item).reshape(shape)

    def _content(self, device: SupportsIndex | None) -> bytearray:
        content = bytearray(self.size)
        self.copy_to(content, device=device)
        return content

    def _address(self, device: Device) -> int:
        with device.current():
            return self._library.address(self._symbol, device)

    def _copy(
        self,
        memory: DeviceMemory | memoryview,
        stream: Stream | None,
        device: SupportsIndex | None,
        *,
        out: bool = False,
        is_number: bool = False,
    ) -> None:
        """Copy `memory` to the variable or, with `out`, the variable to `memory`."""
        driver = open_driver()
        given = None if stream is None else GivenStream.of(stream)
        gpu = _find_device(driver, memory, given, device)
        with gpu.current():
            address = self._library.address(self._symbol, gpu)
            handle = given.handle if given else 0
            if isinstance(memory, DeviceMemory):
                if given is None and memory.stream is not None:
                    handle = memory.stream(gpu.ordinal)
                copy = "cuMemcpyAsync"
                other = memory.address
            else:
                if given is None:
                    # Kernels that use the variable may run in streams that do not wait for the default one.
                    driver.call("cuCtxSynchronize")
                copy = "cuMemcpyDtoHAsync" if out else "cuMemcpyHtoDAsync"
                other = _host_address(memory)
            if is_number and driver.query("cuStreamIsCapturing", handle, OUT):
                raise ArgumentError("a graph reads its source when it runs; expected memory, found a number")
            driver.call(copy, *((other, address) if out else (address, other)), self.size, handle)
            if given is None:
                driver.call("cuStreamSynchronize", handle)

    def _pack_number(self, value: Any) -> bytes | None:
        """Return the bytes of a number for a variable that is a single number; ``None`` for anything else."""
        if not isinstance(value, numbers.Number) or self.shape or self.type.endswith("*"):
            return None
        name = self.dtype.rstrip("0123456789")
        bits = int(self.dtype.removeprefix(name) or 8)
        kind = _KINDS.get(self.dtype) or _KINDS.get(name)
        if kind is None or bits != 8 * self.size:  # vectors are larger than their items
            return None
        (field,) = make_fields([Parameter(self.name, self.type, kind, self.size, 0)])
        return struct.pack(f"<{field.format}", field.convert(value))

    def _memory_of(self, value: Any, *, writable: bool = False) -> DeviceMemory | memoryview:
        """Return the memory of `value`. Raises :class:`ArgumentError` if it does not fit the variable."""
        memory = device_memory(value)
        if memory is not None:
            layout = array_layout(value)
            is_contiguous = layout is not None and layout.contiguous
            dtype, size, is_read_only = memory.dtype, layout.size if layout else 0, memory.read_only
        else:
            view = _view(value)
            is_contiguous = view.c_contiguous
            dtype, size, is_read_only = _dtype(value, view), view.nbytes, view.readonly
        if not is_contiguous:
            raise ArgumentError("expected a contiguous array, found one with gaps")
        check_dtype(dtype, self.type)
        if size != self.size:
            raise ArgumentError(f"expected {self.size} bytes, found {size}")
        if writable and is_read_only:
            raise ArgumentError("expected memory that may be written, found it read-only")
        return view if memory is None else memory

    @contextmanager
    def _name_in_errors(self) -> Iterator[None]:
        """Name the variable in errors without the name of an argument."""
        try:
            yield
        except ArgumentError as error:
            error.where = error.where or f"symbol {self.name!r} ({self.type})"
            raise

    def __reduce__(self) -> tuple[Any, ...]:
        # By name, since the module may be rebuilt before the pickle is loaded.
        return operator.getitem, (self._library.module, self.name)

    def __repr__(self) -> str:
        return f"<{self._symbol.space} symbol {self.type} {self.name}, {self.size} bytes>"


def _find_device(
    driver: Driver,
    memory: DeviceMemory | memoryview | None,
    stream: GivenStream | None,
    device: SupportsIndex | None,
) -> Device:
    """Find the GPU of a copy: that of `memory`, `device` or `stream`, which must agree if they are known."""
    holder = None
    if isinstance(memory, DeviceMemory) and driver.count > 1:
        holder = memory.device
        if holder is None:
            holder = driver.device_of_memory(memory.address)
    of_stream = stream.device if stream and driver.count > 1 else None
    if device is None:
        device = holder if holder is not None else of_stream
    if device is None:
        gpu_of_stream = driver.device_of_stream(stream.handle) if stream else None
        return gpu_of_stream or driver.current_device()
    try:
        ordinal = -1 if isinstance(device, bool) else operator.index(device)
    except TypeError:
        ordinal = -1
    if not 0 <= ordinal < driver.count:
        raise ArgumentError(f"device: expected a number below {driver.count}, found {device!r}")
    for what, place in (("an array", holder), ("a stream", of_stream)):
        if place not in (None, ordinal):
            raise ArgumentError(f"expected {what} on GPU {ordinal}, found one on GPU {place}")
    return driver.device(ordinal)


def _view(value: Any) -> memoryview:
    try:
        return memoryview(value)
    except (TypeError, ValueError):
        # The buffer protocol does not support some of numpy's types, such as bfloat16.
        if not hasattr(value, "__array_interface__"):
            problem = f"expected memory, of the host or of a GPU, found {describe_value(value)}"
            raise ArgumentError(problem) from None
        return memoryview(value.view(f"V{value.dtype.itemsize}"))


class _Buffer(ctypes.Structure):
    """``Py_buffer``: ctypes returns only the address of writable memory."""

    _fields_ = (
        ("address", ctypes.c_void_p),
        ("owner", ctypes.py_object),
        ("size", ctypes.c_ssize_t),
        ("item", ctypes.c_ssize_t),
        ("is_read_only", ctypes.c_int),
        ("dimensions", ctypes.c_int),
        ("others", ctypes.c_void_p * 5),
    )


def _host_address(view: memoryview) -> int:
    buffer = _Buffer()
    ctypes.pythonapi.PyObject_GetBuffer(ctypes.py_object(view), ctypes.byref(buffer), 0)
    address: int = buffer.address or 0
    ctypes.pythonapi.PyBuffer_Release(ctypes.byref(buffer))
    return address


def _dtype(value: Any, view: memoryview) -> str:
    interface = getattr(value, "__array_interface__", None)
    return dtype_of_typestr(interface["typestr"]) if interface else dtype_of_format(view.format)
