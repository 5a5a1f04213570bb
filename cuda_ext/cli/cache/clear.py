"""``cuda-ext cache clear``."""

from __future__ import annotations

import math
import os
import time
from dataclasses import asdict, dataclass

import click

from cuda_ext.cache.store import LocalStore, local_directory
from cuda_ext.cli.cache.headers import remove_headers, size_of, unpacked
from cuda_ext.cli.cache.place import store_to_tend
from cuda_ext.cli.failure import Failure
from cuda_ext.cli.output import counted, echo_json, size

__all__ = ["clear"]

_DAY = 86400


@dataclass
class _Removed:
    """What was removed, and how much of it could not be."""

    entries: int = 0
    unfinished: int = 0
    headers: int = 0
    size: int = 0
    failed: int = 0


@click.command(
    epilog="""\b
    Examples:
      cuda-ext cache clear
      cuda-ext cache clear --older-than 30
    """
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.option(
    "--headers", is_flag=True, help="NVRTC's unpacked headers too, which nobody may be compiling with."
)
@click.option(
    "--older-than",
    type=click.FloatRange(min=0),
    metavar="DAYS",
    help="Of the entries, only those that were last used so many days ago.",
)
def clear(as_json: bool, headers: bool, older_than: float | None) -> None:
    """Remove what was compiled from the cache of this machine.

    Other processes may be using it: they compile again, at worst. Files that are not the cache's are left
    alone.
    """
    store = store_to_tend(os.environ)
    removed = _Removed()
    if store is not None:
        _remove_files(store, math.inf if older_than is None else time.time() - older_than * _DAY, removed)
    directory = local_directory(os.environ)
    if headers:
        for path in unpacked(directory):
            total = size_of(path)
            if remove_headers(path):
                removed.headers, removed.size = removed.headers + 1, removed.size + total
            else:
                removed.failed += 1
    if as_json:
        echo_json(asdict(removed))
    elif store is None and not removed.headers and not removed.failed:
        click.echo(f"{directory}: there is no cache")
    else:
        click.echo(f"{directory}: removed {_described(removed)}")
    if removed.failed:
        left = counted(removed.failed, "file or directory", "files or directories")
        raise Failure(f"{directory}: {left} could not be removed; look at the owner and the rights there")


def _remove_files(store: LocalStore, before: float, removed: _Removed) -> None:
    """Remove what was last used `before`.

    The locks stay: they are empty, and somebody may be holding one.
    """
    for file in store.files():
        if file.kind != "stray" and file.modified < before:
            if store.remove(file):
                removed.entries += file.kind == "entry"
                removed.unfinished += file.kind == "unfinished"
                removed.size += file.size
            else:
                removed.failed += 1


def _described(removed: _Removed) -> str:
    parts = [counted(removed.entries, "entry", "entries")]
    if removed.unfinished:
        parts.append(counted(removed.unfinished, "unfinished file"))
    if removed.headers:
        parts.append(counted(removed.headers, "directory", "directories") + " of NVRTC's headers")
    return f"{', '.join(parts)}, {size(removed.size)} in all"
