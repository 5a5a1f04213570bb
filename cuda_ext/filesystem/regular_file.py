"""Read regular files alone: a pipe, a device or a socket in the place of one is refused."""

from __future__ import annotations

import errno
import os
import stat

TYPE_CHECKING = False
if TYPE_CHECKING:
    from io import FileIO
    from typing import Any

_LARGEST = 2 << 30  # bytes of a file that is read
# Opening a pipe does not block.
_FLAGS = os.O_RDONLY | sum(getattr(os, name, 0) for name in ("O_BINARY", "O_CLOEXEC", "O_NONBLOCK"))


def check_regular(status: os.stat_result, path: str) -> None:
    """Raise :class:`OSError` unless `status` is that of a regular file."""
    if stat.S_ISDIR(status.st_mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
    if not stat.S_ISREG(status.st_mode):
        raise OSError(errno.EINVAL, "it is not a regular file", path)


def _open_file(path: str) -> FileIO:
    descriptor = os.open(path, _FLAGS)
    try:
        check_regular(os.fstat(descriptor), path)
    except OSError:
        os.close(descriptor)
        raise
    return open(descriptor, "rb", 0)


def read_file(path: str) -> bytes:
    """Read a regular file of at most 2 GiB. Raises :class:`OSError`."""
    with _open_file(path) as file:
        if os.fstat(file.fileno()).st_size > _LARGEST:
            raise OSError(errno.EFBIG, "it is larger than 2 GiB", path)
        return file.readall()


def read_of_package(loader: Any, path: str) -> bytes:
    """Read a file of a package, by its `loader` if it is in an archive. Raises :class:`OSError`."""
    try:
        return read_file(path)
    except (FileNotFoundError, NotADirectoryError):
        content: bytes = loader.get_data(path)
        return content


def digest_file(path: str) -> str:
    """Return the BLAKE2 digest of a regular file. Raises :class:`OSError`."""
    import hashlib  # slow to import
    from functools import partial

    # One and a half times as fast as SHA-256, for programs of 100 MiB.
    with _open_file(path) as file:
        return hashlib.file_digest(file, partial(hashlib.blake2b, digest_size=32)).hexdigest()
