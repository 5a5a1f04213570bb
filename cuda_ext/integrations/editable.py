"""Rebuild a package of an editable install when it is imported: ``editable-rebuild = true``.

The recorded state of the sources (:mod:`~cuda_ext.builder.editable_package`) is compared with the current
state, without loading the build. Where the file system reports a change, digests decide; where a digest
differs, the project is built with the importer's compiler and the new package is loaded.
"""

# ruff: noqa: PTH113, PTH118, PTH120 - pathlib is not loaded if nothing has changed

from __future__ import annotations

import os
import sys

from cuda_ext.builder.editable_package import FILE, has_changed, read_record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path
    from typing import Any, TextIO

    from cuda_ext.builder.project import Project
    from cuda_ext.builder.scheduler.progress import Ending, Progress

__all__ = ["refresh"]

_MOST_NAMES = 3  # changed files that a message names


def refresh(name: str) -> None:
    """Bring the package `name`, which is being imported, up to date with its sources.

    Raises :class:`ImportError` if they have changed and cannot be compiled.
    """
    module = sys.modules[name]
    directory = _source_directory(name, os.path.dirname(os.path.realpath(module.__file__ or "")))
    if directory is None:
        return
    if has_changed(_read(directory, name)):
        from cuda_ext.errors import BuildError

        try:
            _rebuild_changed(name, directory)
        except BuildError as error:
            problem = "its project has changed since it was compiled, and cannot be compiled now"
            raise ImportError(f"{name}: {problem}:\n{error}", name=name, path=directory) from None
    # A strict install links to the former files; there may be new ones now.
    module.__file__, module.__path__ = os.path.join(directory, "__init__.py"), [directory]


def _source_directory(name: str, here: str) -> str | None:
    """The directory in the source tree of the package `name`, which was loaded from the directory `here`."""
    record = _read(here, name)
    root: str = record["root"]
    if name in record["directories"]:
        directory = os.path.normpath(os.path.join(root, record["directories"][name]))
        is_linked = here.startswith(root + os.sep) and os.path.isfile(os.path.join(directory, FILE))
        if here == directory or is_linked:
            return directory
    import warnings

    warnings.warn(
        f"{name}: {here} is a copy of a package of an editable install in {root}, and is not kept up to "
        "date; install the project that it lies in",
        stacklevel=2,
    )
    return None


def _read(directory: str, name: str) -> dict[str, Any]:
    """The record of the package `name` in `directory`."""
    record = read_record(directory)
    if record is not None:
        return record
    path = os.path.join(directory, FILE)
    raise ImportError(
        f"{name}: {path} is damaged, or of another version of cuda-ext; install the project again",
        name=name,
        path=path,
    )


def _rebuild_changed(name: str, directory: str) -> None:
    """Compile the project if its files have changed, unless another process has just done so.

    Raises :class:`BuildError`.
    """
    import time
    from contextlib import suppress
    from pathlib import Path

    from cuda_ext.builder.editable_package import read_state, write_record
    from cuda_ext.builder.project import Project
    from cuda_ext.builder.sources.inputs import TABLE
    from cuda_ext.errors import BuildError, ConfigError
    from cuda_ext.filesystem.locks import lock

    began = time.time()
    root = Path(_read(directory, name)["root"])
    with lock(root / TABLE) as alone:
        record = _read(directory, name)
        if not has_changed(record):
            return
        # A table without names gives the module that of its package.
        project = Project.load(root, [name.rpartition(".")[0]])
        if project is None or name not in (module.name for module in project.modules):
            raise ConfigError(
                f"is gone, or has no module {name!r} any more",
                where=str(root / TABLE),
                remedy="install the project again",
            )
        state = read_state(project)
        digests = state["digests"]
        changed = _describe_changes(record["digests"], digests)
        if not changed:
            with suppress(OSError):  # otherwise the next import compares once more
                write_record(directory, {**record, **state})
            return
        if not alone:
            raise BuildError(
                "cannot be locked on this system, and all importing processes would compile at once",
                where=str(root / TABLE),
                remedy="run cuda-ext build in its directory",
            )
        # If another process failed while this one waited, this one would fail in the same way.
        match record.get("failure"):
            case {"at": float(at), "digests": failed, "message": str(message)} if (
                at > began and failed == digests
            ):
                raise BuildError(message)
        try:
            _rebuild(project, record, f"{name}: {changed}")
        except BuildError as error:
            failure = {"at": time.time(), "digests": digests, "message": str(error)}
            with suppress(OSError):
                write_record(directory, {**record, "failure": failure})
            raise


def _rebuild(project: Project, record: Mapping[str, Any], reason: str) -> None:
    """Compile the project and replace its packages; `record` is that of one of them.

    Compilations are shown on standard error, after `reason`. Raises :class:`BuildError`.
    """
    from contextlib import closing

    from cuda_ext.builder.editable_package import build_editable
    from cuda_ext.builder.package.in_place import add_gitignore
    from cuda_ext.builder.session import build

    def directory_of(name: str) -> Path:
        known = record["directories"].get(name)
        return project.root / known if known else project.source_directory(name)

    cudaarchs = record["cudaarchs"]
    environ = {**({"CUDAARCHS": cudaarchs} if cudaarchs else {}), **os.environ}
    with closing(_DeferredProgress(reason)) as progress:
        packages = build_editable(project, directory_of, lambda: build(project, environ, progress), cudaarchs)
    for package in packages:
        add_gitignore(package).write(directory_of(package.name))


def _describe_changes(before: Mapping[str, str], now: Mapping[str, str]) -> str:
    """A phrase about the files that have changed; empty if none have."""
    changes = {
        "is new": sorted(now.keys() - before.keys()),
        "is gone": sorted(before.keys() - now.keys()),
        "has changed": sorted(name for name in now if before.get(name, now[name]) != now[name]),
    }
    phrases = [f"{name} {how}" for how, names in changes.items() for name in names]
    more = len(phrases) - _MOST_NAMES
    return ", ".join(phrases[:_MOST_NAMES]) + (f", and {more} more" if more > 0 else "")


class _DeferredProgress:
    """Progress on standard error, after `reason`; nothing is shown before a compilation or a message."""

    def __init__(self, reason: str) -> None:
        import io
        from threading import Lock

        from cuda_ext.builder.scheduler.progress import progress_for

        stream: TextIO = sys.stderr or io.StringIO()
        self._open: Callable[[], Progress] = lambda: progress_for(stream, lambda s: print(s, file=stream))
        self._lock = Lock()
        self._shown: Progress | None = None
        self._held: list[Callable[[Progress], None]] = [lambda progress: progress.note(reason)]

    def plan(self, jobs: int) -> None:
        self._tell(lambda progress: progress.plan(jobs))

    def started(self, job: str) -> None:
        self._tell(lambda progress: progress.started(job), show=True)

    def finished(self, job: str, ending: Ending, seconds: float) -> None:
        show = ending != "cached"
        self._tell(lambda progress: progress.finished(job, ending, seconds), show)

    def note(self, text: str) -> None:
        self._tell(lambda progress: progress.note(text))

    def message(self, text: str) -> None:
        self._tell(lambda progress: progress.message(text), show=True)

    def close(self) -> None:
        if self._shown:
            self._shown.close()

    def _tell(self, what: Callable[[Progress], None], show: bool = False) -> None:
        with self._lock:
            self._held.append(what)
            if show and not self._shown:
                self._shown = self._open()
            if self._shown:
                for held in self._held:
                    held(self._shown)
                self._held.clear()
