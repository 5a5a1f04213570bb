"""Open the store that the environment asks for: ``CUDA_EXT_CACHE`` and ``CUDA_EXT_CACHE_SIZE``.

A cache that cannot be used, or that other users could have written to, costs one warning and is not used.
"""

from __future__ import annotations

import os
import re
import stat
import sys
from contextlib import suppress

from cuda_ext.cache.local_store import LocalStore, without_cache
from cuda_ext.cache.location import local_directory
from cuda_ext.cache.store import NullStore, Store
from cuda_ext.errors import ConfigError, StoreError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_DEFAULT_BOUND = 5 << 30


def open_store(environ: Mapping[str, str], warn: Callable[[str], None]) -> Store:
    """Open the local store and, if ``CUDA_EXT_CACHE`` is a URL, the remote one behind it."""
    local = open_local_store(environ, warn)
    location = environ.get("CUDA_EXT_CACHE", "")
    if "://" not in location or _bound(environ) == 0:
        return local
    from cuda_ext.cache.remote_store import LayeredStore, RemoteStore

    return LayeredStore(local, RemoteStore(location, warn))


def open_local_store(environ: Mapping[str, str], warn: Callable[[str], None]) -> LocalStore | NullStore:
    """Open the local store alone."""
    if not (bound := _bound(environ)):
        return NullStore()
    try:
        directory = local_directory(environ)
    except StoreError as error:
        warn(f"compiling goes on without a cache: {error}")
        return NullStore()
    reason, remedy = find_flaw(directory, create=True)
    if not reason:
        return LocalStore(directory, bound, warn)
    warn(without_cache(directory, reason, remedy))
    return NullStore()


def local_store(environ: Mapping[str, str]) -> LocalStore:
    """Return the local store for inspection, whether or not it can be used. Creates nothing."""
    return LocalStore(local_directory(environ), _bound(environ), lambda _: None)


def why_not_used(environ: Mapping[str, str]) -> str:
    """Explain why nothing can be stored locally, in the words of the warning; empty if it can.

    Creates nothing.
    """
    store = local_store(environ)
    if not store.bound:
        return "the cache is turned off by CUDA_EXT_CACHE_SIZE=0; unset it to have one"
    reason, remedy = find_flaw(store.directory)
    nearest = store.directory
    while not os.path.lexists(nearest):
        nearest = os.path.dirname(nearest)
    if not reason and not os.access(nearest, os.W_OK | os.X_OK):
        reason, remedy = "it is read-only", _ANOTHER
    return without_cache(store.directory, reason, remedy) if reason else ""


def find_flaw(directory: str, create: bool = False) -> tuple[str, str]:
    """Explain why the cache in `directory` cannot be used, with a remedy; both are empty if it can.

    A missing one can, and so can a read-only one; it can be read. With `create`, it is created, for this user
    alone.
    """
    try:
        if create:
            _create_directories(directory)
        with suppress(FileNotFoundError):
            os.scandir(directory).close()
            if why := _distrust(os.stat(directory)):
                return why, "correct that, or set CUDA_EXT_CACHE to a directory that only you can write"
        if create:
            # Whatever the umask, only this user can write entries. A read-only cache may lack the directory.
            with suppress(OSError):
                _create_directories(os.path.join(directory, "objects"))
    except NotADirectoryError:
        return "a file is where a directory should be", "move it"
    except OSError as error:
        return error.strerror or str(error), _ANOTHER
    return "", ""


_ANOTHER = "set CUDA_EXT_CACHE to a directory that can be written"


def _distrust(status: os.stat_result) -> str:
    """Explain why users other than this one and root could write to a directory with that `status`, if so."""
    if sys.platform == "win32":
        return ""
    if status.st_uid not in (os.geteuid(), 0):
        return f"it belongs to another user (uid {status.st_uid})"
    if status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        return f"other users may write there (mode {stat.S_IMODE(status.st_mode):o})"
    return ""


def _create_directories(path: str) -> None:
    """Create the directory `path` and its missing parents, each for its owner alone."""
    missing: list[str] = []
    while True:
        try:
            os.stat(path)  # a name that is too long is an error before anything is created
            break
        except FileNotFoundError:
            missing.append(path)
            path = os.path.dirname(path)
    for directory in reversed(missing):
        with suppress(FileExistsError):
            os.mkdir(directory, 0o700)


def _bound(environ: Mapping[str, str]) -> int:
    """The largest size of the local store in bytes; 0 means no cache."""
    value = environ.get("CUDA_EXT_CACHE_SIZE", "")
    if not value.strip():
        return _DEFAULT_BOUND
    match = re.fullmatch(r"\s*([0-9]{1,18})\s*(?:([KMGT])(?:i?B)?|B)?\s*", value, re.IGNORECASE)
    if not match:
        raise ConfigError(
            f"{value!r} is not a size",
            where="CUDA_EXT_CACHE_SIZE",
            remedy="write bytes, or a number with K, M, G or T, as in 5G; 0 means no cache",
        )
    return int(match[1]) << 10 * " KMGT".index((match[2] or " ").upper())
