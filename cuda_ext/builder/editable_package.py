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
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path
    from typing import Any

    from cuda_ext.builder.package.generate import Package
    from cuda_ext.builder.project import Project

__all__ = [
    "FILE",
    "SCHEMA",
    "build_editable",
    "described",
    "editable",
    "encoded",
    "is_editable",
    "recorded",
    "state",
]

FILE = "editable.json"
SCHEMA = 1
# Nanoseconds within which a file may change twice and keep its times.
_TICK = 2_000_000_000


def build_editable(
    project: Project,
    directory_of: Callable[[str], Path],
    report: Callable[[str], None] = lambda _: None,
    environ: Mapping[str, str] = os.environ,
    cudaarchs: str | None = None,
) -> list[Package]:
    """Build the packages of an editable install.

    `directory_of` returns the directory in the source tree for an import name. `cudaarchs` is the value at
    installation, where this is a rebuild. Without ``editable-rebuild = true`` the packages are the same as
    others. Raises :class:`BuildError`.
    """
    from cuda_ext.builder.session import build_project

    if not project.settings.editable_rebuild:
        return build_project(project, report, environ)
    before = state(project)
    packages = build_project(project, report, environ)
    if cudaarchs is None:
        cudaarchs = environ.get("CUDAARCHS", "")
    return editable(project, packages, before, directory_of, cudaarchs)


def is_editable(directory: Path) -> bool:
    """Whether the package in `directory` compiles what has changed."""
    return (directory / FILE).is_file()


def recorded(directory: Path | str) -> dict[str, Any] | None:
    """Read the state that the package in `directory` was compiled from; ``None`` without a valid one."""
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
        } if schema == SCHEMA and all(isinstance(directory, str) for directory in directories.values()):
            return record
    return None


def state(project: Project) -> dict[str, Any]:
    """Return the current state of the inputs, which an import compares. Raises :class:`BuildError`."""
    import time

    from cuda_ext.builder.sources.inputs import input_digests, searched_directories

    root, now = str(project.root), time.time_ns()
    digests = input_digests(project)
    seen = {path: described(root, path) for path in sorted({*digests, *searched_directories(project)})}
    for description in filter(None, seen.values()):
        if max(description[-2:]) > now - _TICK:
            description.clear()  # so that it differs from every description
    return {"seen": seen, "digests": digests}


def editable(
    project: Project,
    packages: Sequence[Package],
    now: Mapping[str, Any],
    directory_of: Callable[[str], Path],
    cudaarchs: str,
) -> list[Package]:
    """Return `packages`, compiled from the state `now`, with their records of it."""
    from dataclasses import replace

    from cuda_ext.builder.package.generate import render_init

    directories = {package.name: directory_of(package.name) for package in packages}
    record = {
        "schema": SCHEMA,
        "root": str(project.root),
        "directories": {n: _seen_from(project.root, d) for n, d in directories.items()},
        "cudaarchs": cudaarchs,
        **now,
    }
    files = {FILE: encoded(record)}
    return [
        replace(p, files={**p.files, **files, "__init__.py": render_init(p.name, editable=True)})
        for p in packages
    ]


def encoded(record: Mapping[str, Any]) -> bytes:
    return f"{json.dumps(record, indent=1)}\n".encode()


def _seen_from(root: Path, directory: Path) -> str:
    real = os.path.realpath(directory)
    try:
        return os.path.relpath(real, root)
    except ValueError:  # it is on another drive
        return real


def described(root: str, path: str) -> list[int] | None:
    """Return size, inode and times of a file or directory; ``None`` if it does not exist."""
    try:
        found = os.stat(os.path.join(root, path))
    except OSError:
        return None
    return [found.st_size, found.st_ino, found.st_mtime_ns, found.st_ctime_ns]
