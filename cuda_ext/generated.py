"""A directory that a build or ``cuda_ext.save`` made, told from what anybody else did."""

from __future__ import annotations

import json
import os
from pathlib import Path

from cuda_ext.manifest import FILE_NAME

__all__ = ["foreign", "is_generated"]

_FILES = {"__init__.py", "__init__.pyi", FILE_NAME, "sources"}
_IMAGES = {".fatbin", ".cubin", ".ptx", ".ltoir"}


def is_generated(directory: Path) -> bool:
    """Whether we made `directory`, be it an older or a newer version of us."""
    try:
        manifest = json.loads((directory / FILE_NAME).read_bytes())
    except (OSError, ValueError):
        return False
    match manifest:
        case {"schema": int(), "module": str(), "units": list()}:
            return True
    return False


def foreign(directory: Path) -> Path | None:
    """What would be lost if `directory` were replaced, and was not made by us; itself if it is a file."""
    if not os.path.lexists(directory):
        return None
    if not directory.is_dir():
        return directory
    ours = {"__pycache__"}
    if is_generated(directory):
        ours |= _FILES | {p.name for p in directory.iterdir() if p.suffix in _IMAGES or _is_hidden(p)}
    return next((p for p in sorted(directory.iterdir()) if p.name not in ours), None)


def _is_hidden(path: Path) -> bool:
    """Whether it is what file managers and network file systems leave everywhere."""
    return path.name.startswith(".") and path.is_file()
