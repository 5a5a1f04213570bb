"""A directory that a build or ``cuda_ext.save`` made, told from what anybody else did."""

from __future__ import annotations

import json
import os
from pathlib import Path

from cuda_ext.manifest import FILE_NAME

__all__ = ["foreign", "is_generated"]

_PACKAGE = {"__init__.py", "__init__.pyi", FILE_NAME, "editable.json", ".gitignore"}
_LITTER = (".DS_Store", ".nfs")  # what file managers and network file systems leave everywhere


def is_generated(directory: Path) -> bool:
    """Whether we made `directory`, be it an older or a newer version of us."""
    return _files(directory) is not None


def foreign(directory: Path) -> Path | None:
    """What would be lost if `directory` were replaced, and was not made by us; itself if it is a file."""
    if not os.path.lexists(directory):
        return None
    if not directory.is_dir():
        return directory
    ours = _files(directory) or set()
    for path in sorted(directory.rglob("*")):
        name = path.relative_to(directory).as_posix()
        if name not in ours and not path.name.startswith(_LITTER) and "__pycache__" not in path.parts:
            if path.is_dir() and any(file.startswith(f"{name}/") for file in ours):
                continue
            return path
    return None


def _files(directory: Path) -> set[str] | None:
    """The files that the manifest in `directory` tells of; ``None`` if there is no manifest of ours."""
    try:
        manifest = json.loads((directory / FILE_NAME).read_bytes())
    except (OSError, ValueError):
        return None
    match manifest:
        case {"schema": int(), "module": str(), "units": list(units)}:
            embedded = manifest.get("embedded") or {}
            images = [i for u in units if isinstance(u, dict) for i in u.get("images") or ()]
            files = {str(i.get("file")) for i in images if isinstance(i, dict)}
            return _PACKAGE | files | {f"sources/{name}" for name in embedded}
    return None
