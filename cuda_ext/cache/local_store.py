"""The store of one machine or one user: entries as files of a directory.

Any number of processes on any number of machines may use it at once, without waiting for each other. Entries
appear by rename, and each get verifies their digest: a killed writer, a full disk, a power failure or a
concurrent prune cause misses at worst. The digest detects damage; it does not guard against users who may
write to the directory (:func:`cuda_ext.cache.location.distrust` does). Nothing is guaranteed to be kept.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import re
import stat
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from cuda_ext.cache import pruning
from cuda_ext.cache.entry_files import open_to_read, read_file, remove_file, write_file
from cuda_ext.cache.store import CONTENT_START, DIGEST, KEY, KEY_PATTERN, MAGIC, pack, unpack
from cuda_ext.errors import StoreError
from cuda_ext.filesystem.locks import lock

__all__ = ["LocalStore", "StoredFile", "without_cache"]

_LOCKS = "locks"
_SHARD = re.compile("[0-9a-f]{2}")
_PIECE = 1 << 20  # bytes of a large entry that are read at once
_PATIENCE = 600  # seconds to wait for another process that computes the same content
_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}


@dataclass(frozen=True, slots=True)
class StoredFile:
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

    def __init__(self, directory: Path, bound: int, warn: Callable[[str], None]) -> None:
        self._directory = directory
        self.objects = directory / "objects"
        self._prefix = os.fspath(self.objects)
        self.bound = bound
        self._warn: Callable[[str], None] | None = warn
        self._lock = threading.Lock()

    def get(self, key: str) -> bytes | None:
        path = self._path(key)
        try:
            entry, modified = read_file(path)
        except (OSError, MemoryError):
            return None
        content = unpack(key, entry)
        if content is not None and modified < time.time() - pruning.HOUR:
            with contextlib.suppress(OSError):
                os.utime(path)
        return content

    def put(self, key: str, content: bytes) -> None:
        if self.get(key) == content:
            return
        entry = pack(key, content)
        try:
            write_file(Path(self._path(key)), entry, self.objects / pruning.TEMPORARY)
            pruning.count_written(self.objects, len(entry))
        except OSError as error:
            if error.errno in _FULL:
                raise StoreError(
                    f"the cache cannot be written: {error.strerror}",
                    where=str(self._directory),
                    remedy="free some space, lower CUDA_EXT_CACHE_SIZE, or set CUDA_EXT_CACHE to another "
                    "directory",
                ) from None
            self._warn_once(f"{error.strerror or error}")

    def lock(self, key: str) -> AbstractContextManager[object]:
        """Wait while another process computes the content of `key`.

        This avoids duplicate work and guards nothing: without locks, or after ten minutes, go on regardless.
        """
        # One file for many keys, so that none must be removed.
        path = self.objects / _LOCKS / key[:2]
        with contextlib.suppress(OSError):
            path.parent.mkdir(mode=0o700, exist_ok=True)
        return lock(path, create=True, patience=_PATIENCE)

    def prune(self) -> None:
        pruning.prune(self.objects, self.bound)

    def close(self) -> None:
        pass

    def files(self) -> Iterator[StoredFile]:
        """List the files of the store, entries in the order of their keys.

        The store's own files (total, locks) are excluded.
        """
        for outer in _sorted(self.objects):
            if outer.name in (_LOCKS, pruning.TOTAL):
                continue
            is_ours = outer.name == pruning.TEMPORARY or _SHARD.fullmatch(outer.name)
            if is_ours and outer.is_dir(follow_symlinks=False):
                for inner in _sorted(outer):
                    yield from _stored(inner, outer.name)
            else:
                yield from _stored(outer, "")

    def flaw(self, entry: StoredFile) -> str:
        """Explain why :meth:`get` rejects `entry`; empty if it is valid, or if it is gone.

        Reads the file in pieces. It does not count as a use.
        """
        try:
            with open(entry.path, "rb", opener=open_to_read) as file:
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
        with contextlib.suppress(OSError), open(entry.path, "rb", opener=open_to_read) as file:
            file.seek(CONTENT_START)
            return file.read(size)
        return b""

    def remove(self, file: StoredFile) -> bool:
        """Remove an entry or an unfinished write; return whether it is gone."""
        remove_file(self.objects / pruning.TOTAL)  # the next prune scans
        return remove_file(file.path)

    def _path(self, key: str) -> str:
        if not KEY_PATTERN.fullmatch(key):
            raise ValueError(f"not a key: {key!r}")
        return f"{self._prefix}/{key[:2]}/{key[2:]}"

    def _warn_once(self, reason: str) -> None:
        with self._lock:
            warn, self._warn = self._warn, None
        if warn:
            warn(without_cache(self._directory, reason, "set CUDA_EXT_CACHE to another directory"))


def without_cache(directory: Path, reason: str, remedy: str) -> str:
    """Make the text of the warning that the cache in `directory` is not used."""
    problem = f"compiling goes on without a cache: {reason}"
    return str(StoreError(problem, where=str(directory), remedy=remedy))


def _sorted(directory: Path | os.DirEntry[str]) -> list[os.DirEntry[str]]:
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
            if directory == pruning.TEMPORARY:
                kind = "unfinished"
            elif KEY_PATTERN.fullmatch(key):
                kind = "entry"
        yield StoredFile(kind, entry.path, status.st_size, status.st_mtime, key if kind == "entry" else "")
