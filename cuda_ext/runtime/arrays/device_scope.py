"""``cuda_ext.device_scope``: host arrays that stay in device memory over several launches."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from typing import Any

from cuda_ext.errors import ArgumentError, DriverCallError
from cuda_ext.runtime.arrays.device_copies import DeviceCopies
from cuda_ext.runtime.arrays.host_arrays import is_host_array, place_of

__all__ = ["DeviceScope", "device_scope", "innermost_scope"]

_innermost: ContextVar[DeviceCopies | None] = ContextVar("_innermost", default=None)


class DeviceScope:
    """An open :func:`device_scope`."""

    __slots__ = ("_copies",)

    def __init__(self, copies: DeviceCopies) -> None:
        self._copies = copies

    def fetch(self, array: Any) -> None:
        """Wait for the kernels that write to `array`, and copy their results back before the scope ends.

        Raises :class:`ArgumentError` for objects that are no numpy array.
        """
        if not is_host_array(array):
            raise ArgumentError(f"expected a numpy array, found {type(array).__qualname__}", where="fetch")
        self._copies.fetch(place_of(array))


@contextmanager
def device_scope() -> Iterator[DeviceScope]:
    """A ``with`` block that keeps the numpy arrays of launches in device memory.

    Each array is copied to the GPU when it is first an argument. What kernels wrote is copied back when the
    block ends, also if it ends with an exception. Until then, launches do not wait, and host and device do
    not see each other's changes: :meth:`DeviceScope.fetch` copies an array back earlier, and changes that the
    host makes after the first use of an array are ignored.

    A scope belongs to the thread or task that opens it. In nested scopes, the arrays of the outer one stay on
    the GPU until the outer one ends. A stream that is passed as a handle must outlive the scope.
    """
    copies = DeviceCopies(innermost_scope())
    _innermost.set(copies)
    try:
        yield DeviceScope(copies)
    except BaseException:
        with suppress(DriverCallError):  # it may have the same cause as the exception
            copies.copy_back()
        raise
    else:
        copies.copy_back()
    finally:
        copies.release()


def innermost_scope() -> DeviceCopies | None:
    """The copies of the innermost open scope of this thread or task, or ``None``."""
    copies = _innermost.get()
    # A scope may have ended in another thread or task, whose context this one inherited.
    while copies is not None and copies.released:
        copies = copies.outer
    return copies
