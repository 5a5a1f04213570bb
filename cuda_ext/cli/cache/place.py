"""The cache on this machine, for commands that read or remove what is in it."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path

from cuda_ext.cache.store import LocalStore, distrust, local_store
from cuda_ext.cli.failure import Failure

__all__ = ["rights_of", "shared_cache", "store_to_tend"]


def store_to_tend(environ: Mapping[str, str]) -> LocalStore | None:
    """The local store, even where it is turned off; ``None`` if nothing was ever kept.

    Raises :class:`Failure` for one that others may write, or that cannot be read.
    """
    store = local_store(environ)
    remedy = "set CUDA_EXT_CACHE to a directory that only you can write"
    try:
        why = distrust(store.objects)
    except FileNotFoundError:
        return None
    except OSError as error:
        why = error.strerror or str(error)
    if not why and not store.objects.is_dir():
        why, remedy = "it is no directory", "move it"
    if not why and not os.access(store.objects, os.R_OK | os.X_OK):
        why = "it cannot be read"
    if why:
        raise Failure(f"{store.objects}: the cache is left alone: {why}; {remedy}")
    return store


def shared_cache(environ: Mapping[str, str]) -> str:
    """The URL of the cache that machines share, without a password; empty if there is none."""
    location = environ.get("CUDA_EXT_CACHE", "")
    return re.sub(r"(?<=://)[^/@\s]*@", "", location) if "://" in location else ""


def rights_of(directory: Path) -> tuple[int, str] | None:
    """The mode and the owner of `directory`, if it is there."""
    try:
        status = directory.stat()
    except OSError:
        return None
    try:
        return status.st_mode, directory.owner()
    except (KeyError, NotImplementedError):  # nobody has the number, or the system has no owners
        return status.st_mode, str(status.st_uid)
