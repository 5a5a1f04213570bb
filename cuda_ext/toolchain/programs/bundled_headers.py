"""The headers of CUDA and CCCL that NVRTC contains from 13.3 on, unpacked once per version into the cache.

NVRTC unpacks them, one process at a time, and marks the directory when all are there.
"""

from __future__ import annotations

import atexit
import ctypes
import os
import re
import shutil
from contextlib import suppress
from functools import cache
from pathlib import Path

from cuda_ext.cache.location import local_directory
from cuda_ext.cache.open_store import find_flaw
from cuda_ext.errors import StoreError, ToolchainError
from cuda_ext.time_limit import call_within
from cuda_ext.toolchain.cuda_libraries import open_library

# The function, available since 13.3, with which NVRTC unpacks its own headers, and the file that marks them.
_INSTALL = "nvrtcInstallBundledHeaders"
_MARK = ".nvrtc_headers_version"
_ROOM = "set CUDA_EXT_CACHE to a directory with room for 30 MiB"  # a remedy
_UNPACKED = re.compile(r"nvrtc-headers-[0-9]+\.[0-9]+")


class _BundledHeaders(ctypes.Structure):
    """``nvrtcBundledHeadersInfo``."""

    _fields_ = (
        ("is_available", ctypes.c_int),
        ("compressed_size", ctypes.c_size_t),
        ("size", ctypes.c_size_t),
        ("major", ctypes.c_int),
        ("minor", ctypes.c_int),
        ("count", ctypes.c_uint),
    )


@cache
def count_bundled() -> int:
    """Return the number of headers that NVRTC contains."""
    nvrtc = open_library("nvrtc")
    if not hasattr(nvrtc, _INSTALL):
        return 0
    info = _BundledHeaders()
    nvrtc.nvrtcGetBundledHeadersInfo(ctypes.byref(info), ctypes.byref(ctypes.c_char_p()))
    return int(info.count)


def unpacked_headers(version: str) -> Path | None:
    """Return the directory of NVRTC's own headers if they have been unpacked into the cache."""
    with suppress(OSError, StoreError, ToolchainError):  # unpacking does not use the cache then
        headers = _directory(version)
        if (headers / _MARK).is_file() and not find_flaw(str(headers.parent))[0]:
            return headers
    return None


def complete_headers(version: str) -> Path | None:
    """Return the directory of NVRTC's own headers, after unpacking any that are missing.

    It is in the cache or, if that cannot be used, a directory of this process. ``None`` if NVRTC contains no
    headers.
    """
    if not (count := count_bundled()):
        return None
    known = unpacked_headers(version)
    if known and count_headers(known) == count:
        return known
    with suppress(OSError, StoreError, ToolchainError):
        headers = _directory(version)
        # NVRTC may empty the directory.
        if not find_flaw(str(headers.parent), create=True)[0] and not headers.is_symlink():
            _unpack(headers)
            return headers
    if version not in _for_now:
        _for_now[version] = _create_for_now()
    _unpack(_for_now[version])
    return _for_now[version]


def count_headers(headers: Path) -> int:
    """Count the files in `headers`, without those of NVRTC's own use."""
    return sum(not name.startswith(".") for _, _, names in os.walk(headers) for name in names)


def measure_unpacked(cache: Path) -> int:
    """Return the size of all unpacked headers in `cache`; files that disappear meanwhile do not count."""
    size = 0
    for headers in _unpacked_directories(cache):
        for parent, _, names in os.walk(headers):
            for name in names:
                with suppress(OSError):
                    size += Path(parent, name).lstat().st_size
    return size


def remove_unpacked(cache: Path) -> int:
    """Remove all unpacked headers in `cache`; return how many directories could not be removed."""
    found = _unpacked_directories(cache)
    for headers in found:
        with suppress(OSError):
            (headers / _MARK).unlink(missing_ok=True)  # first, so that other processes unpack them again
        shutil.rmtree(headers, ignore_errors=True)
    return sum(map(os.path.lexists, found))


def _unpacked_directories(cache: Path) -> list[Path]:
    try:
        found = sorted(path for path in cache.iterdir() if _UNPACKED.fullmatch(path.name))
    except OSError:
        return []
    return [path for path in found if path.is_dir() and not path.is_symlink()]


# By the version of NVRTC.
_for_now: dict[str, Path] = {}


def is_for_now(directory: Path) -> bool:
    """Return True if `directory` was unpacked for this process only, and is removed at its end."""
    return any(directory.is_relative_to(unpacked) for unpacked in _for_now.values())


def _unpack(directory: Path) -> None:
    # This may take seconds. An interrupt can end the wait for a thread, but not a call of NVRTC.
    call_within(None, _install, directory, False)
    # NVRTC looks for its mark alone, unless it is to unpack all of them again.
    if count_headers(directory) != count_bundled():
        call_within(None, _install, directory, True)


def _install(directory: Path, again: bool) -> None:
    log = ctypes.c_char_p()
    if open_library("nvrtc")[_INSTALL](os.fsencode(directory), again, ctypes.byref(log)):
        raise ToolchainError(
            f"NVRTC could not unpack its headers: {(log.value or b'').decode(errors='replace')}",
            where=directory,
            remedy=_ROOM,
        )


def _create_for_now() -> Path:
    """Create a directory that is removed at the end of this process."""
    import tempfile  # slow to import

    try:
        directory = Path(tempfile.mkdtemp(prefix="cuda_ext-nvrtc-headers-"))
    except OSError as error:
        raise ToolchainError(
            f"NVRTC's headers cannot be unpacked: {error.strerror}",
            remedy=_ROOM,
        ) from None
    atexit.register(shutil.rmtree, directory, ignore_errors=True)
    return directory


def _directory(version: str) -> Path:
    return Path(local_directory(os.environ)) / f"nvrtc-headers-{version}"
