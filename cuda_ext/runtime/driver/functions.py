"""The functions of the driver's library, by name."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from cuda_ext.errors import DriverError, DriverTooOldError
from cuda_ext.runtime.driver import cuda_h

if TYPE_CHECKING:
    from cuda_ext.runtime.driver import _calls as calls
else:
    try:
        from cuda_ext.runtime.driver import _calls as calls
    except ImportError:
        from cuda_ext.runtime.driver import ctypes_calls as calls

# Marks an argument that is a pointer to a result.
OUT = None

_LIBRARY = "nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1"
# The CUDA version whose signatures the functions have. It is the version of the oldest supported driver:
# asking for a function that a driver lacks is an error, which tools such as compute-sanitizer report.
_VERSION = 12000


class Functions:
    """The functions of the driver's library, which stays open.

    Raises :class:`OSError` if there is none, and :class:`DriverError` for an invalid setting.
    """

    def __init__(self) -> None:
        self._library = calls.open_library(_LIBRARY)
        self._get_address = calls.find_symbol(self._library, "cuGetProcAddress_v2")
        self._flags = (
            cuda_h.CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM
            if _has_stream_per_thread()
            else cuda_h.CU_GET_PROC_ADDRESS_DEFAULT
        )
        self._addresses: dict[str, int] = {}

    def call(self, name: str, *arguments: int | bytes | None) -> tuple[int, ...]:
        """Call the function `name`. Return its status and its results, one for each ``OUT``.

        Other arguments are integers, such as handles and addresses, or bytes for a pointer to them. Results
        are unsigned integers of up to eight bytes.
        """
        return calls.call(self._addresses.get(name) or self.address(name), *arguments)

    def address(self, name: str) -> int:
        """Return the address of the function `name`. Raises :class:`DriverTooOldError` if there is none."""
        if name not in self._addresses:
            address = self._find(name)
            if not address:
                raise DriverTooOldError(
                    f"the NVIDIA driver has no function {name}", remedy="upgrade the driver"
                )
            self._addresses[name] = address
        return self._addresses[name]

    def _find(self, name: str) -> int:
        if self._get_address:
            arguments = name.encode(), OUT, _VERSION, self._flags, OUT
            status, address, _ = calls.call(self._get_address, *arguments)
            if not status:
                return address
        # For drivers before CUDA 12 and stubs: these functions suffice to identify them.
        return calls.find_symbol(self._library, name)


def _has_stream_per_thread() -> bool:
    """Read the variable of cuda-bindings, with which this package has to agree on streams."""
    name = "CUDA_PYTHON_CUDA_PER_THREAD_DEFAULT_STREAM"
    value = os.environ.get(name, "0")
    try:
        return int(value) != 0
    except ValueError:
        raise DriverError(
            f"expected a number, found {value!r}", where=name, remedy="set it to 0 or 1, or unset it"
        ) from None
