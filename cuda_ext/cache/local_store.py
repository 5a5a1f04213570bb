"""The store of one machine or one user: entries as files of a directory.

Any number of processes on any number of machines may use it at once, without waiting for each other. Entries
appear by rename, and each get verifies their digest: a killed writer, a full disk, a power failure or a
concurrent prune cause misses at worst. The digest detects damage; it does not guard against users who may
write to the directory (:func:`cuda_ext.cache.location.distrust` does). Nothing is guaranteed to be kept.
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
from typing import TYPE_CHECKING, Literal, NamedTuple

from cuda_ext.cache.store import CONTENT_START, DIGEST, KEY, KEY_PATTERN, MAGIC, pack, unpack
from cuda_ext.errors import StoreError
from cuda_ext.filesystem.locks import lock

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager
    from pathlib import Path

__all__ = ["LocalStore", "StoredFile", "without_cache"]

_LOCKS, _TEMPORARY, _TOTAL = "locks", "tmp", "total"  # names in the directory of the entries
_SHARD = re.compile("[0-9a-f]{2}")
_PIECE = 1 << 20  # bytes of a large entry that are read at once
_PATIENCE = 600  # seconds to wait for another process that computes the same content
_HOUR = 3600
_PRUNED = 0.8  # the share of its bound that a store has after it was pruned
_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
_GONE = {errno.ENOENT, errno.ESTALE}
# Links are not followed, and a pipe in an entry's place does not block.
_READ_FLAGS = os.O_RDONLY | sum(getattr(os, name, 0) for name in ("O_BINARY", "O_NOFOLLOW", "O_NONBLOCK"))


class StoredFile(NamedTuple):
    """A file in a store's directory: an entry with its ``key``, an unfinished write, or a stray.

    Strays are files that no store creates, uses or removes.
    """

    kind: Literal["entry", "unfinished", "stray"]
    path: str
    size: int
    modified: float  # an entry's last use, to the hour
    key: str = ""

    @property
    def share(self) -> float:
        """The share of all entries that precede this one, from 0 to 1: keys are spread evenly."""
        return int(self.key[:4], 16) / 0x10000


class LocalStore:
    """A :class:`~cuda_ext.cache.store.Store` in `directory` of at most `bound` bytes."""

    def __init__(self, directory: str | Path, bound: int, warn: Callable[[str], None]) -> None:
        self._directory = directory
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
        path = self._path(key)
        try:
            entry, modified = _read_file(path)
        except (OSError, MemoryError):
            return None
        content = unpack(key, entry)
        if content is not None and modified < time.time() - _HOUR:
            with contextlib.suppress(OSError):
                os.utime(path)
        return content

    def put(self, key: str, content: bytes) -> None:
        if self.get(key) == content:
            return
        entry = pack(key, content)
        try:
            self._write_file(self._path(key), entry)
        except OSError as error:
            if error.errno in _FULL:
                raise StoreError(
                    f"the cache cannot be written: {error.strerror}",
                    where=str(self._directory),
                    remedy="free some space, lower CUDA_EXT_CACHE_SIZE, or set CUDA_EXT_CACHE to another "
                    "directory",
                ) from None
            self._warn_once(f"{error.strerror or error}")
        else:
            self._count_written(len(entry))

    def lock(self, key: str) -> AbstractContextManager[object]:
        """Wait while another process computes the content of `key`.

        This avoids duplicate work and guards nothing: without locks, or after ten minutes, go on regardless.
        """
        # One file for many keys, so that none must be removed.
        directory = f"{self._prefix}/{_LOCKS}"
        with contextlib.suppress(OSError):
            os.makedirs(directory, mode=0o700, exist_ok=True)
        return lock(f"{directory}/{key[:2]}", create=True, patience=_PATIENCE)

    def prune(self) -> None:
        """Reduce the entries to 80 % of the bound if they exceed it. Never raises.

        Entries are removed in the order of their last use, which is known to the hour. Until the next prune,
        the store may exceed its bound by what is written meanwhile.

        Most prunes need no scan: the file ``total`` has the time of the last one, the size that it counted,
        and the size of each entry written since.
        """
        if self._estimate() <= self.bound:
            return
        for modified, _, path in _list_files(f"{self._prefix}/{_TEMPORARY}"):
            if modified < time.time() - _HOUR:  # of a killed writer: no write takes an hour
                _remove_file(path)
        shards = (
            f"{self._prefix}/{each.name}" for each in _sorted(self._prefix) if _SHARD.fullmatch(each.name)
        )
        entries = sorted(_list_files(*shards))
        total = sum(size for _, size, _ in entries)
        if total > self.bound:
            for _, size, path in entries:
                if total <= self.bound * _PRUNED:
                    break
                if _remove_file(path):
                    total -= size
        with contextlib.suppress(OSError):
            self._write_file(f"{self._prefix}/{_TOTAL}", b"%d %d " % (time.time(), total))

    def close(self) -> None:
        pass

    def files(self) -> Iterator[StoredFile]:
        """List the files of the store, entries in the order of their keys.

        The store's own files (total, locks) are excluded.
        """
        for outer in _sorted(self._prefix):
            if outer.name in (_LOCKS, _TOTAL):
                continue
            is_ours = outer.name == _TEMPORARY or _SHARD.fullmatch(outer.name)
            if is_ours and outer.is_dir(follow_symlinks=False):
                for inner in _sorted(outer):
                    yield from _stored(inner, outer.name)
            else:
                yield from _stored(outer, "")

    def flaw(self, entry: StoredFile) -> str:
        """Explain why :meth:`get` rejects `entry`; empty if it is valid, or if it is gone.

        Reads the file in pieces. It does not count as a use.
        """
        import hashlib  # slow to import

        try:
            with open(entry.path, "rb", opener=_open_to_read) as file:
                head = file.read(CONTENT_START)
                if len(head) < CONTENT_START or not head.startswith(MAGIC):
                    return "it does not begin as an entry does"
                digest = hashlib.sha256(head[KEY])
                while piece := file.read(_PIECE):
                    digest.update(piece)
        except FileNotFoundError:
            return ""
        except OSError as error:
            return f"it cannot be read: {error.strerror or error}"
        if head[DIGEST] != digest.digest():
            return "its digest is that of another content"
        if head[KEY] != bytes.fromhex(entry.key):
            return f"it is the entry of another key, {head[KEY].hex()}"
        return ""

    def peek(self, entry: StoredFile, size: int = -1) -> bytes:
        """Return the first `size` bytes of the content of `entry`, or all; empty if it cannot be read.

        The content is not verified. It does not count as a use.
        """
        with contextlib.suppress(OSError), open(entry.path, "rb", opener=_open_to_read) as file:
            file.seek(CONTENT_START)
            return file.read(size)
        return b""

    def remove(self, file: StoredFile) -> bool:
        """Remove an entry or an unfinished write; return whether it is gone."""
        _remove_file(f"{self._prefix}/{_TOTAL}")  # the next prune scans
        return _remove_file(file.path)

    def _estimate(self) -> float:
        """The size of all entries by the file ``total``; infinite if that is missing, damaged or old."""
        try:
            with open(f"{self._prefix}/{_TOTAL}", "rb") as file:
                scanned, *sizes = map(int, file.read().split())
        except (OSError, ValueError):
            return math.inf
        # A clock that was set back must not put off the next scan.
        return sum(sizes) if abs(time.time() - scanned) < _HOUR else math.inf

    def _count_written(self, size: int) -> None:
        path = f"{self._prefix}/{_TOTAL}"
        with contextlib.suppress(OSError), open(path, "ab", 0, opener=_open_to_append) as file:
            file.write(b"%d " % size)

    def _write_file(self, path: str, content: bytes) -> None:
        """Write `path` by a rename; create missing directories, each for its owner alone."""
        for attempt in range(3):
            try:
                return self._rename_into_place(path, content)
            except OSError as error:
                if error.errno not in _GONE or attempt == 2:
                    raise
            for directory in (self._prefix, f"{self._prefix}/{_TEMPORARY}", os.path.dirname(path)):
                os.makedirs(directory, mode=0o700, exist_ok=True)
        return None

    def _rename_into_place(self, path: str, content: bytes) -> None:
        # Nothing is synced to the disk: after a power failure, the digest shows the damage.
        file = f"{self._prefix}/{_TEMPORARY}/{os.urandom(8).hex()}.{os.getpid()}.{_host()}"
        try:
            with open(file, "xb", opener=_open_to_append) as opened:
                opened.write(content)
            os.replace(file, path)
        except BaseException as error:
            _remove_file(file)
            # Windows does not replace a file that is being read. If it is damaged, the next put replaces it.
            if not (os.name == "nt" and isinstance(error, PermissionError) and os.path.exists(path)):
                raise

    def _path(self, key: str) -> str:
        if not KEY_PATTERN.fullmatch(key):
            raise ValueError(f"not a key: {key!r}")
        return f"{self._prefix}/{key[:2]}/{key[2:]}"

    def _warn_once(self, reason: str) -> None:
        with self._lock:
            warn, self._warn = self._warn, None
        if warn:
            warn(without_cache(self._directory, reason, "set CUDA_EXT_CACHE to another directory"))


def without_cache(directory: str | Path, reason: str, remedy: str) -> str:
    """Make the text of the warning that the cache in `directory` is not used."""
    problem = f"compiling goes on without a cache: {reason}"
    return str(StoreError(problem, where=str(directory), remedy=remedy))


def _sorted(directory: str | os.DirEntry[str]) -> list[os.DirEntry[str]]:
    """The contents of `directory` by name; empty if it cannot be read."""
    with contextlib.suppress(OSError), os.scandir(directory) as entries:
        return sorted(entries, key=lambda entry: entry.name)
    return []


def _stored(entry: os.DirEntry[str], directory: str) -> Iterator[StoredFile]:
    """Describe `entry` unless it is gone; `directory` names the store's directory that it lies in, if any."""
    with contextlib.suppress(OSError):
        status = entry.stat(follow_symlinks=False)
        key = directory + entry.name
        kind: Literal["entry", "unfinished", "stray"] = "stray"
        if directory and stat.S_ISREG(status.st_mode):
            if directory == _TEMPORARY:
                kind = "unfinished"
            elif KEY_PATTERN.fullmatch(key):
                kind = "entry"
        yield StoredFile(kind, entry.path, status.st_size, status.st_mtime, key if kind == "entry" else "")


