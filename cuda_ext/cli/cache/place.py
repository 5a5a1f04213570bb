"""The cache on this machine, for commands that read or remove what is in it."""

from __future__ import annotations

import os
from collections.abc import Mapping

from cuda_ext.cli.failure import Failure
from cuda_ext.store import LocalStore, distrust, local_store

__all__ = ["store_to_tend"]


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
