"""Headers at the beginning of several translation units, precompiled by NVRTC for this process.

NVRTC maps the file to the addresses of its objects, so only the process that made the file can use it. NVRTC
takes the file if a unit begins with the same directives and has the same options; only seeds may differ.
Units that use it have the same images and messages as without it.
"""

from __future__ import annotations

import ctypes
from contextlib import suppress
from functools import cache
from typing import TYPE_CHECKING

from cuda_ext.toolchain.cuda_libraries import open_library

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence
    from pathlib import Path

# The memory for one file. NVRTC takes as much as it needs: 140 MiB for three headers of CUB, and 330 MiB with
# everything that they contain. The default is 256 MiB.
_HEAP = 1 << 30
# The bytes that must be free, for a file of each worker.
_SPACE = 4 << 30


class PrecompiledHeaders:
    """The headers that were precompiled last, in a file of the directory `scratch`.

    ``names`` are those of all headers that were read.
    """

    def __init__(self, scratch: Path) -> None:
        self._file = scratch / "headers.pch"
        self._key: tuple[bytes, Sequence[str]] = (b"", ())
        self._is_usable = False
        self.names: frozenset[str] = frozenset()

    def use(
        self,
        source: bytes,
        options: Sequence[str],
        own: Collection[str],
        compile_source: Callable[[list[str]], tuple[str, frozenset[str]] | None],
    ) -> list[str]:
        """Return the options to use the headers that `source` includes; none if they cannot be precompiled.

        All units that use them have the same `options`, except for their seed; `own` are the unit's headers.
        `compile_source` compiles `source` with further options; it returns the compiler's text and the names
        of the headers that it read, or ``None``.
        """
        import shutil  # slow to import

        key = source, [option for option in options if not option.startswith("--frandom-seed=")]
        if key != self._key:
            self.forget()
            self._key = key
            if _has_heap() and shutil.disk_usage(self._file.parent).free >= _SPACE:
                compiled = compile_source([f"--create-pch={self._file}", "--pch-messages=false"])
                # Headers that cause warnings do so in each unit.
                if compiled and not compiled[0].strip():
                    self.names = compiled[1]
                    self._is_usable = self._file.exists()
        # A header of the unit takes the place of one of the tool chain's with its name.
        hidden = any(name in self.names or f"?{name}" in self.names for name in own)
        return [f"--use-pch={self._file}"] if self._is_usable and not hidden else []

    def forget(self) -> None:
        """Stop using these headers."""
        self._is_usable = False
        with suppress(OSError):
            self._file.unlink()


@cache
def _has_heap() -> bool:
    """Give NVRTC the memory to precompile headers; return True if it can, as it does since 12.8."""
    nvrtc = open_library("nvrtc")
    if not hasattr(nvrtc, "nvrtcSetPCHHeapSize"):
        return False
    status: int = nvrtc.nvrtcSetPCHHeapSize(ctypes.c_size_t(_HEAP))
    return status == 0
