"""What was compiled before, found again by all that it depends on.

A key names what is known before a compilation: source, options, compiler. What it read shows only afterwards.
So an entry has two steps: under the key lie the *names* that were looked up, and under the key together with
what these names lead to lies the content. It is found again when an edit is taken back, on another machine,
and after everything was touched.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Generic, TypeVar

from cuda_ext import __version__
from cuda_ext.cache.store import Store
from cuda_ext.errors import BuildError
from cuda_ext.formats import netstring

__all__ = ["Cache", "FileDigests", "Known", "Resolve", "key_of"]

# How many sets of names are kept under one key.
_SETS = 8
# Nanoseconds in which a file may change twice without a trace in its times.
_TICK = 2_000_000_000
# Half as fast again as SHA-256, for compilers of 100 MB.
_new_digest = partial(hashlib.blake2b, digest_size=32)

Resolve = Callable[[str], str | None]

_T = TypeVar("_T")


def key_of(*of: netstring.Field) -> str:
    """The key that stands for all of `of`. Entries of other versions of this package are not found."""
    return netstring.key_of(__version__, *of)


@dataclass(frozen=True, slots=True)
class Known(Generic[_T]):
    """What the cache has: the content, decoded, and the names of headers that it depends on."""

    content: _T
    reads: frozenset[str]


def _json(content: bytes | None) -> object:
    """What an entry says; nothing where there is none, or one that others wrote and that says nothing."""
    with suppress(ValueError):
        return json.loads(content or b"null")
    return None


class Cache:
    """Contents by key and by what was read."""

    def __init__(self, store: Store) -> None:
        self.store = store

    def find(self, key: str, resolve: Resolve, decode: Callable[[bytes], _T]) -> Known[_T] | None:
        """What is known under `key`; `resolve` tells what a name leads to.

        What `decode` refuses with a :class:`BuildError` is not known.
        """
        for names in self._sets(key):
            content = self.store.get(_with(key, names, resolve))
            with suppress(BuildError):
                if content is not None:
                    return Known(decode(content), frozenset(names))
        return None

    def keep(self, key: str, reads: Iterable[str], resolve: Resolve, content: bytes) -> None:
        """Keep `content`, which depends on the names in `reads`."""
        names = sorted(reads)
        known = self._sets(key)
        if known[:1] != [names]:
            sets = [names, *(other for other in known if other != names)][:_SETS]
            self.store.put(key, json.dumps(sets).encode())
        self.store.put(_with(key, names, resolve), content)

    def _sets(self, key: str) -> list[list[str]]:
        match _json(self.store.get(key)):
            case list(sets) if all(isinstance(s, list) and all(isinstance(n, str) for n in s) for s in sets):
                return sets
        return []


def _with(key: str, names: Iterable[str], resolve: Resolve) -> str:
    return key_of(key, *(field for name in names for field in (name, resolve(name))))


class FileDigests:
    """The BLAKE2 digests of files, remembered by what the file system says of them.

    A file counts as unchanged while its size, its inode, and its times of modification and of change are.
    What changes after the first look has no digest that anything else has: nobody knows which of its states
    a compiler reads meanwhile.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._key = key_of("files")
        self._seen: dict[str, str | None] = {}
        found = _json(store.get(self._key))
        self._known: dict[str, list[int | str]] = found if isinstance(found, dict) else {}
        self._changed = False
        self.begin()

    def begin(self) -> None:
        """What is there now stays: nothing has read it yet."""
        self._began = time.time_ns()

    def __call__(self, path: str) -> str | None:
        """The digest of the file at `path`; ``None`` if there is none that can be read."""
        if path not in self._seen:
            self._seen[path] = self._digest(path)
        return self._seen[path]

    def _digest(self, path: str) -> str | None:
        try:
            status = os.stat(path)
            state = [status.st_size, status.st_ino, status.st_mtime_ns, status.st_ctime_ns]
            match self._known.get(path):
                case [*before, str(digest)] if before == state:
                    return digest
            with open(path, "rb") as file:
                digest = hashlib.file_digest(file, _new_digest).hexdigest()
        except OSError:
            return None
        changed = max(status.st_mtime_ns, status.st_ctime_ns)
        if changed > self._began:
            return os.urandom(32).hex()
        if changed < self._began - _TICK:
            self._known[path] = [*state, digest]
            self._changed = True
        return digest

    def save(self) -> None:
        """Keep what was learned for the next build."""
        if self._changed:
            # Each isolated build has files of its own, which are gone afterwards.
            kept = {p: known for p, known in self._known.items() if p in self._seen or os.path.exists(p)}
            self._store.put(self._key, json.dumps(kept).encode())
            self._changed = False
