"""The store of one machine or one user: entries as files of a directory.

Any number of processes on any number of machines may use it at once, without waiting for each other. Entries
appear by rename, and each get verifies their digest: a killed writer, a full disk, a power failure or a
concurrent prune cause misses at worst. The digest detects damage; it does not guard against users who may
write to the directory, which :mod:`~cuda_ext.cache.open_store` checks. Nothing is guaranteed to be kept.
"""

from __future__ import annotations

import contextlib
import errno
import math
import os
import re
import time
from _thread import allocate_lock
from typing import TYPE_CHECKING, NamedTuple

from cuda_ext.cache.store import KEY_PATTERN, pack, unpack
from cuda_ext.errors import StoreError
from cuda_ext.filesystem.locks import lock
from cuda_ext.filesystem.regular_file import read_file

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

# Directories of entries, the names of entries in them, and those of unfinished writes.
_SHARD, _NAME = re.compile("[0-9a-f]{2}"), re.compile("[0-9a-f]{62}")
_UNFINISHED = re.compile(r"\.[0-9a-f]{62}\.[0-9a-f]+\.cuda_ext")
_HOUR = 3600
_PRUNED = 0.8  # the share of its bound that a store has after it was pruned
_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
_GONE = {errno.ENOENT, errno.ESTALE}  # the directory has been removed meanwhile


class StoredFile(NamedTuple):
    """An entry or an unfinished write, in a directory of the store."""

    path: str
    size: int
    modified: float  # an entry's last use, to the hour
    is_entry: bool


class LocalStore:
    """A :class:`~cuda_ext.cache.store.Store` in `directory` of at most `bound` bytes."""

    def __init__(self, directory: str | Path, bound: int, warn: Callable[[str], None]) -> None:
        self.directory = str(directory)
        self._objects = os.path.join(directory, "objects")
        self.bound = bound
        self._warn: Callable[[str], None] | None = warn
        self._lock = allocate_lock()

    def get(self, key: str) -> bytes | None:
        path = self._path(key)
        try:
            content = unpack(key, read_file(path))
            if content is not None and os.stat(path).st_mtime < time.time() - _HOUR:
                with contextlib.suppress(OSError):
                    os.utime(path)
        except (OSError, MemoryError):
            return None
        return content

    def put(self, key: str, content: bytes) -> None:
        path, entry = self._path(key), pack(key, content)
        try:
            is_new = self._write(path, entry)
        except OSError as error:
            self._warn_once(error)
            return
        if is_new:
            # In a new file, this size is where the time of a scan would be, so the next prune scans.
            with contextlib.suppress(OSError), open(self._total, "ab") as file:
                file.write(b"%d " % len(entry))

    @contextlib.contextmanager
    def lock(self, key: str) -> Iterator[None]:
        """Wait while another process computes the content of `key`.

        This avoids duplicate work and guards nothing: without locks, or after ten minutes, go on regardless.
        """
        # One file for many keys, so that none must be removed.
        path = f"{self._objects}/locks/{key[:2]}"
        with contextlib.suppress(OSError):
            os.makedirs(os.path.dirname(path), exist_ok=True)
        with lock(path, create=True):
            yield

    def prune(self) -> None:
        """Reduce the entries to 80 % of the bound if they exceed it. Never raises.

        Entries are removed in the order of their last use, which is known to the hour. Until the next prune,
        the store may exceed its bound by what is written meanwhile.

        Most prunes need no scan: the file ``total`` has the time of the last one, the size that it counted,
        and the size of each entry written since.
        """
        if self._estimate() <= self.bound:
            return
        files = list(self.files())
        for file in files:
            # Of a killed writer: no write takes an hour.
            if not file.is_entry and file.modified < time.time() - _HOUR:
                _remove(file.path)
        entries = sorted((file for file in files if file.is_entry), key=lambda file: file.modified)
        total = sum(file.size for file in entries)
        if total > self.bound:
            for file in entries:
                if total <= self.bound * _PRUNED:
                    break
                if _remove(file.path):
                    total -= file.size
        with contextlib.suppress(OSError):
            self._write(self._total, b"%d %d " % (time.time(), total))

    def close(self, *, now: bool = False) -> None:
        pass

    def files(self) -> Iterator[StoredFile]:
        """List the entries and unfinished writes; whatever else lies in the directory is left out."""
        for directory in _list(self._objects):
            if not (_SHARD.fullmatch(directory.name) and directory.is_dir(follow_symlinks=False)):
                continue
            for file in _list(directory.path):
                is_entry = _NAME.fullmatch(file.name) is not None
                is_ours = is_entry or _UNFINISHED.fullmatch(file.name)
                with contextlib.suppress(OSError):  # it is gone
                    if is_ours and file.is_file(follow_symlinks=False):
                        status = file.stat()
                        yield StoredFile(file.path, status.st_size, status.st_mtime, is_entry)

    def clear(self) -> int:
        """Remove all entries and unfinished writes; return how many of them could not be removed."""
        _remove(self._total)  # the next prune scans
        # Locks stay: they are empty, and may be held.
        return sum(not _remove(file.path) for file in list(self.files()))

    def _path(self, key: str) -> str:
        if not KEY_PATTERN.fullmatch(key):
            raise ValueError(f"not a key: {key!r}")
        return f"{self._objects}/{key[:2]}/{key[2:]}"

    @property
    def _total(self) -> str:
        return f"{self._objects}/total"

    def _estimate(self) -> float:
        """Return the size of all entries by the file ``total``; infinite if that is damaged or old."""
        try:
            scanned, *sizes = map(int, read_file(self._total).split())
        except (OSError, ValueError):
            return math.inf
        # A clock that was set back must not put off the next scan.
        return sum(sizes) if abs(time.time() - scanned) < _HOUR else math.inf

    def _write(self, path: str, content: bytes) -> bool:
        """Write a file; return False if it is there, or being read on Windows, which does not replace it."""
        from pathlib import Path  # slow to import

        from cuda_ext.filesystem.atomic_directory import replace_file

        # Nothing is synced to the disk: after a power failure, the digest shows the damage.
        for attempt in range(3):
            try:
                return replace_file(Path(path), content)
            except OSError as error:
                if os.name == "nt" and isinstance(error, PermissionError):
                    break
                if error.errno not in _GONE or attempt == 2:
                    raise
        return False

    def _warn_once(self, error: OSError) -> None:
        with self._lock:
            warn, self._warn = self._warn, None
        if warn:
            remedy = "set CUDA_EXT_CACHE to another directory"
            if error.errno in _FULL:
                remedy = f"free some space, lower CUDA_EXT_CACHE_SIZE, or {remedy}"
            warn(without_cache(self.directory, error.strerror or str(error), remedy))


def without_cache(directory: str | Path, reason: str, remedy: str) -> str:
    """Make the text of the warning that the cache in `directory` is not used."""
    problem = f"compiling goes on without a cache: {reason}"
    return str(StoreError(problem, where=str(directory), remedy=remedy))


def _list(directory: str) -> list[os.DirEntry[str]]:
    """List what is in a directory; empty if it cannot be read."""
    try:
        with os.scandir(directory) as entries:
            return list(entries)
    except OSError:
        return []


def _remove(path: str) -> bool:
    """Remove a file; return whether it is gone."""
    try:
        os.unlink(path)
    except FileNotFoundError:
        pass
    except OSError:
        return False
    return True
