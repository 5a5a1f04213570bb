"""The store of one machine or one user: entries as files of a directory.

Any number of processes on any number of machines may use it at once, without waiting for each other. Entries
appear by rename, and each get verifies their digest: a killed writer, a full disk, a power failure or a
concurrent prune cause misses at worst. The digest detects damage; it does not guard against users who may
write to the directory. Therefore each level is opened within the one above, and what others could have
written is a miss (:mod:`~cuda_ext.filesystem.private_directory`). Nothing is guaranteed to be kept.
"""

from __future__ import annotations

import contextlib
import errno
import math
import os
import re
import stat
import time
from _thread import allocate_lock
from typing import TYPE_CHECKING, NamedTuple

from cuda_ext.cache.store import KEY_PATTERN, pack, unpack
from cuda_ext.errors import StoreError
from cuda_ext.filesystem.locks import lock
from cuda_ext.filesystem.private_directory import PrivateDirectory, create_directories

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

_LOCKS, _TEMPORARY, _TOTAL = "locks", "tmp", "total"  # names in the directory of the entries
_SHARD, _NAME = re.compile("[0-9a-f]{2}"), re.compile("[0-9a-f]{62}")  # of an entry
_HOUR = 3600
_MOST_TOTAL = 64 << 10  # bytes of the file "total" that are read; an entry adds some 8
_PRUNED = 0.8  # the share of its bound that a store has after it was pruned
_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
_GONE = {errno.ENOENT, errno.ESTALE}
# The names of unfinished writes, of Python and C++.
_UNFINISHED = re.compile(r"[0-9a-f]+\.[0-9]+(\..*)?")


class StoredFile(NamedTuple):
    """An entry or an unfinished write, in a directory of the store."""

    directory: str
    name: str
    size: int
    modified: float  # an entry's last use, to the hour

    @property
    def is_entry(self) -> bool:
        return self.directory != _TEMPORARY


