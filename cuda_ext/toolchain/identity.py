"""The identity of a tool: equal on every machine with the same files, found without loading them.

A file is identified by its name, its size, and its first and last 64 KiB. That suffices for NVIDIA's
libraries, which take longer to read whole than a small build takes: one of the two holds their GNU build ID.
Files without one, such as nvcc's programs and libdevice, are read whole. The C++ loader computes the same for
NVRTC (``include/cuda_ext/on_demand``).
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

from cuda_ext.filesystem.file_digest import digest_file
from cuda_ext.formats.codec import Field, key_of
from cuda_ext.toolchain import cuda_packages
from cuda_ext.toolchain.cuda_libraries import library_files, open_library, system_library

__all__ = ["InstalledNvrtc", "identity_of", "installed_nvrtc", "linker_files"]

_SAMPLE = 1 << 16
# Headers that hold the version of CUDA and of CCCL.
_VERSION_HEADERS = ("cuda.h", "cuda/std/__cccl/version.h")


def identity_of(
    name: str,
    files: Iterable[Path],
    version: str = "",
    digest: Callable[[str], str | None] = digest_file,
) -> str:
    """Return the identity of the tool `name`, which consists of `files`; without files, of its `version`.

    `digest` returns the digest of a whole file; it may remember digests.
    """
    fields = [field for file in files for field in _describe(file, digest)]
    return key_of(name, *(fields or [version]))


class InstalledNvrtc(NamedTuple):
    """The NVRTC that compilation on demand uses: its library, and its major version.

    The ``identity`` includes nvJitLink, which optimises what NVRTC compiles, and the toolkit's headers, since
    those that a compilation on demand reads are not recorded. Builds record them.
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
    files = [library, *library_files("nvjitlink"), *(header for header in headers if header.is_file())]
    return InstalledNvrtc(
        library, major, key_of("nvrtc", *(field for file in files for field in _sample(file)))
    )


def linker_files() -> list[Path]:
    """The files that determine the result of a link besides its inputs; empty where they are not known."""
    libraries = library_files("nvjitlink")
    major = re.search(r"\.so\.(\d+)|_(\d\d)\d_", libraries[0].name) if libraries else None
    runtime = cuda_packages.cudadevrt(int(major[1] or major[2]), libraries[0]) if major else None
    return [*libraries, *([runtime] if runtime else [])]


def _loaded() -> Path:
    """The library that cuda-pathfinder finds on the system, by loading it."""
    open_library("nvrtc")
    return system_library("nvrtc")


# The beginning of the ELF note that holds a build ID of 20 bytes, for little-endian machines.
_BUILD_ID = b"\x04\0\0\0\x14\0\0\0\x03\0\0\0GNU\0"


def _describe(file: Path, digest: Callable[[str], str | None]) -> Iterator[Field]:
    name, size, first, last = _sample(file)
    yield from (name, size, first, last)
    if _BUILD_ID not in first and _BUILD_ID not in last:
        yield digest(str(file))


def _sample(file: Path) -> tuple[str, str, bytes, bytes]:
    with file.open("rb") as opened:
        size = os.fstat(opened.fileno()).st_size
        first = opened.read(_SAMPLE)
        opened.seek(max(0, size - _SAMPLE))
        return file.name, str(size), first, opened.read(_SAMPLE)
