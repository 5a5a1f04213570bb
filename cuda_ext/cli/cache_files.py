"""The cache of this machine, for commands that show or change it: its files, its rights, unpacked headers."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, suppress
from pathlib import Path

from cuda_ext.cache.local_store import LocalStore, StoredFile
from cuda_ext.cache.location import distrust
from cuda_ext.cache.open_store import local_store
from cuda_ext.cli.terminal import Failure
from cuda_ext.filesystem.atomic_directory import remove_directory

__all__ = [
    "find_headers",
    "measure_directory",
    "open_store",
    "read_rights",
    "remove_headers",
    "shared_cache",
    "walk_files",
]

# Seconds before a progress bar appears.
_SLOW = 1.0
# NVRTC's unpacked headers, by version; a dot before it marks the remains of an interrupted process.
_HEADERS = re.compile(r"\.?nvrtc-headers-[0-9]+\.[0-9]+(\..+)?")


def open_store(environ: Mapping[str, str]) -> LocalStore | None:
    """Return the local store, even if it is turned off; ``None`` if it does not exist.

    Raises :class:`Failure` if other users may write to it, or if it cannot be read.
    """
    store = local_store(environ)
    remedy = "set CUDA_EXT_CACHE to a directory that only you can write"
    try:
        flaw = distrust(store.objects)
    except FileNotFoundError:
        return None
    except OSError as error:
        flaw = error.strerror or str(error)
    if not flaw and not store.objects.is_dir():
        flaw, remedy = "it is not a directory", "move it"
    if not flaw and not os.access(store.objects, os.R_OK | os.X_OK):
        flaw = "it cannot be read"
    if flaw:
        raise Failure(f"the cache is left alone: {flaw}", where=store.objects, remedy=remedy)
    return store


def walk_files(store: LocalStore, title: str) -> Iterator[StoredFile]:
    """Yield the files in `store`. On a terminal, show a progress bar if that takes long."""
    from rich.console import Console
    from rich.progress import Progress

    bar = Progress(console=Console(stderr=True), transient=True)
    task = bar.add_task(title, total=1.0)
    slow = time.monotonic() + _SLOW
    with ExitStack() as stack:
        for file in store.files():
            if file.kind == "entry":
                bar.update(task, completed=file.share)
            if bar.console.is_terminal and not bar.live.is_started and time.monotonic() > slow:
                stack.enter_context(bar)
            yield file


def shared_cache(environ: Mapping[str, str]) -> str:
    """The URL of the cache that machines share, without a password; empty if there is none."""
    location = environ.get("CUDA_EXT_CACHE", "")
    return re.sub(r"(?<=://)[^/@\s]*@", "", location) if "://" in location else ""


def read_rights(directory: Path) -> tuple[int, str] | None:
    """The mode and the owner of `directory`, if it exists."""
    try:
        status = directory.stat()
    except OSError:
        return None
    try:
        return status.st_mode, directory.owner()
    except (KeyError, NotImplementedError):  # the user has no name, or the system has no owners
        return status.st_mode, str(status.st_uid)


def find_headers(directory: Path) -> list[Path]:
    """NVRTC's unpacked headers in the cache `directory`, and the remains of interrupted processes."""
    try:
        return sorted(p for p in directory.iterdir() if _HEADERS.fullmatch(p.name) and p.is_dir())
    except OSError:
        return []


def measure_directory(directory: Path) -> int:
    """The size of all files in `directory`; files that disappear meanwhile do not count."""
    size = 0
    for parent, _, names in os.walk(directory):
        for name in names:
            with suppress(OSError):
                size += Path(parent, name).lstat().st_size
    return size


def remove_headers(headers: Path) -> bool:
    """Remove `headers` atomically, unless other users may write to them; return whether they are gone."""
    try:
        if headers.is_symlink():
            headers.unlink()
        elif not distrust(headers):
            remove_directory(headers)
    except FileNotFoundError:
        pass
    except OSError:
        return False
    return not os.path.lexists(headers)
