"""Locks between processes, on files and directories.

A lock coordinates the processes that take it, and prevents no other access. The system releases it when a
process ends in any way. Processes on several machines share it as far as their file system supports that;
on Windows, locks are those of one user on one machine.

Written with the standard library: filelock adds 20 ms to the first launch of a program and leaves a file
beside each path that it locks.
"""

from __future__ import annotations

import contextlib
import os
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

# Seconds between two attempts.
_SHORTEST_PAUSE, _LONGEST_PAUSE = 0.001, 0.05


@contextlib.contextmanager
def lock(path: str | os.PathLike[str], *, create: bool = False, patience: float = 600) -> Iterator[bool]:
    """Hold the lock of the file or directory `path`; yield whether it is held.

    It is not where the system or the file system has no locks, where `path` cannot be opened, and after
    `patience` seconds of waiting, which a process that was stopped may cause. With `create`, `path` is a file
    that exists for the lock alone.
    """
    with contextlib.ExitStack() as stack:
        is_held = False
        with contextlib.suppress(ImportError, OSError):
            descriptor = _open(path, create)
            stack.callback(os.close, descriptor)
            is_held = _wait(descriptor, patience)
            if is_held:
                # Closing does not release it where a child was forked meanwhile.
                stack.callback(_release, descriptor)
        yield is_held


def _wait(descriptor: int, patience: float) -> bool:
    """Attempt to lock until it succeeds; return whether it did."""
    pause, end = _SHORTEST_PAUSE, time.monotonic() + patience
    while not _attempt(descriptor):
        if time.monotonic() >= end:
            return False
        time.sleep(pause)
        pause = min(2 * pause, _LONGEST_PAUSE)
    return True


if sys.platform == "win32":

    def _open(path: str | os.PathLike[str], create: bool) -> int:  # noqa: ARG001
        # Windows opens no directories, and others cannot read a locked file: lock another file instead.
        import hashlib
        import tempfile

        name = hashlib.sha256(os.path.normcase(os.path.abspath(path)).encode()).hexdigest()
        return os.open(f"{tempfile.gettempdir()}/cuda_ext-{name}.lock", os.O_RDWR | os.O_CREAT)

    def _attempt(descriptor: int) -> bool:
        import msvcrt

        try:
            msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
        except PermissionError:
            return False
        return True

    def _release(descriptor: int) -> None:
        import msvcrt

        msvcrt.locking(descriptor, msvcrt.LK_UNLCK, 1)

else:

    def _open(path: str | os.PathLike[str], create: bool) -> int:
        # NFS locks only files that are open for writing.
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW if create else os.O_RDONLY
        return os.open(path, flags | os.O_NONBLOCK, 0o600)

    def _attempt(descriptor: int) -> bool:
        import fcntl

        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def _release(descriptor: int) -> None:
        import fcntl

        fcntl.flock(descriptor, fcntl.LOCK_UN)
