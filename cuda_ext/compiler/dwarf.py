"""pyelftools, which reads DWARF. Importing this module says what to install where it is missing."""

from __future__ import annotations

from cuda_ext.errors import ToolchainError

try:
    from elftools.dwarf.dwarfinfo import DebugSectionDescriptor, DwarfConfig, DWARFInfo
except ImportError as error:
    raise ToolchainError(
        f'compiling needs pyelftools ({error}); install "cuda-ext[cu13]" (or "cuda-ext[cu12]")'
    ) from None

__all__ = ["DWARFInfo", "DebugSectionDescriptor", "DwarfConfig"]
