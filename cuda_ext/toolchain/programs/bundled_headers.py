"""The headers of CUDA and CCCL that NVRTC contains from 13.3 on, unpacked once per version into the cache.

Any of them may vanish or be damaged. A list of them, which is written with them, shows that; they are then
unpacked again.
"""

from __future__ import annotations

import atexit
import os
import re
import shutil
import stat
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

from cuda_ext.cache.location import local_directory
from cuda_ext.errors import StoreError, ToolchainError
from cuda_ext.filesystem.atomic_directory import create_directory, remove_directory
from cuda_ext.filesystem.private_directory import create_directories, distrust, exposure
from cuda_ext.filesystem.regular_file import read_file

# Directories of unpacked headers; a dot before the name marks the remains of an interrupted process.
_UNPACKED = re.compile(r"\.?nvrtc-headers-[0-9]+\.[0-9]+(\..+)?")
# Lines with the size of a file, or "d" for a directory, its time of modification in nanoseconds, and a path.
_LIST = "cuda_ext.list"
_SECOND = 10**9


def find_damage(headers: Path, *, in_files: bool) -> str:
    """Explain why unpacked `headers` are not used; empty if they are. With `in_files`, look at each file.

    A file that vanishes changes its directory, of which there are 150; there are 2400 files.
    """
    try:
        if why := distrust(headers.lstat()):
            return why
        listed = read_file(f"{headers}/{_LIST}").decode("utf-8", "surrogateescape").splitlines()
    except OSError as error:
        return f"the list of its files cannot be read: {error.strerror}"
    for line in listed:
        kind, _, rest = line.partition(" ")
        modified, _, name = rest.partition(" ")
        if kind == "d" or in_files:
            try:
                status = os.lstat(f"{headers}/{name}")
                is_same = _kind(status) == kind and _is_same_time(status.st_mtime_ns, int(modified))
            except (OSError, ValueError):
                is_same = False
            if not is_same:
                return f"{name or 'it'} is not as it was unpacked"
    return "" if listed else "the list of its files is empty"


def unpacked_headers(version: str, *, in_files: bool) -> Path | None:
    """Return the directory of NVRTC's own headers, if they have been unpacked and are not damaged."""
    with suppress(OSError, StoreError, ToolchainError):  # unpacking does not use the cache then
        directory = _directory(version)
        if directory.is_dir() and not exposure(str(directory.parent)):
            return None if find_damage(directory, in_files=in_files) else directory
    return None


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
    return sum(not _remove(headers) for headers in _unpacked_directories(cache))


def _unpacked_directories(cache: Path) -> list[Path]:
    """All unpacked headers in `cache`, and the remains of interrupted processes."""
    try:
        found = sorted(path for path in cache.iterdir() if _UNPACKED.fullmatch(path.name))
    except OSError:
        return []
    return [path for path in found if path.is_dir() and not path.is_symlink()]


def _remove(headers: Path) -> bool:
    """Remove unpacked `headers`, unless other users may write to them; return whether they are gone."""
    try:
        if not distrust(headers.lstat()):
            remove_directory(headers)
    except FileNotFoundError:
        pass
    except OSError:
        return False
    return not os.path.lexists(headers)


# By the version of NVRTC.
_for_now: dict[str, Path] = {}


def is_for_now(directory: Path) -> bool:
    """Return True if `directory` was unpacked for this process only, and is removed at its end."""
    return any(directory.is_relative_to(unpacked) for unpacked in _for_now.values())


def unpack_headers(version: str, unpack: Callable[[Path], None]) -> Path:
    """Unpack NVRTC's own headers into a directory of the cache, by calling `unpack`; replace damaged ones.

    If the cache cannot be used, or other users could change its content, a directory of this process is used.
    """

    def unpack_with_list(directory: Path) -> None:
        unpack(directory)
        directory.chmod(0o700)
        (directory / _LIST).touch(0o600)  # the time of the directory is that of its last new file
        lines = [line for line in _list(directory) if not line.endswith(f" {_LIST}")]
        (directory / _LIST).write_text("\n".join(lines), "utf-8", "surrogateescape")

    def is_whole(directory: Path) -> bool:
        return not find_damage(directory, in_files=True)

    with suppress(OSError, StoreError, ToolchainError):
        directory = _directory(version)
        if not exposure(str(directory.parent)):
            create_directories(str(directory.parent))
            create_directory(directory, unpack_with_list, is_whole)
            return directory
    directory = _for_now.get(version, Path())
    if not is_whole(directory):
        directory = _for_now[version] = _create_for_now()
        unpack_with_list(directory)
    return directory


def _create_for_now() -> Path:
    """Create a directory that is removed at the end of this process."""
    import tempfile  # slow to import

    try:
        directory = Path(tempfile.mkdtemp(prefix="cuda_ext-nvrtc-headers-"))
    except OSError as error:
        raise ToolchainError(
            f"NVRTC's headers cannot be unpacked: {error.strerror}",
            remedy="set CUDA_EXT_CACHE to a directory with room for 30 MiB",
        ) from None
    atexit.register(shutil.rmtree, directory, ignore_errors=True)
    return directory / "headers"


def _directory(version: str) -> Path:
    return Path(local_directory(os.environ)) / f"nvrtc-headers-{version}"


def _list(directory: Path) -> Iterator[str]:
    """The lines for `directory` and all that is in it."""
    for parent, _, files in os.walk(directory):
        for path in (parent, *(f"{parent}/{name}" for name in files)):
            status = os.lstat(path)
            name = os.path.relpath(path, directory).replace(os.sep, "/")
            yield f"{_kind(status)} {status.st_mtime_ns} {name}"


def _kind(status: os.stat_result) -> str:
    return "d" if stat.S_ISDIR(status.st_mode) else str(status.st_size)


def _is_same_time(found: int, listed: int) -> bool:
    """Return True if two times are the same. Copies of a cache may lack fractions of a second."""
    return found == listed or (found % _SECOND == 0 and found // _SECOND == listed // _SECOND)
