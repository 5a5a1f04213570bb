"""The cache: where it is, whether it can be used, and how much room there is."""

from __future__ import annotations

import os
import shutil
import stat
import time
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

from cuda_ext.cache.local_store import LocalStore
from cuda_ext.cache.open_store import local_store, why_not_used
from cuda_ext.cli.cache_contents import read_rights, shared_cache
from cuda_ext.cli.doctor.finding import Finding, note, ok, problem, warning
from cuda_ext.errors import BuildError, ConfigError
from cuda_ext.formats.quantities import format_size

__all__ = ["findings"]

# Seconds to count entries for, of which there may be hundreds of thousands.
_PATIENCE = 0.3
# Bytes that a build may take: NVRTC's headers and a handful of large images.
_LITTLE = 200 << 20


def findings() -> Iterator[Finding]:
    try:
        store = local_store(os.environ)
        reason = why_not_used(os.environ)
    except ConfigError as error:
        yield problem("cache", str(error))
        return
    except BuildError as error:  # there is no home directory, or platformdirs is missing
        yield warning("cache", f"none: {error}")
        return
    directory = store.objects.parent
    if reason:
        is_turned_off = not store.bound
        yield (note if is_turned_off else warning)("cache", reason, facts={"directory": str(directory)})
    else:
        yield _used(store)
    if store.bound:
        yield from _room(store, directory)
        yield from _shared()


def _used(store: LocalStore) -> Finding:
    count, total, is_all = _counted(store)
    amount = f"{format_size(total)} of {format_size(store.bound)}, {count:,} entries"
    amount = amount if is_all else f"more than {amount}"
    directory = store.objects.parent
    details = [str(directory)]
    if rights := read_rights(store.objects):
        details.append(f"rights {stat.filemode(rights[0])}, owner {rights[1]}")
    else:
        details.append("made when it is first used")
    facts = {"directory": str(directory), "entries": count, "size": total, "is_all": is_all}
    return ok("cache", f"can be used; {amount}", details, facts=facts | {"bound": store.bound})


def _counted(store: LocalStore) -> tuple[int, int, bool]:
    """How many entries there are, their bytes, and whether all were counted."""
    until = time.monotonic() + _PATIENCE
    count = total = 0
    for file in store.files():
        if file.kind == "entry":
            count, total = count + 1, total + file.size
        if time.monotonic() > until:
            return count, total, False
    return count, total, True


def _room(store: LocalStore, directory: Path) -> Iterator[Finding]:
    """The disk that the cache is on, or would be."""
    nearest = next((p for p in (directory, *directory.parents) if p.is_dir()), None)
    try:
        free = shutil.disk_usage(nearest).free if nearest else 0
    except OSError:
        return  # nobody knows
    text = f"{format_size(free)} free on the disk of the cache"
    if free < _LITTLE:
        remedy = "free some space, or set CUDA_EXT_CACHE to a directory on another disk"
        yield warning("disk", text, remedy, facts={"free": free})
    elif free < store.bound // 2 and free < 5 << 30:
        bound = max(1, free // 2 >> 30)
        remedy = f"lower the bound: set CUDA_EXT_CACHE_SIZE to {bound}G"
        yield note("disk", text, remedy, facts={"free": free})
    else:
        yield ok("disk", text, facts={"free": free})


def _shared() -> Iterator[Finding]:
    """The cache that machines share, which nobody asks here: that may take long."""
    if not (url := shared_cache(os.environ)):
        return
    if find_spec("fsspec") is None:
        command = 'pip install "cuda-ext[shared-cache]"'
        yield warning(
            "shared cache", f"{url} is not used: fsspec is missing", command=command, facts={"url": url}
        )
    else:
        yield ok("shared cache", f"{url}, by builds; it is not looked at here", facts={"url": url})
