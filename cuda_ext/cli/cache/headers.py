"""NVRTC's own headers, which lie unpacked in the cache directory."""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from cuda_ext.cache.store import distrust
from cuda_ext.filesystem.atomic_directory import only_writer

__all__ = ["remove_headers", "size_of", "unpacked"]

# Of a version of NVRTC; with a further suffix, what somebody who unpacks or removes them has left.
_NAME = re.compile(r"nvrtc-headers-[0-9]+\.[0-9]+(\..+)?")


def unpacked(directory: Path) -> list[Path]:
    """Where headers lie in the cache `directory`, what killed processes have left among them."""
    try:
        return sorted(p for p in directory.iterdir() if _NAME.fullmatch(p.name) and p.is_dir())
    except OSError:
        return []


def size_of(headers: Path) -> int:
    """The size of all files there."""
    return sum(_sizes(headers))


def remove_headers(headers: Path) -> bool:
    """Remove them at once, so that nobody takes a part for all; whether they are gone.

    What belongs to others is left alone.
    """
    # Nobody who unpacks headers is disturbed.
    with only_writer(headers.parent):
        try:
            if headers.is_symlink():
                headers.unlink()
            elif not distrust(headers):
                aside = Path(tempfile.mkdtemp(prefix=f"{headers.name}.", dir=headers.parent))
                headers.rename(aside / "headers")
                shutil.rmtree(aside)
        except FileNotFoundError:
            pass
        except OSError:
            return False
    return not os.path.lexists(headers)


def _sizes(headers: Path) -> Iterator[int]:
    for directory, _, names in os.walk(headers):
        for name in names:
            try:
                yield Path(directory, name).lstat().st_size
            except OSError:  # somebody removes them
                continue
