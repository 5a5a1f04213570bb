"""Tell files and directories that a build or ``cuda_ext.save`` wrote from anything else."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

from cuda_ext.errors import BuildError
from cuda_ext.manifest import FILE_NAME

__all__ = ["check_replaceable", "foreign", "is_generated"]

_PACKAGE = {"__init__.py", "__init__.pyi", FILE_NAME, "editable.json", ".gitignore"}
_LITTER = (".DS_Store", ".nfs")  # left anywhere by file managers and network file systems


def check_replaceable(path: Path, kind: str, is_one: Callable[[bytes], bool]) -> None:
    """Raise :class:`BuildError` if `path` holds anything but a file of which `is_one` is true.

    `kind` names such files, and the file may be empty or missing.
    """
    if path.is_dir():
        raise BuildError("is a directory", where=str(path), remedy="name a file")
    try:
        content = path.read_bytes() if path.is_file() else b""
    except OSError as error:
        raise BuildError(
            f"cannot be read: {error.strerror}", where=str(path), remedy="name another file"
        ) from None
    if (path.exists() and not path.is_file()) or (content and not is_one(content)):
        raise BuildError(
            f"is not the {kind}, and stays", where=str(path), remedy="name another file, or remove this one"
        )


def is_generated(directory: Path) -> bool:
    """Whether any version of this package wrote `directory`."""
    return _generated_files(directory) is not None


def foreign(directory: Path) -> Path | None:
    """Return the first path that this package did not write and that replacing `directory` would delete.

    This is `directory` itself if it is a file.
    """
    if not os.path.lexists(directory):
        return None
    if not directory.is_dir():
        return directory
    ours = _generated_files(directory) or set()
    for path in sorted(directory.rglob("*")):
        name = path.relative_to(directory).as_posix()
        if name not in ours and not path.name.startswith(_LITTER) and "__pycache__" not in path.parts:
            if path.is_dir() and any(file.startswith(f"{name}/") for file in ours):
                continue
            return path
    return None


def _generated_files(directory: Path) -> set[str] | None:
    """The files that the manifest in `directory` lists; ``None`` without a manifest of this package."""
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
