"""``editable.json``: the state of the sources that a package of an editable install was compiled from.

It says whether an import compiles changed sources, and has the project's root, the file system's description
of each source, header and searched directory, and the digest of each file. Of the build environment, only
``CUDAARCHS`` is kept. An import reads it, so this module loads little.
"""

# ruff: noqa: PTH116, PTH118, PTH123 - pathlib is not loaded where nothing has changed

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

FILE = "editable.json"
SCHEMA = 2


def is_editable(directory: Path) -> bool:
    """Return True if the package in `directory` is one of an editable install."""
    return (directory / FILE).is_file()


def read_record(directory: Path | str) -> dict[str, Any] | None:
    """Read the record of the package in `directory`; ``None`` without one of this version."""
    try:
        with open(os.path.join(directory, FILE), encoding="utf-8") as file:
            record: Any = json.load(file)
    except (OSError, ValueError):
        return None
    return record if isinstance(record, dict) and record.get("schema") == SCHEMA else None


def has_changed(record: Mapping[str, Any]) -> bool:
    """Return True if the file system reports any change since `record` was written."""
    root, seen = record["root"], record["seen"]
    return any(describe_file(root, path) != description for path, description in seen.items())


def describe_file(root: str, path: str) -> list[int] | None:
    """Return size, inode and times of a file or directory; ``None`` if it does not exist."""
    try:
        status = os.stat(os.path.join(root, path))
    except OSError:
        return None
    return [status.st_size, status.st_ino, status.st_mtime_ns, status.st_ctime_ns]
