"""Records and contents in the cache; contents depend on files that are known only after a compilation.

A key covers everything that is known before a compilation: source, options, compiler. The headers that it
read are known only afterwards. So there are two steps: the key gives the *names* that were looked up, and the
key together with the digests of these names gives the content. It is found again after an edit is undone, on
another machine, and after all files were touched. A content that depends on no header has one key.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import Generic, NamedTuple, TypeVar

from cuda_ext import __version__
from cuda_ext.cache.store import Store
from cuda_ext.errors import CudaExtError
from cuda_ext.facts import codec
from cuda_ext.filesystem.regular_file import digest_file

# The number of sets of names that are kept under one key.
_MOST_SETS = 8
# A file may change twice within this many nanoseconds without a change of its times.
_TICK = 2_000_000_000
# Maps the name of a header to the digest of its file; None if there is no such file.
Resolve = Callable[[str], str | None]

_T = TypeVar("_T")


def read_record(store: Store, key: str, default: _T) -> _T:
    """Return the record under `key`; `default`, which is of its type, if it is absent or damaged."""
    try:
        return codec.decode(type(default), store.get(key) or b"")
    except codec.DecodingError:
        return default


class CachedContent(NamedTuple, Generic[_T]):
    """A decoded content, and the names that it depends on."""

    content: _T
    dependencies: frozenset[str]


class _Entry(NamedTuple):
    """The value of a key: a content that depends on no file, or the names that contents depend on.

    ``names`` has a set of them for each of the latest contents, the most recent first.
    """

    content: bytes | None = None
    names: tuple[tuple[str, ...], ...] = ()


class DependencyCache:
    """Contents by key and by the files that they depend on."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def find(self, key: str, resolve: Resolve, decode: Callable[[bytes], _T]) -> CachedContent[_T] | None:
        """Find the content of `key` whose dependencies resolve to the same digests as when it was kept.

        A content that `decode` rejects is a miss.
        """
        entry = self._entry(key)
        for names in entry.names if entry.content is None else ((),):
            content = self._store.get(_key_with(key, names, resolve)) if names else entry.content
            with suppress(CudaExtError, ValueError):
                if content is not None:
                    return CachedContent(decode(content), frozenset(names))
        return None

    def keep(self, key: str, dependencies: Iterable[str], resolve: Resolve, content: bytes) -> None:
        """Keep `content`, which depends on the names `dependencies`."""
        names = tuple(sorted(dependencies))
        if not names:
            self._store.put(_own_key(key), codec.encode(_Entry(content)))
            return
        known = self._entry(key).names
        if known[:1] != (names,):
            known = (names, *(other for other in known if other != names))[:_MOST_SETS]
            self._store.put(_own_key(key), codec.encode(_Entry(None, known)))
        self._store.put(_key_with(key, names, resolve), content)

    def _entry(self, key: str) -> _Entry:
        return read_record(self._store, _own_key(key), _Entry())


def _own_key(key: str) -> str:
    """Return the key in the store for `key`: only this version of the package finds it."""
    return codec.key_of(__version__, key)


def _key_with(key: str, names: Iterable[str], resolve: Resolve) -> str:
    return codec.key_of(__version__, key, *(field for name in names for field in (name, resolve(name))))


class _KnownFiles(NamedTuple):
    """For each path the size, inode and times of the file, and its digest, as one text."""

    states: Mapping[str, str] = {}


class FileDigests:
    """The BLAKE2 digests of files, kept with the properties that the file system reports.

    A file counts as unchanged while its size, its inode, and its times of modification and of change stay.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._key = codec.key_of("files", __version__)
        self._digests: dict[str, str | None] = {}
        self._known = dict(read_record(store, self._key, _KnownFiles()).states)
        self._is_changed = False
        self.begin()

    def begin(self) -> None:
        """Note the time, for :meth:`is_settled`."""
        self._began = time.time_ns()

    def is_settled(self, path: str) -> bool:
        """Return True if the file at `path` has not changed since :meth:`begin`.

        If it has changed, it is unknown which of its states a compiler read, or if it existed. The time
        of change counts: if an older file is moved or hard-linked to `path`, nothing else shows it.
        """
        try:
            return _last_change(os.stat(path)) <= self._began
        except OSError:
            return False

    def __call__(self, path: str) -> str | None:
        """Return the digest of the file at `path`; ``None`` if it cannot be read."""
        if path not in self._digests:
            self._digests[path] = self._digest(path)
        return self._digests[path]

    def _digest(self, path: str) -> str | None:
        try:
            status = os.stat(path)
            state = f"{status.st_size} {status.st_ino} {status.st_mtime_ns} {status.st_ctime_ns}"
            known_state, _, known_digest = self._known.get(path, "").rpartition(" ")
            if known_state == state:
                return known_digest
            digest = digest_file(path)
        except OSError:
            return None
        if _last_change(status) < self._began - _TICK:
            self._known[path] = f"{state} {digest}"
            self._is_changed = True
        return digest

    def save(self) -> None:
        """Keep the digests for the next build."""
        if self._is_changed:
            # Each isolated build has its own files, which are gone afterwards.
            states = {p: s for p, s in self._known.items() if p in self._digests or os.path.exists(p)}
            self._store.put(self._key, codec.encode(_KnownFiles(states)))
            self._is_changed = False


def _last_change(status: os.stat_result) -> int:
    return max(status.st_mtime_ns, status.st_ctime_ns)
