"""The identity of a tool: equal on every machine with the same files, found without loading them.

A file is identified by its name, its size, and its first and last 64 KiB. Tools are ELF files or DLLs of up
to 140 MB: reading them whole takes longer than a small build, and their ends hold the build ID and the tables
of sections, which differ between any two builds of a tool. The C++ loader computes the same for NVRTC
(``include/cuda_ext/on_demand``).
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import NamedTuple

from cuda_ext.errors import ToolchainError
from cuda_ext.formats.netstring import Field, key_of
from cuda_ext.toolchain import cuda_packages
from cuda_ext.toolchain.bindings import binding, library_files

__all__ = ["InstalledNvrtc", "identity_of", "installed_nvrtc", "linker_files"]

_SAMPLE = 1 << 16
# Headers that hold the version of CUDA and of CCCL.
_VERSION_HEADERS = ("cuda.h", "cuda/std/__cccl/version.h")


def identity_of(name: str, files: Iterable[Path], version: str = "") -> str:
    """The identity of the tool `name`, which consists of `files`; without files, its `version` counts."""
    samples = [field for file in files for field in _sample(file)]
    return key_of(name, *(samples or [version]))


class InstalledNvrtc(NamedTuple):
    """The NVRTC that compilation on demand uses: its library, and its major version.

    The toolkit's headers are part of this ``identity``, since the headers that a compilation on demand reads
    are not recorded. Builds record them, and use the identity of the library alone.
    """

    library: Path
    major: int
    identity: str


@cache
def installed_nvrtc() -> InstalledNvrtc:
    """Find NVRTC without loading it. Raises :class:`~cuda_ext.errors.ToolchainError` if there is none."""
    library = next(iter(library_files("nvrtc")), None) or _loaded()
    major = int(library.name.removeprefix("libnvrtc.so.").removeprefix("nvrtc64_")[:2])
    headers = [
        d / name for d in cuda_packages.header_directories(major, library) for name in _VERSION_HEADERS
    ]
    files = [library, *(header for header in headers if header.is_file())]
    return InstalledNvrtc(library, major, identity_of("nvrtc", files))


def linker_files() -> list[Path]:
    """The files that determine the result of a link besides its inputs; empty where they are not known."""
    libraries = library_files("nvjitlink")
    major = re.search(r"\.so\.(\d+)|_(\d\d)\d_", libraries[0].name) if libraries else None
    runtime = cuda_packages.cudadevrt(int(major[1] or major[2])) if major else None
    return [*libraries, *([runtime] if runtime else [])]


def _loaded() -> Path:
    """The library that cuda-bindings finds on the system, by loading it."""
    binding("nvrtc")
    from cuda.pathfinder import load_nvidia_dynamic_lib

    path = load_nvidia_dynamic_lib("nvrtc").abs_path
    if path is None:
        raise ToolchainError(
            "cannot determine which libnvrtc was loaded",
            remedy="set CUDA_PATH to the toolkit that it belongs to",
        )
    return Path(path)


def _sample(file: Path) -> list[Field]:
    with file.open("rb") as opened:
        size = os.fstat(opened.fileno()).st_size
        first = opened.read(_SAMPLE)
        opened.seek(max(0, size - _SAMPLE))
        return [file.name, str(size), first, opened.read(_SAMPLE)]
