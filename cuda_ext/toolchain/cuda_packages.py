"""Finds the headers and libraries of the tool chain.

The registry's wheels come first, then the toolkit that ``CUDA_PATH`` or ``CUDA_HOME`` names. NVRTC contains
the CUDA and CCCL headers from 13.3 on; they are unpacked once per version into the user's cache directory.
"""

from __future__ import annotations

import atexit
import importlib.util
import os
import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

from cuda_ext.cache.location import distrust, exposure, local_directory
from cuda_ext.errors import StoreError, ToolchainError
from cuda_ext.filesystem.atomic_directory import create_directory, remove_directory

__all__ = [
    "cudadevrt",
    "header_directories",
    "is_for_now",
    "library_directories",
    "nvidia_packages",
    "remove_unpacked",
    "unpack_headers",
    "unpacked_directories",
    "unpacked_headers",
]

# Directories of unpacked headers; a dot before the name marks the remains of an interrupted process.
_UNPACKED = re.compile(r"\.?nvrtc-headers-[0-9]+\.[0-9]+(\..+)?")


def header_directories(major: int, library: Path | None = None) -> list[Path]:
    """List the include directories of the installed CUDA packages of that major version, CCCL's included.

    Those of the toolkit that `library` belongs to come last.
    """
    directories = []
    for directory in (*_roots(major), *([library.parent.parent] if library else [])):
        for include in (directory / "include", directory / "include" / "cccl"):
            if include.is_dir() and include not in directories:
                directories.append(include)
    return directories


def library_directories(name: str, major: int) -> list[Path]:
    """List the directories that may hold the library `name` (``nvrtc``, ``nvfatbin``...), in order."""
    package = f"cu{major}" if major >= 13 else {"nvrtc": "cuda_nvrtc"}.get(name, name)
    places: list[Path] = []
    for nvidia in nvidia_packages():
        places += (nvidia / package / place for place in ("lib", "bin", "bin/x86_64", "bin/x64"))
    for root in _configured():
        places += (root / "lib64", root / "lib", *root.glob("targets/*/lib"), root / "bin")
    return [place for place in places if place.is_dir()]


def cudadevrt(major: int, library: Path | None = None) -> Path | None:
    """Find the device runtime library, with which device code that launches kernels is linked.

    The one beside `library`, or in its toolkit, comes last.
    """
    directories = [root / place for root in _roots(major) for place in ("lib", "lib64", "lib/x64")]
    if library:
        directories += [library.parent, library.parent.parent / "lib/x64"]
    files = (directory / name for directory in directories for name in ("libcudadevrt.a", "cudadevrt.lib"))
    return next(filter(Path.is_file, files), None)


def _roots(major: int) -> Iterator[Path]:
    for nvidia in nvidia_packages():
        if major >= 13:
            yield nvidia / f"cu{major}"
        else:
            yield from (nvidia / "cuda_runtime", nvidia / "cuda_cccl")
            # Before 13, each package has a directory of its own; cu13 belongs to the next version.
            yield from sorted(
                p for p in nvidia.iterdir() if (p / "include").is_dir() and not re.fullmatch(r"cu\d+", p.name)
            )
    yield from _configured()


def _configured() -> list[Path]:
    """The toolkits that the environment names."""
    return [Path(root) for name in ("CUDA_PATH", "CUDA_HOME") if (root := os.environ.get(name))]


def nvidia_packages() -> list[Path]:
    """List the directories of the registry's CUDA packages."""
    spec = importlib.util.find_spec("nvidia")
    return [Path(p) for p in (spec.submodule_search_locations or [])] if spec else []


def unpacked_headers(version: str) -> Path | None:
    """Return the directory of NVRTC's own headers, if they have been unpacked."""
    cache = local_directory(os.environ)
    directory = cache / f"nvrtc-headers-{version}"
    try:
        if not directory.is_dir() or exposure(cache):
            return None
    except OSError:
        return None  # unpacking does not use the cache then
    if why := distrust(directory):
        raise ToolchainError(
            f"NVRTC's headers there are not used: {why}",
            where=directory,
            remedy="remove it, or set CUDA_EXT_CACHE to a directory that only you can write",
        )
    return directory


def unpacked_directories(cache: Path) -> list[Path]:
    """List all unpacked headers in `cache`, and the remains of interrupted processes."""
    try:
        return sorted(p for p in cache.iterdir() if _UNPACKED.fullmatch(p.name) and p.is_dir())
    except OSError:
        return []


def remove_unpacked(headers: Path) -> bool:
    """Remove unpacked `headers`, unless other users may write to them; return whether they are gone."""
    try:
        if headers.is_symlink():
            headers.unlink()
        elif not distrust(headers):
            remove_directory(headers)
    except FileNotFoundError:
        pass
    except OSError:
        return False
    return not os.path.lexists(headers)


_for_now: list[Path] = []


def is_for_now(directory: Path) -> bool:
    """Whether `directory` was unpacked for this process only, and is removed at its end."""
    return any(directory.is_relative_to(unpacked) for unpacked in _for_now)


def unpack_headers(version: str, unpack: Callable[[Path], None]) -> Path:
    """Unpack NVRTC's own headers into a directory of the cache, by calling `unpack`.

    If the cache cannot be used, or other users could change its content, a directory of this process is used.
    """

    def unpack_for_owner(directory: Path) -> None:
        unpack(directory)
        directory.chmod(0o700)

    with suppress(OSError, StoreError, ToolchainError):
        cache = local_directory(os.environ)
        cache.mkdir(parents=True, exist_ok=True, mode=0o700)
        if not exposure(cache):
            directory = cache / f"nvrtc-headers-{version}"
            create_directory(directory, unpack_for_owner)
            return directory
    return _unpacked_for_now(unpack)


def _unpacked_for_now(unpack: Callable[[Path], None]) -> Path:
    """Unpack into a directory that is removed at the end of this process."""
    import tempfile  # slow to import

    try:
        directory = Path(tempfile.mkdtemp(prefix="cuda_ext-nvrtc-headers-"))
    except OSError as error:
        raise ToolchainError(
            f"NVRTC's headers cannot be unpacked: {error.strerror}",
            remedy="set CUDA_EXT_CACHE to a directory with room for 30 MB",
        ) from None
    atexit.register(shutil.rmtree, directory, ignore_errors=True)
    _for_now.append(directory)
    unpack(directory / "headers")
    return directory / "headers"
