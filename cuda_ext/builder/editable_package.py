"""Packages of an editable install, which know the state of the sources that they were compiled from.

They lie in the source tree, like all packages that are built in place. Each has a record of that state
(:mod:`~cuda_ext.builder.editable_record`). If the file system reports a change, digests decide; if a digest
differs, an import warns, or with ``editable-rebuild = true`` builds the project with the importer's compiler.
"""

from __future__ import annotations

import io
import json
import os
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import closing, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, TextIO

from cuda_ext.builder.editable_record import FILE, SCHEMA, describe_file, has_changed, read_record
from cuda_ext.builder.package.generate import Package, render_init
from cuda_ext.builder.package.in_place import write_in_place
from cuda_ext.builder.project import Project
from cuda_ext.builder.scheduler.progress import progress_for
from cuda_ext.builder.session import build
from cuda_ext.builder.sources.inputs import TABLE, input_digests, searched_directories
from cuda_ext.errors import BuildError, ConfigError, join_names
from cuda_ext.filesystem.atomic_directory import replace_file
from cuda_ext.filesystem.locks import lock

# Nanoseconds within which a file may change twice and keep its times.
_TICK = 2_000_000_000
# Seconds to wait for another process that builds the project.
_PATIENCE = 3600
_MOST_NAMES = 3  # the number of changed files that a message names


def build_editable(
    project: Project,
    directory_of: Callable[[str], Path],
    build: Callable[[], list[Package]],
    cudaarchs: str,
) -> list[Package]:
    """Return the packages that `build` builds, with records of the state of their sources.

    `directory_of` returns the directory in the source tree for an import name. `cudaarchs` is ``CUDAARCHS``
    at the installation. Raises :class:`BuildError`.
    """
    state = _read_state(project)
    packages = build()
    record = {
        "schema": SCHEMA,
        "rebuild": project.settings.editable_rebuild,
        "root": str(project.root),
        "directories": {p.name: os.path.realpath(directory_of(p.name)) for p in packages},
        "cudaarchs": cudaarchs,
        **state,
    }
    added = {FILE: _encode(record)}
    return [
        replace(p, files={**p.files, **added, "__init__.py": render_init(p.name, editable=True)})
        for p in packages
    ]


class Changes(NamedTuple):
    """The files of `project` that differ from those of a record, by name, and the current state of all."""

    names: list[str]
    project: Project
    state: dict[str, Any]

    @classmethod
    def find(cls, name: str, directory: str, record: Mapping[str, Any]) -> Changes:
        """Compare the project of the package `name` in `directory` with its `record`.

        If no file differs, the record learns what the file system says now. Raises :class:`BuildError`.
        """
        root = Path(record["root"])
        # In a table without module names, the module is named after its package.
        project = Project.load(root, [name.rpartition(".")[0]])
        if project is None or name not in (module.name for module in project.modules):
            raise ConfigError(
                f"is gone, or has no module {name!r} any more",
                where=root / TABLE,
                remedy="install the project again",
            )
        state = _read_state(project)
        now, former = state["digests"], record["digests"]
        names = sorted(each for each in former.keys() | now.keys() if former.get(each) != now.get(each))
        if not names:
            _write_record(directory, {**record, **state})
        return cls(names, project, state)

    def __str__(self) -> str:
        return join_names(self.names, _MOST_NAMES)


def describe_changes(name: str, directory: str) -> tuple[str, str]:
    """Say what has changed since the package `name` in `directory` was compiled, and what to do.

    The texts are empty if nothing has changed.
    """
    record = read_record(directory)
    if record is None:
        return f"{FILE} is damaged, or of another version of cuda-ext", "install the project again"
    if not has_changed(record):
        return "", ""
    try:
        changes = Changes.find(name, directory, record)
    except BuildError as error:
        return f"its project cannot be read any more: {error.statement}", error.remedy
    if not changes.names:
        return "", ""
    return (
        f"its kernels are older than its sources; changed: {changes}",
        f"run cuda-ext build in {record['root']}, or set editable-rebuild = true",
    )


def rebuild(name: str, directory: str, read: Callable[[], dict[str, Any]]) -> None:
    """Compile the project of the package `name` in `directory` if its files have changed.

    Another process may just have compiled it. `read` returns the current record of the package. Raises
    :class:`BuildError`.
    """
    began = time.time()
    root = Path(read()["root"])
    with lock(root / TABLE, patience=_PATIENCE) as alone:
        record = read()
        if not has_changed(record):
            return
        changes = Changes.find(name, directory, record)
        if not changes.names:
            return
        digests = changes.state["digests"]
        if not alone:
            raise BuildError(
                "cannot be locked on this system, or another process has kept it for an hour; all importing "
                "processes would compile at once",
                where=root / TABLE,
                remedy="run cuda-ext build in its directory",
            )
        # If another process failed while this one waited, this one would fail, too.
        match record.get("failure"):
            case {"at": float(at), "digests": failed, "message": str(message)} if (
                at > began and failed == digests
            ):
                raise BuildError(message)
        try:
            _build_in_place(changes.project, record, f"{name}: changed: {changes}")
        except BuildError as error:
            failure = {"at": time.time(), "digests": digests, "message": str(error)}
            _write_record(directory, {**record, "failure": failure})
            raise


def _build_in_place(project: Project, record: Mapping[str, Any], reason: str) -> None:
    """Compile the project and replace its packages; `record` belongs to one of them.

    Standard error shows `reason`, and then the compilations. Raises :class:`BuildError`.
    """

    def directory_of(name: str) -> Path:
        known = record["directories"].get(name)
        return Path(known) if known else project.source_directory(name)

    cudaarchs = record["cudaarchs"]
    environ = {**({"CUDAARCHS": cudaarchs} if cudaarchs else {}), **os.environ}
    stream: TextIO = sys.stderr or io.StringIO()
    report = partial(print, file=stream)
    with closing(progress_for(stream, report, heading=reason)) as progress:
        packages = build_editable(project, directory_of, lambda: build(project, environ, progress), cudaarchs)
    write_in_place(project, packages, {package.name: directory_of(package.name) for package in packages})


def _read_state(project: Project) -> dict[str, Any]:
    """Return the current state of the inputs in the form of records. Raises :class:`BuildError`."""
    root, now = str(project.root), time.time_ns()
    digests = input_digests(project)
    seen = {path: describe_file(root, path) for path in sorted({*digests, *searched_directories(project)})}
    for description in filter(None, seen.values()):
        if max(description[-2:]) > now - _TICK:
            description.clear()  # now it differs from every description
    return {"seen": seen, "digests": digests}


def _write_record(directory: str, record: Mapping[str, Any]) -> None:
    with suppress(OSError):  # otherwise the next import compares once more
        replace_file(Path(directory, FILE), _encode(record))


def _encode(record: Mapping[str, Any]) -> bytes:
    return f"{json.dumps(record, indent=1)}\n".encode()
