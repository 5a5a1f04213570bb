"""The user's cache for compilation at run time: the local store of the build cache, never a remote one.

If it cannot be used, or its disk is full, a warning is issued once and compilation goes on without it.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable
from functools import cache
from typing import TypeVar

from cuda_ext.cache.local_store import LocalStore
from cuda_ext.cache.open_store import open_local_store
from cuda_ext.cache.store import NullStore
from cuda_ext.errors import BuildError, CacheWarning

_T = TypeVar("_T")


def compile_once(
    key: str,
    what: str,
    find: Callable[[], _T | None],
    compile_new: Callable[[], _T],
    encode: Callable[[_T], bytes],
) -> _T:
    """Return the result of `find` or, if this is ``None``, of `compile_new`, and store it under `key`.

    If several processes compile the same key, one compiles and the others wait for its result. `what` names
    the compilation in errors.
    """
    if (known := find()) is not None:
        return known
    from cuda_ext.time_limit import compile_within  # cached entries need no threads

    with _store().lock(key):
        if (known := find()) is not None:
            return known
        compiled = compile_within(what, compile_new)
        write_cache(key, encode(compiled))
        return compiled


def read_cache(key: str) -> bytes | None:
    """Return the content under `key`, or ``None``."""
    return _store().get(key)


def write_cache(key: str, content: bytes) -> None:
    """Store `content` under `key`, and evict entries beyond the cache's size limit."""
    store = _store()
    store.put(key, content)
    store.prune()


def _store() -> LocalStore | NullStore:
    return _open_store(os.environ.get("CUDA_EXT_CACHE", ""), os.environ.get("CUDA_EXT_CACHE_SIZE", ""))


@cache
def _open_store(location: str, size: str) -> LocalStore | NullStore:
    environ = {**os.environ, "CUDA_EXT_CACHE": location, "CUDA_EXT_CACHE_SIZE": size}
    try:
        return open_local_store(environ, _warn_once)
    except BuildError as error:  # an invalid size, or a missing package
        _warn_once(f"compiling goes on without a cache: {error}")
        return NullStore()


@cache
def _warn_once(reason: str) -> None:
    warnings.warn(reason, CacheWarning, stacklevel=2)
