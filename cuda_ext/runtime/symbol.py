"""Variables in device memory."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from cuda_ext import manifest
from cuda_ext.errors import ArgumentError
from cuda_ext.runtime.device_memory import contiguous_size, device_memory
from cuda_ext.runtime.driver import Driver, open_driver
from cuda_ext.runtime.elements import check_dtype, dtype_of_typestr
from cuda_ext.runtime.library import Library

__all__ = ["Symbol"]


@dataclass(frozen=True, slots=True, repr=False)
class Symbol:
    """A ``__constant__`` or ``__device__`` variable.

    Every context has its own; the current one's is meant, or that of the first GPU where there is none.
    Copies are complete when they return. They wait for kernels as work in the default stream does.
    """

    _library: Library
    _symbol: manifest.Symbol

    @property
    def name(self) -> str:
        return self._symbol.name

    @property
    def type(self) -> str:
        """Its C++ type without typedefs, ``float[9]``."""
        return self._symbol.type

    @property
    def size(self) -> int:
        """Its size in bytes."""
        return self._symbol.size

    @property
    def address(self) -> int:
        with self._located() as (_, address):
            return address

    def copy_from(self, source: Any) -> None:
        """Fill the variable from `source`: an array in device memory, or anything with the buffer protocol.

        Raises :class:`ArgumentError` unless `source` is contiguous, has exactly the variable's size, and, if
        it is an array, its type.
        """
        memory = self._checked(source, writable=False)
        with self._located() as (driver, address):
            function = "cuMemcpyDtoD" if isinstance(memory, int) else "cuMemcpyHtoD"
            driver.call(function, address, memory, self.size)
            driver.call("cuStreamSynchronize", 0)

    def copy_to(self, destination: Any) -> None:
        """Copy the variable into `destination`: as the source of :meth:`copy_from`, and writable."""
        memory = self._checked(destination, writable=True)
        with self._located() as (driver, address):
            function = "cuMemcpyDtoD" if isinstance(memory, int) else "cuMemcpyDtoH"
            driver.call(function, memory, address, self.size)
            driver.call("cuStreamSynchronize", 0)

    def tobytes(self) -> bytes:
        """The variable's content."""
        content = bytearray(self.size)
        self.copy_to(content)
        return bytes(content)

    @contextmanager
    def _located(self) -> Iterator[tuple[Driver, int]]:
        driver = open_driver()
        device = driver.current_device()
        with device.current():
            yield driver, self._library.address(self._symbol, device)

    def _checked(self, value: Any, *, writable: bool) -> int | memoryview:
        """The address of an array in device memory, or a view of host memory."""
        try:
            if memory := device_memory(value):
                self._check(memory.dtype, contiguous_size(value), writable and memory.read_only)
                return memory.address
            view = _view(value)
            self._check(_dtype(value), view.nbytes, writable and view.readonly)
            return view
        except ArgumentError as error:
            raise ArgumentError(f"symbol {self.name!r} ({self.type}): {error}") from None

    def _check(self, dtype: str, size: int, read_only: bool) -> None:
        check_dtype(dtype, self.type)
        if size != self.size:
            raise ArgumentError(f"expected {self.size} bytes, found {size}")
        if read_only:
            raise ArgumentError("expected memory that may be written, found it read-only")

    def __reduce__(self) -> tuple[Any, ...]:
        from cuda_ext.runtime.lookup import item

        return item, (self._library, "", self.name)

    def __repr__(self) -> str:
        return f"<{self._symbol.space} symbol {self.type} {self.name}>"


def _view(value: Any) -> memoryview:
    try:
        view = memoryview(value)
    except TypeError:
        raise ArgumentError(
            f"expected a buffer or an array in device memory, found {type(value).__qualname__}"
        ) from None
    if not view.c_contiguous:
        raise ArgumentError("expected a contiguous buffer, found one with gaps")
    return view


def _dtype(value: Any) -> str:
    interface = getattr(value, "__array_interface__", None)
    return dtype_of_typestr(interface["typestr"]) if interface else ""