def _read_file(path: str) -> tuple[bytes, float]:
    """Return a file's content and its time of modification. Twice as fast as with a file object."""
    descriptor = os.open(path, _READ_FLAGS)
    try:
        status = os.fstat(descriptor)
        return os.read(descriptor, status.st_size), status.st_mtime
    finally:
        os.close(descriptor)


def _open_to_read(path: str, _: int) -> int:
    """Open `path`, as the ``opener`` of :func:`open`."""
    return os.open(path, _READ_FLAGS)


def _open_to_append(path: str, flags: int) -> int:
    """Open or create `path` for its owner alone, as the ``opener`` of :func:`open`."""
    return os.open(path, flags | getattr(os, "O_NOFOLLOW", 0), 0o600)


def _list_files(*directories: str) -> Iterator[tuple[float, int, str]]:
    """List the time of modification, size and path of each file in `directories`."""
    for directory in directories:
        with contextlib.suppress(OSError), os.scandir(directory) as entries:
            for entry in entries:
                with contextlib.suppress(OSError):
                    status = entry.stat(follow_symlinks=False)
                    yield status.st_mtime, status.st_size, entry.path


def _remove_file(path: str) -> bool:
    """Remove a file; return whether it is gone."""
    try:
        os.unlink(path)
    except FileNotFoundError:
        pass
    except OSError:
        return False
    return True


def _host() -> str:
    """The name of this machine; processes of different machines may have the same number."""
    name = os.uname().nodename if hasattr(os, "uname") else os.environ.get("COMPUTERNAME", "")
    return re.sub(r"[^A-Za-z0-9-]", "_", name)[:64]
