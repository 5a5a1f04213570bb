"""Files of a local store: how they are opened, written, listed and removed.

Other processes may remove any file or directory of the store at any time.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
from collections.abc import Iterator
from pathlib import Path

__all__ = ["list_files", "open_to_append", "open_to_read", "read_file", "remove_file", "write_file"]

_GONE = {errno.ENOENT, errno.ESTALE}
# Links are not followed, and a pipe in an entry's place does not block.
_READ_FLAGS = os.O_RDONLY | sum(getattr(os, name, 0) for name in ("O_BINARY", "O_NOFOLLOW", "O_NONBLOCK"))


def read_file(path: str) -> tuple[bytes, float]:
    """Return a file's content and its time of modification. Twice as fast as with a file object."""
    descriptor = os.open(path, _READ_FLAGS)
    try:
        status = os.fstat(descriptor)
        return os.read(descriptor, status.st_size), status.st_mtime
    finally:
        os.close(descriptor)


def open_to_read(path: str, _: int) -> int:
    """Open `path`, as the ``opener`` of :func:`open`."""
    return os.open(path, _READ_FLAGS)


def open_to_append(path: str, flags: int) -> int:
    """Open or create `path` for its owner alone, as the ``opener`` of :func:`open`."""
    return os.open(path, flags | getattr(os, "O_NOFOLLOW", 0), 0o600)


def write_file(path: Path, content: bytes, temporary: Path) -> None:
    """Write `path` by a rename from `temporary`, a directory of the store; create missing directories."""
    for attempt in range(3):
        try:
            return _rename_into_place(path, content, temporary)
        except OSError as error:
            if error.errno not in _GONE or attempt == 2:
                raise
        for directory in (temporary.parent, temporary, path.parent):  # each for its owner alone
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    return None


def list_files(*directories: str | Path) -> Iterator[tuple[float, int, str]]:
    """List the time of modification, size and path of each file in `directories`."""
    for directory in directories:
        with contextlib.suppress(OSError), os.scandir(directory) as entries:
            for entry in entries:
                with contextlib.suppress(OSError):
                    status = entry.stat(follow_symlinks=False)
                    yield status.st_mtime, status.st_size, entry.path


def remove_file(path: str | Path) -> bool:
    """Remove a file; return whether it is gone."""
    with contextlib.suppress(OSError):
        Path(path).unlink(missing_ok=True)
        return True
    return False


def _rename_into_place(path: Path, content: bytes, temporary: Path) -> None:
    # Nothing is synced to the disk: after a power failure, the digest shows the damage.
    file = temporary / f"{os.urandom(8).hex()}.{os.getpid()}.{_host()}"
    try:
        with open(file, "xb", opener=open_to_append) as opened:
            opened.write(content)
        file.replace(path)
    except BaseException as error:
        remove_file(file)
        # Windows does not replace a file that is being read. If that is damaged, the next put replaces it.
        if not (os.name == "nt" and isinstance(error, PermissionError) and path.exists()):
            raise


def _host() -> str:
    """The name of this machine; processes of different machines may have the same number."""
    name = os.uname().nodename if hasattr(os, "uname") else os.environ.get("COMPUTERNAME", "")
    return re.sub(r"[^A-Za-z0-9-]", "_", name)[:64]
