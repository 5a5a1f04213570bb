"""The inputs of a project's packages: its table, sources, headers, and the directories searched for them."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from glob import has_magic
from pathlib import Path
from typing import TYPE_CHECKING

from cuda_ext.builder.sources.globs import fixed_directory
from cuda_ext.facts.codec import sha256

if TYPE_CHECKING:
    from cuda_ext.builder.project import Project

TABLE = "pyproject.toml"


def input_digests(project: Project) -> dict[str, str]:
    """Return the SHA-256 of each source and header by its path, and of the table as ``pyproject.toml``.

    The rest of that file has no influence. No compiler is needed. Raises :class:`BuildError`.
    """
    from cuda_ext.compiler.headers import read_project_file

    table = json.dumps(project.table, sort_keys=True, default=str)
    names = [path.as_posix() for path in project.source_files()]
    contents = ((name, read_project_file(project.root / name, name)) for name in names)
    return {name: sha256(content).hex() for name, content in ((TABLE, table.encode()), *contents)}


def searched_directories(project: Project) -> set[str]:
    """Return the directories in which a new file may become a source, or a header that others include.

    Raises :class:`BuildError`.
    """
    files = [path.as_posix() for path in project.source_files()]
    directories = {name.rpartition("/")[0] for name in files}
    for module in project.modules:
        for pattern in (*module.settings.sources, *module.settings.headers):
            directories.update(_directories_of(pattern, project.root))
        include_dirs = [os.path.normpath(name) for name in module.settings.include_dirs]
        # An include of detail/x.h looks into the directory detail of each of these.
        inner = {os.path.relpath(p, d) for d in include_dirs for p in directories if _within(p, d)}
        directories.update(os.path.normpath(f"{d}/{i}") for d in include_dirs for i in {".", *inner})
    return {name or "." for name in directories}


def _within(path: str, directory: str) -> bool:
    return directory == "." or path == directory or path.startswith(f"{directory}{os.sep}")


def _directories_of(pattern: str, root: Path) -> Iterator[str]:
    """Yield the directories whose files `pattern` may match."""
    fixed = fixed_directory(pattern)
    yield fixed
    if has_magic(pattern.rpartition("/")[0]):
        for directory, names, _ in os.walk(root / fixed):
            names[:] = [name for name in names if not name.startswith(".")]
            yield os.path.relpath(directory, root)
