"""The headers of CUDA and CCCL that NVRTC contains from 13.3 on, unpacked once per version into the cache."""

from __future__ import annotations

import atexit
import os
import re
import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from cuda_ext.cache.location import local_directory
from cuda_ext.errors import StoreError, ToolchainError
from cuda_ext.filesystem.atomic_directory import create_directory, remove_directory
from cuda_ext.filesystem.private_directory import create_directories, distrust, exposure

__all__ = ["is_for_now", "remove_unpacked", "unpack_headers", "unpacked_directories", "unpacked_headers"]

# Directories of unpacked headers; a dot before the name marks the remains of an interrupted process.
_UNPACKED = re.compile(r"\.?nvrtc-headers-[0-9]+\.[0-9]+(\..+)?")


def unpacked_headers(version: str) -> Path | None:
    """Return the directory of NVRTC's own headers, if they have been unpacked."""
    cache = Path(local_directory(os.environ))
    directory = cache / f"nvrtc-headers-{version}"
    try:
        if not directory.is_dir() or exposure(str(cache)):
            return None
    except OSError:
        return None  # unpacking does not use the cache then
    if why := distrust(os.lstat(directory)):
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
        elif not distrust(headers.lstat()):
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
        cache = Path(local_directory(os.environ))
        if not exposure(str(cache)):
            create_directories(str(cache))
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
