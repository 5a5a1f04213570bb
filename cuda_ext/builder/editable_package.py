"""Packages of an editable install that compile changed sources: ``editable-rebuild = true``.

They lie in the source tree, like all packages that are built in place. Each has a record of the state that it
was compiled from (:mod:`~cuda_ext.builder.editable_record`). If the file system reports a change, digests
decide; if a digest differs, the project is built with the importer's compiler.
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
from typing import Any, TextIO

from cuda_ext.builder.editable_record import FILE, SCHEMA, describe_file, has_changed
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
    at the installation. The packages have no records without ``editable-rebuild =
    true``. Raises :class:`BuildError`.
    """
    if not project.settings.editable_rebuild:
        return build()
    state = _read_state(project)
    packages = build()
    record = {
        "schema": SCHEMA,
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


def rebuild(name: str, directory: str, read_record: Callable[[], dict[str, Any]]) -> None:
    """Compile the project of the package `name` in `directory` if its files have changed.

    Another process may just have compiled it. `read_record` returns the current record of the package. Raises
    :class:`BuildError`.
    """
    began = time.time()
    root = Path(read_record()["root"])
    with lock(root / TABLE, patience=_PATIENCE) as alone:
        record = read_record()
        if not has_changed(record):
            return
        # In a table without module names, the module is named after its package.
        project = Project.load(root, [name.rpartition(".")[0]])
        if project is None or name not in (module.name for module in project.modules):
            raise ConfigError(
                f"is gone, or has no module {name!r} any more",
                where=root / TABLE,
                remedy="install the project again",
            )
        state = _read_state(project)
        digests = state["digests"]
        former = record["digests"]
        changed = sorted(n for n in former.keys() | digests.keys() if former.get(n) != digests.get(n))
        if not changed:
            _write_record(directory, {**record, **state})
            return
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
            reason = f"{name}: changed: {join_names(changed, _MOST_NAMES)}"
            _build_in_place(project, record, reason)
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
