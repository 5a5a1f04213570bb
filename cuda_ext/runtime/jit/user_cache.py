"""The user's cache, as what is compiled at run time uses it.

It is the local store of the build cache: nothing comes from a network at run time. Where it cannot be used,
or its disk is full, one goes on without it and warns once.
"""

from __future__ import annotations

import os
import warnings
from contextlib import AbstractContextManager
from functools import cache

from cuda_ext.cache.local_store import LocalStore
from cuda_ext.cache.open_store import open_local_store
from cuda_ext.cache.store import NullStore
from cuda_ext.errors import BuildError, CacheWarning, StoreError

__all__ = ["alone", "find", "keep"]


def find(key: str) -> bytes | None:
    """What is kept under `key`."""
    return _store().get(key)


def keep(key: str, content: bytes) -> None:
    """Keep `content` under `key`, within the cache's bound."""
    store = _store()
    try:
        store.put(key, content)
    except StoreError as error:
        _warn_once(str(error))
    store.prune()


def alone(key: str) -> AbstractContextManager[object]:
    """Wait until no other process makes what belongs under `key`; look for it again then."""
    return _store().lock(key)


def _store() -> LocalStore | NullStore:
    return _opened(os.environ.get("CUDA_EXT_CACHE", ""), os.environ.get("CUDA_EXT_CACHE_SIZE", ""))


@cache
def _opened(location: str, size: str) -> LocalStore | NullStore:
    environ = {**os.environ, "CUDA_EXT_CACHE": location, "CUDA_EXT_CACHE_SIZE": size}
    try:
        return open_local_store(environ, _warn_once)
    except BuildError as error:  # a size that is none, or a package that is missing
        _warn_once(f"compiling goes on without a cache: {error}")
        return NullStore()


@cache
def _warn_once(reason: str) -> None:
    warnings.warn(reason, CacheWarning, stacklevel=2)
