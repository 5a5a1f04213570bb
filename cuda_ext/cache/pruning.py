"""Keep a local store within its bound.

A prune that scans leaves at most the bound. Between two prunes the store may exceed it by what was written
meanwhile. Entries are removed in the order of their last use, which is known to the hour.

The file ``total`` holds the time of the last scan, the size that it counted, and the size of each entry
written since, so that most prunes need not scan.
"""

from __future__ import annotations

import contextlib
import math
import time
from pathlib import Path

from cuda_ext.cache.entry_files import list_files, open_to_append, remove_file, write_file

__all__ = ["HOUR", "TEMPORARY", "TOTAL", "count_written", "prune"]

HOUR = 3600
TEMPORARY, TOTAL = "tmp", "total"  # names in the directory of the entries
_TARGET = 0.8  # of the bound


def count_written(objects: Path, size: int) -> None:
    """Note that an entry of `size` bytes was written to `objects`."""
    with (
        contextlib.suppress(OSError),
        open(objects / TOTAL, "ab", 0, opener=open_to_append) as file,
    ):
        file.write(b"%d " % size)


def prune(objects: Path, bound: int) -> None:
    """Reduce the entries in `objects` to 80 % of `bound` if they exceed it. Never raises.

    Scans the directory once an hour, or when the last scan's total and what was written since exceed the
    bound.
    """
    if _estimate(objects) <= bound:
        return
    _remove_unfinished(objects / TEMPORARY)
    entries = sorted(list_files(*(f"{objects}/{number:02x}" for number in range(256))))
    total = sum(size for _, size, _ in entries)
    if total > bound:
        for _, size, path in entries:
            if total <= bound * _TARGET:
                break
            if remove_file(path):
                total -= size
    with contextlib.suppress(OSError):
        write_file(objects / TOTAL, b"%d %d " % (time.time(), total), objects / TEMPORARY)


def _estimate(objects: Path) -> float:
    """The size of all entries by the file ``total``; infinite if that is missing, damaged or old."""
    try:
        scanned, *sizes = map(int, (objects / TOTAL).read_bytes().split())
    except (OSError, ValueError):
        return math.inf
    # A clock that was set back must not put off the next scan.
    return sum(sizes) if abs(time.time() - scanned) < HOUR else math.inf


def _remove_unfinished(temporary: Path) -> None:
    """Remove the files of killed writers; no write takes an hour."""
    for modified, _, path in list_files(temporary):
        if modified < time.time() - HOUR:
            remove_file(path)
