"""pyelftools' DWARF reader. Importing this module raises a :class:`ToolchainError` where it is missing."""

from __future__ import annotations

from typing import Any

from cuda_ext.errors import ToolchainError

try:
    from elftools.construct import Construct
    from elftools.dwarf.dwarfinfo import DebugSectionDescriptor, DwarfConfig, DWARFInfo
except ImportError as error:
    raise ToolchainError(
        f"compiling needs pyelftools ({error})", remedy='install "cuda-ext[cu13]" (or "cuda-ext[cu12]")'
    ) from None

__all__ = ["DWARFInfo", "DebugSectionDescriptor", "DwarfConfig", "InlineText"]


class InlineText(Construct):
    """``DW_FORM_string``, the form of all names, read at once instead of byte by byte."""

    def _parse(self, stream: Any, _context: object) -> bytes:
        buffer, start = stream.getvalue(), stream.tell()
        end = buffer.index(0, start)
        stream.seek(end + 1)
        text: bytes = buffer[start:end]
        return text