class LocalStore:
    """A :class:`~cuda_ext.cache.store.Store` in `directory` of at most `bound` bytes."""

    def __init__(self, directory: str | Path, bound: int, warn: Callable[[str], None]) -> None:
        self.directory = str(directory)
        self._prefix = os.path.join(directory, "objects")
        self.bound = bound
        self._warn: Callable[[str], None] | None = warn
        self._lock = allocate_lock()

    @property
    def objects(self) -> Path:
        """The directory of the entries."""
        from pathlib import Path  # slow to import

        return Path(self._prefix)

    def get(self, key: str) -> bytes | None:
        shard, name = _place(key)
        try:
            with self._open() as objects, PrivateDirectory(shard, objects) as directory:
                entry, modified = directory.read(name)
                content = unpack(key, entry)
                if content is not None and modified < time.time() - _HOUR:
                    with contextlib.suppress(OSError):
                        directory.touch(name)
                return content
        except (OSError, MemoryError):
            return None

    def put(self, key: str, content: bytes) -> None:
        if self.get(key) == content:
            return
        entry = pack(key, content)
        try:
            self._write(*_place(key), entry)
        except OSError as error:
            self._warn_once(error)
        else:
            self._count_written(len(entry))

    @contextlib.contextmanager
    def lock(self, key: str) -> Iterator[None]:
        """Wait while another process computes the content of `key`.

        This avoids duplicate work and guards nothing: without locks, or after ten minutes, go on regardless.
        """
        with contextlib.ExitStack() as stack:
            with contextlib.suppress(OSError):
                create_directories(self._prefix)
                objects = stack.enter_context(self._open())
                locks = stack.enter_context(PrivateDirectory(_LOCKS, objects, create=True))
                # One file for many keys, so that none must be removed.
                stack.enter_context(lock(*locks.place_of(key[:2]), create=True))
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
                self._remove(file)
        entries = sorted((file for file in files if file.is_entry), key=lambda file: file.modified)
        total = sum(file.size for file in entries)
        if total > self.bound:
            for file in entries:
                if total <= self.bound * _PRUNED:
                    break
                if self._remove(file):
                    total -= file.size
        with contextlib.suppress(OSError):
            self._write(os.curdir, _TOTAL, b"%d %d " % (time.time(), total))

    def close(self, *, now: bool = False) -> None:
        pass

    def files(self) -> Iterator[StoredFile]:
        """List the entries and unfinished writes; whatever else lies in the directory is left out."""
        for directory, _ in self._list(""):
            if directory == _TEMPORARY:
                pattern = _UNFINISHED
            elif _SHARD.fullmatch(directory):
                pattern = _NAME
            else:
                continue
            for name, status in self._list(directory):
                if pattern.fullmatch(name) and stat.S_ISREG(status.st_mode):
                    yield StoredFile(directory, name, status.st_size, status.st_mtime)

    def clear(self) -> int:
        """Remove all entries and unfinished writes; return how many of them could not be removed."""
        with contextlib.suppress(OSError), self._open() as objects:
            objects.remove(_TOTAL)  # the next prune scans
        # Locks stay: they are empty, and may be held.
        return sum(not self._remove(file) for file in list(self.files()))

    def _open(self) -> PrivateDirectory:
        return PrivateDirectory(self._prefix)

    def _remove(self, file: StoredFile) -> bool:
        try:
            with self._open() as objects, PrivateDirectory(file.directory, objects) as directory:
                return directory.remove(file.name)
        except FileNotFoundError:
            return True
        except OSError:
            return False

    def _list(self, directory: str) -> list[tuple[str, os.stat_result]]:
        """The names in a directory of the store; empty if it cannot be used."""
        try:
            with self._open() as objects, PrivateDirectory(directory or os.curdir, objects) as inner:
                return inner.list()
        except OSError:
            return []

    def _estimate(self) -> float:
        """The size of all entries by the file ``total``; infinite if that is missing, damaged or old."""
        try:
            with self._open() as objects:
                scanned, *sizes = map(int, objects.read(_TOTAL, _MOST_TOTAL)[0].split())
        except (OSError, ValueError):
            return math.inf
        # A clock that was set back must not put off the next scan.
        return sum(sizes) if abs(time.time() - scanned) < _HOUR else math.inf

    def _count_written(self, size: int) -> None:
        with contextlib.suppress(OSError), self._open() as objects:
            objects.append(_TOTAL, b"%d " % size)

    def _write(self, directory: str, name: str, content: bytes) -> None:
        """Write a file by a rename; create missing directories, each for its owner alone."""
        for attempt in range(3):
            try:
                return self._rename_into_place(directory, name, content, create=attempt > 0)
            except OSError as error:
                if error.errno not in _GONE or attempt == 2:
                    raise
            create_directories(self._prefix)
        return None

    def _rename_into_place(self, directory: str, name: str, content: bytes, create: bool) -> None:
        # Nothing is synced to the disk: after a power failure, the digest shows the damage.
        file = f"{os.urandom(8).hex()}.{os.getpid()}.{_host()}"
        with (
            self._open() as objects,
            PrivateDirectory(_TEMPORARY, objects, create=create) as aside,
            PrivateDirectory(directory, objects, create=create) as place,
        ):
            try:
                aside.write(file, content)
                aside.move(file, place, name)
            except BaseException as error:
                aside.remove(file)
                # Windows does not replace a file that is being read. If it is damaged, the next put does.
                if not (os.name == "nt" and isinstance(error, PermissionError)):
                    raise

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


def _place(key: str) -> tuple[str, str]:
    """The directory and the name of the entry of `key`."""
    if not KEY_PATTERN.fullmatch(key):
        raise ValueError(f"not a key: {key!r}")
    return key[:2], key[2:]


def _host() -> str:
    """The name of this machine; processes of different machines may have the same number."""
    name = os.uname().nodename if hasattr(os, "uname") else os.environ.get("COMPUTERNAME", "")
    return re.sub(r"[^A-Za-z0-9-]", "_", name)[:64]
