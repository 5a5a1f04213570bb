"""Variables in device memory."""

from __future__ import annotations

import math
import numbers
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, SupportsIndex

from cuda_ext import manifest
from cuda_ext.errors import ArgumentError
from cuda_ext.manifest import Parameter, ParameterKind
from cuda_ext.runtime.arrays.array_layout import array_layout
from cuda_ext.runtime.arrays.device_memory import DeviceMemory, device_memory
from cuda_ext.runtime.arrays.dtypes import (
    check_dtype,
    dtype_of_format,
    dtype_of_typestr,
    element_and_shape,
    item_dtype,
)
from cuda_ext.runtime.driver.driver import Device, Driver, open_driver
from cuda_ext.runtime.driver.loaded_library import Library
from cuda_ext.runtime.launch.arguments import described, fields, layout
from cuda_ext.runtime.launch.streams import Stream, stream_handle

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["Symbol"]


@dataclass(frozen=True, slots=True, repr=False)
class Symbol:
    """A ``__constant__`` or ``__device__`` variable, of which every GPU has its own.

    ``weights.copy_from(array)`` fills it, ``weights.numpy()`` and ``weights.copy_to(array)`` read it. Host
    memory is anything with the buffer protocol, device memory any array that a kernel takes for a pointer.
    The GPU is that of `device`, a number; or else the one that holds the array, the one of the stream, the
    current one, or the first.

    Without a `stream`, a copy is complete when it returns. It comes after all work on the GPU if the other
    side is host memory, and after the work in the current stream of its library if that is a device array.
    With a `stream` it is work in that stream like any other: host memory has to stay as it is until then.
    """

    _library: Library
    _symbol: manifest.Symbol

    @property
    def name(self) -> str:
        return self._symbol.name

    @property
    def type(self) -> str:
        """Its C++ type without typedefs, ``float[3][3]``."""
        return self._symbol.type

    @property
    def element(self) -> str:
        """The C++ type that it is made of, ``float``."""
        return element_and_shape(self.type)[0]

    @property
    def shape(self) -> tuple[int, ...]:
        """Its extents, ``(3, 3)``; those of a variable that is no array are ``()``."""
        return element_and_shape(self.type)[1]

    @property
    def dtype(self) -> str:
        """What array libraries call its element type, ``float32``; empty for structures and the like."""
        return item_dtype(self.element)

    @property
    def size(self) -> int:
        """Its size in bytes."""
        return self._symbol.size

    @property
    def address(self) -> int:
        """Its address on the current GPU, or on the first where there is none."""
        return self._address(open_driver().current_device())

    def address_on(self, device: SupportsIndex) -> int:
        """Its address on the GPU number `device`."""
        return self._address(self._device(open_driver(), None, None, device))

    def copy_from(
        self, source: Any, *, stream: Stream | None = None, device: SupportsIndex | None = None
    ) -> None:
        """Fill the variable from `source`: memory, or a number if the variable is one.

        Raises :class:`ArgumentError` unless `source` is contiguous, has exactly the variable's size, and, if
        it says what it holds, its type; and for an array on another GPU than `device`.
        """
        number = self._number(source)
        memory = self._checked(source, writable=False) if number is None else number
        with self._located(memory, stream, device) as (driver, address, handle):
            if isinstance(memory, DeviceMemory):
                driver.call("cuMemcpyAsync", address, memory.address, self.size, handle)
            elif number is not None and int(driver.call("cuStreamIsCapturing", handle)):
                raise self._wrong("a graph reads its source when it runs; expected memory, found a number")
            else:
                driver.call("cuMemcpyHtoDAsync", address, memory, self.size, handle)

    def copy_to(
        self, destination: Any, *, stream: Stream | None = None, device: SupportsIndex | None = None
    ) -> None:
        """Copy the variable into `destination`: memory as for :meth:`copy_from`, and writable."""
        memory = self._checked(destination, writable=True)
        with self._located(memory, stream, device) as (driver, address, handle):
            if isinstance(memory, DeviceMemory):
                driver.call("cuMemcpyAsync", memory.address, address, self.size, handle)
            else:
                driver.call("cuMemcpyDtoHAsync", memory, address, self.size, handle)

    def tobytes(self, *, device: SupportsIndex | None = None) -> bytes:
        """The variable's content."""
        return bytes(self._content(device))

    def numpy(self, dtype: Any = None, *, device: SupportsIndex | None = None) -> NDArray[Any]:
        """The variable's content as a numpy array of its shape.

        A structure takes its `dtype`; vectors such as ``float4`` are a last axis. Raises
        :class:`ArgumentError` for what numpy has no type for, and for one that does not fit.
        """
        import numpy  # asked for by name

        try:
            item = numpy.dtype(self.dtype if dtype is None else dtype)
        except TypeError:
            known = self.element if dtype is None else repr(dtype)
            raise self._wrong(f"numpy does not know {known}; give a dtype of {self._item} bytes") from None
        if not item.itemsize or self._item % item.itemsize:
            raise self._wrong(f"expected a dtype of {self._item} bytes, found {item} of {item.itemsize}")
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
    def _located(
        self, memory: DeviceMemory | memoryview, stream: Stream | None, device: SupportsIndex | None
    ) -> Iterator[tuple[Driver, int, int]]:
        """The driver, the variable's address, and the stream to copy in, which is waited for as promised."""
        driver = open_driver()
        handle = None if stream is None else stream_handle(stream)
        place = self._device(driver, memory, handle, device)
        with place.current():
            address = self._library.address(self._symbol, place)
            if handle is not None:
                yield driver, address, handle
                return
            if isinstance(memory, DeviceMemory):
                ambient = memory.stream(place.ordinal) if memory.stream else 0
            else:
                # Kernels that use the variable may be in streams that do not wait for the default one.
                driver.call("cuCtxSynchronize")
                ambient = 0
            yield driver, address, ambient
            driver.call("cuStreamSynchronize", ambient)

    def _device(
        self,
        driver: Driver,
        memory: DeviceMemory | memoryview | None,
        stream: int | None,
        asked: SupportsIndex | None,
    ) -> Device:
        place = None
        if isinstance(memory, DeviceMemory) and driver.count > 1:
            place = memory.device
            if place is None:
                place = driver.pointer_attribute("DEVICE_ORDINAL", memory.address)
        if asked is not None:
            number = _ordinal(asked, driver.count)
            if number is None:
                raise self._wrong(f"device: expected a number below {driver.count}, found {asked!r}")
            if place not in (None, number):
                raise self._wrong(f"expected an array on GPU {number}, found one on GPU {place}")
            return driver.device(number)
        if place is not None:
            return driver.device(place)
        return driver.current_device() if stream is None else driver.device_of_stream(stream)

    def _number(self, value: Any) -> memoryview | None:
        """The bytes of a number for a variable that is one."""
        kind = _kind(self.element, self.size)
        if not isinstance(value, numbers.Number) or self.shape or kind is None:
            return None
        field = fields([Parameter(self.name, self.element, kind, self.size, 0)])
        try:
            return memoryview(layout(field)[0].pack(field[0].convert(value)))
        except ArgumentError as error:
            raise self._wrong(error) from None

    def _checked(self, value: Any, *, writable: bool) -> DeviceMemory | memoryview:
        try:
            memory = device_memory(value)
            if memory is None:
                view = _view(value)
                self._check(_dtype(value, view), view.nbytes, writable and view.readonly)
                return view
            lies = array_layout(value)
            if lies is None or not lies.contiguous:
                raise ArgumentError("expected a contiguous array, found one with gaps")
            self._check(memory.dtype, lies.size, writable and memory.read_only)
            return memory
        except ArgumentError as error:
            raise self._wrong(error) from None

    def _check(self, dtype: str, size: int, read_only: bool) -> None:
        check_dtype(dtype, self.type)
        if size != self.size:
            raise ArgumentError(f"expected {self.size} bytes, found {size}")
        if read_only:
            raise ArgumentError("expected memory that may be written, found it read-only")

    def _wrong(self, problem: object) -> ArgumentError:
        return ArgumentError(f"symbol {self.name!r} ({self.type}): {problem}")

    def __reduce__(self) -> tuple[Any, ...]:
        from cuda_ext.runtime.lookup import item

        return item, (self._library, "", self.name)

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
    """As what kind of parameter a number becomes `size` bytes of `element`; ``None`` if that is no number."""
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
    # Some of numpy's types, such as bfloat16, are not known to the buffer protocol.
    if not hasattr(value, "__array_interface__"):
        raise ArgumentError(f"expected memory, of the host or of a GPU, found {described(value)}")
    return memoryview(value.view(f"V{value.dtype.itemsize}"))


def _dtype(value: Any, view: memoryview) -> str:
    interface = getattr(value, "__array_interface__", None)
    return dtype_of_typestr(interface["typestr"]) if interface else dtype_of_format(view.format)
