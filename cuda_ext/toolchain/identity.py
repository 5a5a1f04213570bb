"""The NVRTC that is installed here, told from any other without loading it, which takes a while."""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path
from typing import NamedTuple

from cuda_ext.errors import ToolchainError
from cuda_ext.formats.netstring import Field, key_of
from cuda_ext.toolchain import discovery
from cuda_ext.toolchain.bindings import binding, library_files

__all__ = ["InstalledNvrtc", "installed_nvrtc"]

# A file is told by its size and this many bytes at either end, where the tables of a library are, which every
# build of it fills otherwise, and the version in a header.
_TELLING = 1 << 16
# Headers that tell which CUDA and which CCCL a directory is of.
_OF_VERSIONS = ("cuda.h", "cuda/std/__cccl/version.h")


class InstalledNvrtc(NamedTuple):
    """Its library, and the major version of CUDA that is in the name of that.

    ``identity`` is another one wherever the compiler or the toolkit's headers are. It is the same on every
    machine with the same files, and the C++ loader comes to the same.
    """

    library: Path
    major: int
    identity: str


@cache
def installed_nvrtc() -> InstalledNvrtc:
    """NVRTC as it would be loaded. Raises :class:`~cuda_ext.errors.ToolchainError` if there is none."""
    library = next(iter(library_files("nvrtc")), None) or _loaded()
    major = int(library.name.removeprefix("libnvrtc.so.").removeprefix("nvrtc64_")[:2])
    headers = [d / name for d in discovery.header_directories(major, library) for name in _OF_VERSIONS]
    told = [*_told(library), *(field for header in headers if header.is_file() for field in _told(header))]
    return InstalledNvrtc(library, major, key_of("nvrtc", *told))


def _loaded() -> Path:
    """The library that cuda-bindings finds on the system, which it does by loading it."""
    binding("nvrtc")
    from cuda.pathfinder import load_nvidia_dynamic_lib

    path = load_nvidia_dynamic_lib("nvrtc").abs_path
    if path is None:
        raise ToolchainError(
            "NVRTC was loaded from a file that nobody tells; set CUDA_PATH to the toolkit that it belongs to"
        )
    return Path(path)


def _told(file: Path) -> list[Field]:
    with file.open("rb") as opened:
        size = os.fstat(opened.fileno()).st_size
        first = opened.read(_TELLING)
        opened.seek(max(0, size - _TELLING))
        return [file.name, str(size), first, opened.read(_TELLING)]
