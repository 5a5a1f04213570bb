"""Bytes by key: the interface that all stores have, and the format of an entry."""

from __future__ import annotations

import contextlib
import re
from contextlib import AbstractContextManager
from typing import Protocol

from cuda_ext.facts.codec import sha256

KEY_PATTERN = re.compile("[0-9a-f]{64}")
# An entry is this text, the SHA-256 of everything that follows, the key, and the content.
_MAGIC = b"cudaext\x01"  # the last byte is the version of the format
_KEY_START, _CONTENT_START = 40, 72


class Store(Protocol):
    """Contents by key; a key is 64 lower-case hexadecimal digits. All threads of a process may share a store.

    A store returns what was put under a key, or nothing. A damaged entry counts as absent, and the next put
    replaces it. Entries may vanish at any time.
    """

    def get(self, key: str) -> bytes | None:
        """Return the content of `key`, or None if it is absent or damaged."""

    def put(self, key: str, content: bytes) -> None:
        """Store `content` under `key`. Where that fails, as on a full disk, a warning is issued once."""

    def prune(self) -> None:
        """Remove the least recently used entries beyond the size limit. Fast enough for every build."""

    def close(self, *, now: bool = False) -> None:
        """Wait for writes in the background, or with `now`, drop them."""


class NullStore:
    """A store that keeps nothing."""

    def get(self, key: str) -> None:  # noqa: ARG002
        return None

    def put(self, key: str, content: bytes) -> None:
        pass

    def lock(self, key: str) -> AbstractContextManager[object]:  # noqa: ARG002
        return contextlib.nullcontext()

    def prune(self) -> None:
        pass

    def close(self, *, now: bool = False) -> None:
        pass


def pack(key: str, content: bytes) -> bytes:
    """Make an entry. It contains its key, so that a renamed entry is a miss."""
    body = bytes.fromhex(key) + content
    return b"".join((_MAGIC, sha256(body), body))


def unpack(key: str, entry: bytes) -> bytes | None:
    """Return the content of an entry, or None if any byte is wrong."""
    digest = sha256(memoryview(entry)[_KEY_START:])
    is_valid = entry[:_CONTENT_START] == _MAGIC + digest + bytes.fromhex(key)
    return entry[_CONTENT_START:] if is_valid else None
