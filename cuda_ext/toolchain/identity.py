"""The identity of a tool: equal on every machine with the same files, found without loading them.

A file is identified by its name, its size, and its GNU build ID, which NVIDIA's libraries have near one of
their ends: reading them whole takes longer than a small build. Files without a build ID, such as nvcc's
programs and libdevice, are read whole.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from typing import NamedTuple

from cuda_ext.facts.codec import Field, key_of
from cuda_ext.filesystem.regular_file import digest_file
from cuda_ext.toolchain import cuda_packages
from cuda_ext.toolchain.cuda_libraries import library_files, open_library, system_library

_SAMPLE = 1 << 15
# Headers with the versions of CUDA and of CCCL.
_VERSION_HEADERS = ("cuda.h", "cuda/std/__cccl/version.h")


def identity_of(
    name: str,
    files: Iterable[str | os.PathLike[str]],
    version: str = "",
    digest: Callable[[str], str | None] = digest_file,
) -> str:
    """Return the identity of the tool `name`, which consists of `files`; without files, of its `version`.

    `digest` returns the digest of a whole file; it may remember digests.
    """
    fields = [field for file in files for field in _describe(os.fspath(file), digest)]
    return key_of(name, *(fields or [version]))


class InstalledNvrtc(NamedTuple):
    """The NVRTC that compilation on demand uses: its library, and its major version.

    The ``identity`` includes nvJitLink, which optimises NVRTC's output, and the toolkit's headers, since a
    compilation on demand does not record the headers that it reads. Builds record them.
    """

    library: str
    major: int
    identity: str


@cache
def installed_nvrtc() -> InstalledNvrtc:
    """Find NVRTC without loading it. Raises :class:`~cuda_ext.errors.ToolchainError` if there is none."""
    library = next(iter(library_files("nvrtc")), None) or _loaded()
    major = int(os.path.basename(library).removeprefix("libnvrtc.so.").removeprefix("nvrtc64_")[:2])
    directories = cuda_packages.header_directories(major, library)
    headers = [f"{directory}/{name}" for directory in directories for name in _VERSION_HEADERS]
    files = [library, *library_files("nvjitlink"), *filter(os.path.isfile, headers)]
    # Both ends of a header contain its version.
    fields = [field for file in files for field in _describe(file, lambda _: None)]
    return InstalledNvrtc(library, major, key_of("nvrtc", *fields))


def linker_files() -> list[str]:
    """List the files that determine the result of a link besides its inputs; empty if they are not known."""
    libraries = library_files("nvjitlink")
    major = re.search(r"\.so\.(\d+)|_(\d\d)\d_", os.path.basename(libraries[0])) if libraries else None
    runtime = cuda_packages.cudadevrt(int(major[1] or major[2]), libraries[0]) if major else None
    return [*libraries, runtime] if runtime else libraries


def _loaded() -> str:
    """Return the library that cuda-pathfinder finds on the system, by loading it."""
    open_library("nvrtc")
    return system_library("nvrtc")


# The beginning of the ELF note that holds a build ID of 20 bytes, for little-endian machines.
_BUILD_ID, _BUILD_ID_SIZE = b"\x04\0\0\0\x14\0\0\0\x03\0\0\0GNU\0", 20


def _describe(file: str, digest: Callable[[str], str | None]) -> Iterator[Field]:
    with open(file, "rb", 0) as opened:
        size = os.fstat(opened.fileno()).st_size
        first = opened.read(_SAMPLE)
        opened.seek(max(0, size - _SAMPLE))
        last = opened.read(_SAMPLE)
    yield from (os.path.basename(file), str(size))
    for sample in (first, last):
        _, note, content = sample.partition(_BUILD_ID)
        if note and len(content) >= _BUILD_ID_SIZE:
            yield content[:_BUILD_ID_SIZE]
            return
    yield from (first, last, digest(file))
