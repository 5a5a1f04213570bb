"""``Symbol``: a variable in device memory, and copies to and from it."""

from __future__ import annotations

import math
import numbers
import operator
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, SupportsIndex

from cuda_ext import manifest
from cuda_ext.errors import ArgumentError
from cuda_ext.manifest import Parameter, ParameterKind
from cuda_ext.runtime.arrays.device_memory import DeviceMemory, array_layout, device_memory
from cuda_ext.runtime.arrays.dtypes import (
    check_dtype,
    dtype_of_format,
    dtype_of_typestr,
    element_and_shape,
    item_dtype,
)
from cuda_ext.runtime.driver.driver import Device, Driver, open_driver
from cuda_ext.runtime.launch.arguments import describe_value, make_fields, pack_layout
from cuda_ext.runtime.launch.streams import Stream, stream_handle
from cuda_ext.runtime.loaded_library import Library

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["Symbol"]


@dataclass(frozen=True, slots=True, repr=False)
class Symbol:
    """A ``__constant__`` or ``__device__`` variable. Each GPU has its own copy of it.

    ``weights.copy_from(array)`` fills it, ``weights.numpy()`` and ``weights.copy_to(array)`` read it. Host
    memory is any object with the buffer protocol, device memory any array that a kernel takes for a pointer.
    The GPU is that of `device`, its ordinal; by default it is the one that holds the array, the one of the
    stream, the current one, or the first.

    Without a `stream`, a copy is complete when the call returns. A copy from or to host memory waits for all
    work on the GPU, and one from or to a device array for the work in the current stream of its library. With
    a `stream`, the copy is asynchronous work in that stream: do not change the host memory until it is done.
    """

    _library: Library
    _symbol: manifest.Symbol

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
        """The C++ type of its elements, ``float``; of a variable that is no array, its type."""
        return element_and_shape(self.type)[0]

    @property
    def shape(self) -> tuple[int, ...]:
        """Its extents, ``(3, 3)``; ``()`` for a variable that is no array."""
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
        """Its address on the GPU with the ordinal `device`."""
        return self._address(self._device(open_driver(), None, None, device))

    def copy_from(
        self, source: Any, *, stream: Stream | None = None, device: SupportsIndex | None = None
    ) -> None:
        """Fill the variable from `source`: memory, or a number if the variable is a single number.

        Raises :class:`ArgumentError` unless `source` is contiguous and has exactly the variable's size and
        type (where its type is known), and for an array on another GPU than `device`.
        """
        number = self._pack_number(source)
        memory = self._check(source, writable=False) if number is None else number
        with self._prepare_copy(memory, stream, device) as (driver, address, handle):
            if isinstance(memory, DeviceMemory):
                driver.call("cuMemcpyAsync", address, memory.address, self.size, handle)
            elif number is not None and int(driver.call("cuStreamIsCapturing", handle)):
                raise self._error("a graph reads its source when it runs; expected memory, found a number")
            else:
                driver.call("cuMemcpyHtoDAsync", address, memory, self.size, handle)

    def copy_to(
        self, destination: Any, *, stream: Stream | None = None, device: SupportsIndex | None = None
    ) -> None:
        """Copy the variable to `destination`: writable memory as for :meth:`copy_from`."""
        memory = self._check(destination, writable=True)
        with self._prepare_copy(memory, stream, device) as (driver, address, handle):
            if isinstance(memory, DeviceMemory):
                driver.call("cuMemcpyAsync", memory.address, address, self.size, handle)
            else:
                driver.call("cuMemcpyDtoHAsync", memory, address, self.size, handle)

    def tobytes(self, *, device: SupportsIndex | None = None) -> bytes:
        """The variable's content as bytes."""
        return bytes(self._content(device))

    def numpy(self, dtype: Any = None, *, device: SupportsIndex | None = None) -> NDArray[Any]:
        """The variable's content as a numpy array of its shape.

        Structures need a `dtype`. Vectors such as ``float4`` become a last axis. Raises
        :class:`ArgumentError` for types that numpy lacks, and for a `dtype` of another size.
        """
        import numpy

        try:
            item = numpy.dtype(self.dtype if dtype is None else dtype)
        except TypeError:
            known = self.element if dtype is None else repr(dtype)
            raise self._error(f"numpy does not know {known}; give a dtype of {self._item} bytes") from None
        if not item.itemsize or self._item % item.itemsize:
            raise self._error(f"expected a dtype of {self._item} bytes, found {item} of {item.itemsize}")
        count = self._item // item.itemsize
        shape = self.shape if count == 1 else (*self.shape, count)
        return numpy.frombuffer(self._content(device), item).reshape(shape)

    @property
    def _item(self) -> int:
        return self.size // math.prod(self.shape)

    def _content(self, device: SupportsIndex | None) -> bytearray:
        content = bytearray(self.size)
        self.copy_to(content, device=device)
        return content

    def _address(self, device: Device) -> int:
        with device.current():
            return self._library.address(self._symbol, device)

    @contextmanager
    def _prepare_copy(
        self, memory: DeviceMemory | memoryview, stream: Stream | None, device: SupportsIndex | None
    ) -> Iterator[tuple[Driver, int, int]]:
        """Give the driver, the variable's address and the stream for a copy; synchronize before and after."""
        driver = open_driver()
        handle = None if stream is None else stream_handle(stream)
        gpu = self._device(driver, memory, handle, device)
        with gpu.current():
            address = self._library.address(self._symbol, gpu)
            if handle is not None:
                yield driver, address, handle
                return
            if isinstance(memory, DeviceMemory):
                current = memory.stream(gpu.ordinal) if memory.stream else 0
            else:
                # Kernels that use the variable may run in streams that do not wait for the default stream.
                driver.call("cuCtxSynchronize")
                current = 0
            yield driver, address, current
            driver.call("cuStreamSynchronize", current)

    def _device(
        self,
        driver: Driver,
        memory: DeviceMemory | memoryview | None,
        stream: int | None,
        device: SupportsIndex | None,
    ) -> Device:
        ordinal = None
        if isinstance(memory, DeviceMemory) and driver.count > 1:
            ordinal = memory.device
            if ordinal is None:
                ordinal = driver.pointer_attribute("DEVICE_ORDINAL", memory.address)
        if device is not None:
            wanted = _ordinal(device, driver.count)
            if wanted is None:
                raise self._error(f"device: expected a number below {driver.count}, found {device!r}")
            if ordinal not in (None, wanted):
                raise self._error(f"expected an array on GPU {wanted}, found one on GPU {ordinal}")
            return driver.device(wanted)
        if ordinal is not None:
            return driver.device(ordinal)
        return driver.current_device() if stream is None else driver.device_of_stream(stream)

    def _pack_number(self, value: Any) -> memoryview | None:
        """The bytes of a number for a variable that is a single number; ``None`` for anything else."""
        kind = _kind(self.element, self.size)
        if not isinstance(value, numbers.Number) or self.shape or kind is None:
            return None
        fields = make_fields([Parameter(self.name, self.element, kind, self.size, 0)])
        try:
            return memoryview(pack_layout(fields)[0].pack(fields[0].convert(value)))
        except ArgumentError as error:
            error.where = self._where
            raise

    def _check(self, value: Any, *, writable: bool) -> DeviceMemory | memoryview:
        """The memory of `value`. Raises :class:`ArgumentError` if it does not fit the variable."""
        try:
            memory = device_memory(value)
            if memory is None:
                view = _view(value)
                self._check_content(_dtype(value, view), view.nbytes, writable and view.readonly)
                return view
            layout = array_layout(value)
            if layout is None or not layout.contiguous:
                raise ArgumentError("expected a contiguous array, found one with gaps")
            self._check_content(memory.dtype, layout.size, writable and memory.read_only)
            return memory
        except ArgumentError as error:
            error.where = self._where
            raise

    def _check_content(self, dtype: str, size: int, read_only: bool) -> None:
        check_dtype(dtype, self.type)
        if size != self.size:
            raise ArgumentError(f"expected {self.size} bytes, found {size}")
        if read_only:
            raise ArgumentError("expected memory that may be written, found it read-only")

    @property
    def _where(self) -> str:
        return f"symbol {self.name!r} ({self.type})"

    def _error(self, problem: str) -> ArgumentError:
        return ArgumentError(problem, where=self._where)

    def __reduce__(self) -> tuple[Any, ...]:
        # By name, since the module may be rebuilt before the pickle is loaded.
        return operator.getitem, (self._library.module, self.name)

    def __repr__(self) -> str:
        return f"<{self._symbol.space} symbol {self.type} {self.name}, {self.size} bytes>"


