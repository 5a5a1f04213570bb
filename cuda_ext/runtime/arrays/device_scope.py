"""Host arrays that stay in device memory over several launches."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from typing import Any

from cuda_ext.errors import ArgumentError, DriverCallError
from cuda_ext.runtime.arrays.device_copies import DeviceCopies
from cuda_ext.runtime.arrays.host_arrays import is_host_array, span

__all__ = ["DeviceScope", "copies_of_scope", "device_scope"]

_innermost: ContextVar[DeviceCopies | None] = ContextVar("_innermost", default=None)


class DeviceScope:
    """A block of :func:`device_scope`, while it lasts."""

    __slots__ = ("_copies",)

    def __init__(self, copies: DeviceCopies) -> None:
        self._copies = copies

    def fetch(self, array: Any) -> None:
        """Wait for what kernels write to `array`, and copy it there, before the scope ends.

        Raises :class:`ArgumentError` for anything but a numpy array.
        """
        if not is_host_array(array):
            raise ArgumentError(f"fetch: expected a numpy array, found {type(array).__qualname__}")
        self._copies.fetch(*span(array))


@contextmanager
def device_scope() -> Iterator[DeviceScope]:
    """A ``with`` block in which the numpy arrays that kernels get stay in device memory.

    Each is copied there when it is first an argument, and what kernels wrote is copied back when the block
    ends, even if by an exception. Meanwhile launches do not wait, and neither side sees what the other
    writes: :meth:`DeviceScope.fetch` has an array copied back earlier, and what the host changes in an array
    after its first use is not noticed.

    A scope is of the thread or the task that opens it. In a scope within another, the arrays of the outer one
    stay with that until it ends. A stream that is given as a handle has to last as long.
    """
    copies = DeviceCopies(copies_of_scope())
    _innermost.set(copies)
    try:
        yield DeviceScope(copies)
    except BaseException:
        with suppress(DriverCallError):  # perhaps of the same cause, of which the exception tells
            copies.bring_back()
        raise
    else:
        copies.bring_back()
    finally:
        copies.end()


def copies_of_scope() -> DeviceCopies | None:
    """Those of the innermost scope that is open here."""
    copies = _innermost.get()
    # Those that have ended are not taken away, since other threads and tasks may have them in their contexts.
    while copies is not None and copies.ended:
        copies = copies.outer
    return copies
