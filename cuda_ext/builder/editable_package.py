"""Packages of an editable install that compile what has changed: ``editable-rebuild = true``.

They lie in the source tree, like all packages that are built in place. The ``editable.json`` of each has the
project's root and the state that the package was compiled from: the file system's description of each
source, header and searched directory, and the digest of each file. Of the build environment, only
``CUDAARCHS`` is kept.
"""

# ruff: noqa: PTH116, PTH118, PTH123 - pathlib is not loaded where nothing has changed

from __future__ import annotations

import json
import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path
    from typing import Any

    from cuda_ext.builder.package.generate import Package
    from cuda_ext.builder.project import Project

__all__ = [
    "FILE",
    "build_editable",
    "has_changed",
    "is_editable",
    "read_record",
    "read_state",
    "write_record",
]

FILE = "editable.json"
_SCHEMA = 1
# Nanoseconds within which a file may change twice and keep its times.
_TICK = 2_000_000_000


def is_editable(directory: Path) -> bool:
    """Whether the package in `directory` compiles what has changed."""
    return (directory / FILE).is_file()


def read_record(directory: Path | str) -> dict[str, Any] | None:
    """Read the record of the package in `directory`; ``None`` without a valid one."""
    try:
        with open(os.path.join(directory, FILE), encoding="utf-8") as file:
            record: dict[str, Any] = json.load(file)
    except (OSError, ValueError):
        return None
    match record:
        case {
            "schema": schema,
            "root": str(),
            "directories": dict(directories),
            "cudaarchs": str(),
            "seen": dict(),
            "digests": dict(),
        } if schema == _SCHEMA and all(isinstance(directory, str) for directory in directories.values()):
            return record
    return None


def write_record(directory: str, record: Mapping[str, Any]) -> None:
    """Replace the record of the package in `directory`. Raises :class:`OSError`."""
    from pathlib import Path

    from cuda_ext.filesystem.atomic_directory import replace_file

    replace_file(Path(directory, FILE), _encode(record))


def has_changed(record: Mapping[str, Any]) -> bool:
    """Whether the file system reports any change since `record` was written."""
    root, seen = record["root"], record["seen"]
    return any(_describe_file(root, path) != description for path, description in seen.items())


def read_state(project: Project) -> dict[str, Any]:
    """Return the current state of the inputs, as records have it. Raises :class:`BuildError`."""
    import time

    from cuda_ext.builder.sources.inputs import input_digests, searched_directories

    root, now = str(project.root), time.time_ns()
    digests = input_digests(project)
    seen = {path: _describe_file(root, path) for path in sorted({*digests, *searched_directories(project)})}
    for description in filter(None, seen.values()):
        if max(description[-2:]) > now - _TICK:
            description.clear()  # so that it differs from every description
    return {"seen": seen, "digests": digests}


def build_editable(
    project: Project,
    directory_of: Callable[[str], Path],
    build: Callable[[], list[Package]],
    cudaarchs: str | None = None,
) -> list[Package]:
    """Return the packages that `build` builds, with records of the state that they are compiled from.

    `directory_of` returns the directory in the source tree for an import name. `cudaarchs` is ``CUDAARCHS``
    at the installation, if this is a rebuild. The packages have no records without ``editable-rebuild =
    true``. Raises :class:`BuildError`.
    """
    from dataclasses import replace

    from cuda_ext.builder.package.generate import render_init

    if not project.settings.editable_rebuild:
        return build()
    state = read_state(project)
    packages = build()
    record = {
        "schema": _SCHEMA,
        "root": str(project.root),
        "directories": {p.name: _relative_path(project.root, directory_of(p.name)) for p in packages},
        "cudaarchs": os.environ.get("CUDAARCHS", "") if cudaarchs is None else cudaarchs,
        **state,
    }
    return [
        replace(
            package,
            files={
                **package.files,
                FILE: _encode(record),
                "__init__.py": render_init(package.name, editable=True),
            },
        )
        for package in packages
    ]


def _encode(record: Mapping[str, Any]) -> bytes:
    return f"{json.dumps(record, indent=1)}\n".encode()


def _relative_path(root: Path, directory: Path) -> str:
    real = os.path.realpath(directory)
    try:
        return os.path.relpath(real, root)
    except ValueError:  # it is on another drive
        return real


def _describe_file(root: str, path: str) -> list[int] | None:
    """Return size, inode and times of a file or directory; ``None`` if it does not exist."""
    try:
        status = os.stat(os.path.join(root, path))
    except OSError:
        return None
    return [status.st_size, status.st_ino, status.st_mtime_ns, status.st_ctime_ns]
