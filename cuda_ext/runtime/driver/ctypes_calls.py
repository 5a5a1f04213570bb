"""Replace ``_calls`` where that was not compiled: call functions of a library by address."""

from __future__ import annotations

import ctypes
from functools import cache
from typing import Any

_SEARCH_SYSTEM32 = 0x800  # LOAD_LIBRARY_SEARCH_SYSTEM32, which counts under Windows only


def open_library(name: str) -> int:
    """Open a library of the system and return its handle. Raises :class:`OSError`."""
    return ctypes.CDLL(name, winmode=_SEARCH_SYSTEM32)._handle


def find_symbol(library: int, name: str) -> int:
    """Return the address of the symbol `name` of the library; 0 if there is none."""
    symbol = getattr(ctypes.CDLL("", handle=library), name, None)
    return 0 if symbol is None else ctypes.cast(symbol, ctypes.c_void_p).value or 0


def call(function: int, *arguments: int | bytes | None) -> tuple[int, ...]:
    """Call the function at an address without holding the GIL.

    An argument is an integer, bytes for a pointer to them, or ``None`` for a pointer to a result. Return the
    status of the function, an int, and the results.
    """
    results = [ctypes.c_uint64() for argument in arguments if argument is None]
    addresses = map(ctypes.addressof, results)
    words = [next(addresses) if argument is None else _checked(argument) for argument in arguments]
    status: int = _function(function, len(words))(*words)
    return status, *(result.value for result in results)


def _checked(argument: int | bytes) -> int | bytes:
    """Refuse arguments that ctypes would convert, such as text, or truncate."""
    if not isinstance(argument, (int, bytes)):
        raise TypeError(f"expected an int, bytes or None, found {argument!r}")
    if isinstance(argument, int) and not -1 << 63 <= argument < 1 << 64:
        raise OverflowError("expected an integer of eight bytes")
    return argument


@cache
def _function(address: int, count: int) -> Any:
    return ctypes.CFUNCTYPE(ctypes.c_int, *[ctypes.c_void_p] * count)(address)
