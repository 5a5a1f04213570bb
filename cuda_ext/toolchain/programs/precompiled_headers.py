"""Headers with which several translation units begin, precompiled by NVRTC for this process.

NVRTC maps the file to where its objects were, so that only the process that made it can use it. Units that
use it have the same images and messages as without.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

__all__ = ["PrecompiledHeaders"]

# The bytes that must be free: a file takes 160 MiB with CUB.
_SPACE = 4 << 30
_SILENT = "--pch-messages=false"
_REFUSED = "precompiled header"


class PrecompiledHeaders:
    """The headers that were precompiled last, in a file of the directory `scratch`."""

    def __init__(self, scratch: Path) -> None:
        self._file = scratch / "headers.pch"
        self._key: tuple[bytes, Sequence[str]] = (b"", ())
        self._is_usable = False
        self._opened: list[str] = []

    def use(
        self,
        source: bytes,
        options: Sequence[str],
        compile_source: Callable[[list[str]], tuple[str, list[str]] | None],
    ) -> list[str]:
        """Return the options to use the headers that `source` includes; none if they cannot be precompiled.

        All units that use them have the same `options`, except for their seed. `compile_source` compiles it
        with further options; it returns the compiler's text and the files that it read, or ``None``.
        """
        import shutil  # slow to import

        key = source, [option for option in options if not option.startswith("--frandom-seed=")]
        if key != self._key:
            self.forget()
            self._key = key
            if shutil.disk_usage(self._file.parent).free >= _SPACE:
                compiled = compile_source([f"--create-pch={self._file}", _SILENT])
                # Headers that cause warnings do so in each unit.
                if compiled and not compiled[0].strip():
                    self._opened = compiled[1]
                    self._is_usable = self._file.exists()
        return [f"--use-pch={self._file}", _SILENT] if self._is_usable else []

    @property
    def opened(self) -> list[str]:
        """The files that were read to precompile the headers."""
        return self._opened

    def forget(self) -> None:
        """Use these headers no more."""
        self._is_usable = False
        with suppress(OSError):
            self._file.unlink()


def were_refused(log: str) -> bool:
    """Whether the compiler says in its `log` that it did not use precompiled headers."""
    return _REFUSED in log