_KINDS: dict[str, ParameterKind] = {
    "bool": "bool",
    "int": "integer",
    "uint": "unsigned",
    "float": "float",
    "bfloat": "struct",
    "complex": "struct",
}


def _kind(element: str, size: int) -> ParameterKind | None:
    """The kind of parameter that converts a number to `element`; ``None`` if `element` is no number."""
    dtype = item_dtype(element)
    name = dtype.rstrip("0123456789")
    if element.endswith("*") or int(dtype.removeprefix(name) or 8) != 8 * size:  # vectors are larger
        return None
    return "struct" if element == "__half" else _KINDS.get(name)


def _ordinal(device: SupportsIndex, count: int) -> int | None:
    try:
        number = device.__index__()
    except AttributeError:
        return None
    return number if 0 <= number < count and not isinstance(device, bool) else None


def _view(value: Any) -> memoryview:
    try:
        view = memoryview(value)
    except (TypeError, ValueError):
        view = _view_of_numpy(value)
    if not view.c_contiguous:
        raise ArgumentError("expected a contiguous buffer, found one with gaps")
    return view


def _view_of_numpy(value: Any) -> memoryview:
    # The buffer protocol does not support some of numpy's types, such as bfloat16.
    if not hasattr(value, "__array_interface__"):
        raise ArgumentError(f"expected memory, of the host or of a GPU, found {describe_value(value)}")
    return memoryview(value.view(f"V{value.dtype.itemsize}"))


def _dtype(value: Any, view: memoryview) -> str:
    interface = getattr(value, "__array_interface__", None)
    return dtype_of_typestr(interface["typestr"]) if interface else dtype_of_format(view.format)
