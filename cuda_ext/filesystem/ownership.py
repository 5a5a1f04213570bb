"""Tell files and directories that a build or ``cuda_ext.save`` wrote from anything else."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable
from pathlib import Path, PurePosixPath

from cuda_ext.errors import BuildError
from cuda_ext.facts.manifest import FILE_NAME
from cuda_ext.filesystem.regular_file import read_file

_PACKAGE = {"__init__.py", "__init__.pyi", FILE_NAME, "editable.json", ".gitignore"}
# Files that file managers, network file systems and Python leave anywhere.
_LITTER = re.compile(r"(.*/)?(\.DS_Store|\.nfs[0-9a-f]+|__pycache__(/[^/]+\.pyc(\.[0-9]+)?)?)")

_HEAD = 1 << 20  # the number of bytes that show the kind of a file


def check_replaceable(path: Path, kind: str, is_one: Callable[[bytes], bool]) -> None:
    """Raise :class:`BuildError` if anything exists at `path` except a file for which `is_one` is true.

    `kind` names such files, and `is_one` gets the beginning of the file. An empty file is not one: it may be
    an ``__init__.py``.
    """
    if path.is_dir():
        raise BuildError("is a directory", where=str(path), remedy="name a file")
    try:
        content = b""
        if path.is_file():
            with path.open("rb") as file:
                content = file.read(_HEAD)
    except OSError as error:
        raise BuildError(
            f"cannot be read: {error.strerror}", where=str(path), remedy="name another file"
        ) from None
    if os.path.lexists(path) and not is_one(content):
        raise BuildError(
            f"is not the {kind}, and stays", where=str(path), remedy="name another file, or remove this one"
        )


def is_generated(directory: Path) -> bool:
    """Return True if any version of this package wrote `directory`."""
    return _generated_files(directory) is not None


def find_package(directory: Path) -> Path | None:
    """Return the generated package that the absolute `directory` is or lies in, if there is one."""
    with_manifest = (place for place in (directory, *directory.parents) if (place / FILE_NAME).is_file())
    return next(filter(is_generated, with_manifest), None)


def foreign(directory: Path) -> Path | None:
    """Return the first path that this package did not write and that replacing `directory` would delete.

    This is `directory` itself if it is a file, and its manifest if that does not list the files.
    """
    if not os.path.lexists(directory):
        return None
    if not directory.is_dir():
        return directory
    ours = _generated_files(directory)
    if ours is None and os.path.lexists(directory / FILE_NAME):
        return directory / FILE_NAME
    directories = {parent.as_posix() for name in ours or () for parent in PurePosixPath(name).parents}
    for path in sorted(directory.rglob("*")):
        name = path.relative_to(directory).as_posix()
        is_directory = path.is_dir() and not path.is_symlink()
        expected = directories if is_directory else ours or ()
        is_litter = _LITTER.fullmatch(name) and is_directory == (path.name == "__pycache__")
        if name not in expected and not is_litter:
            return path
    return None


def _generated_files(directory: Path) -> set[str] | None:
    """Return the files that the manifest in `directory` lists; ``None`` without a manifest of ours."""
    try:
        manifest = json.loads(read_file(f"{directory}/{FILE_NAME}"))
        if not (isinstance(manifest["schema"], int) and isinstance(manifest["module"], str)):
            return None
        files = {str(image["file"]) for unit in manifest["units"] for image in unit["images"]}
        return _PACKAGE | files | {f"sources/{name}" for name in manifest.get("embedded") or {}}
    except (OSError, ValueError, TypeError, LookupError, RecursionError):
        return None
