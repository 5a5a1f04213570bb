"""What a build tells of itself when it is over: the report and the trace, where they are asked for."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from cuda_ext.builder.package.generate import Package
from cuda_ext.builder.report.page import html_report, is_report, previous_record
from cuda_ext.builder.report.record import BuildRecord, ImageRecord, JobRecord, KernelRecord
from cuda_ext.builder.report.trace import chrome_trace, is_trace
from cuda_ext.errors import BuildError
from cuda_ext.toolchain.fatbin_packing import PackedLibrary

if TYPE_CHECKING:
    from cuda_ext.builder.project import Project

__all__ = ["Account", "check_overwritable"]


class Account:
    """The files about one build, which begins now. ``CUDA_EXT_REPORT`` and ``CUDA_EXT_TRACE`` go before keys.

    ``wanted`` says whether there will be any. Raises :class:`BuildError` if another file is in their place.
    """

    def __init__(self, project: Project, environ: Mapping[str, str], workers: int) -> None:
        self._project = project
        self._workers = workers
        self._report = self._path(environ.get("CUDA_EXT_REPORT") or project.settings.report)
        self._trace = self._path(environ.get("CUDA_EXT_TRACE") or project.settings.trace)
        self._started = datetime.now().astimezone()
        self._clock = time.perf_counter()
        self.wanted = bool(self._report or self._trace)
        if self._report:
            check_overwritable(self._report, "report", is_report)
        if self._trace:
            check_overwritable(self._trace, "trace", is_trace)

    def write(
        self,
        jobs: Sequence[JobRecord],
        made: Sequence[tuple[Package, Sequence[PackedLibrary]]],
    ) -> None:
        """Write what is wanted about `jobs` and what they `made`. Raises :class:`BuildError`."""
        if not self.wanted:
            return
        record = self._record(jobs, made)
        if self._trace:
            _write(self._trace, chrome_trace(record))
        if self._report:
            check_overwritable(self._report, "report", is_report)  # the trace may be
            previous = None
            with suppress(OSError, UnicodeDecodeError):
                previous = previous_record(self._report.read_text(encoding="utf-8"))
            _write(self._report, html_report(record, previous).encode(errors="replace"))

    def _path(self, text: str | None) -> Path | None:
        return self._project.root / text if text else None

    def _record(
        self,
        jobs: Sequence[JobRecord],
        made: Sequence[tuple[Package, Sequence[PackedLibrary]]],
    ) -> BuildRecord:
        images, kernels = [], []
        for package, libraries in made:
            for library in libraries:
                name = library.unit.sources[0].name if len(library.unit.sources) == 1 else package.name
                for image, used in zip(library.unit.images, library.usage, strict=True):
                    images.append(ImageRecord(package.name, name, image.architecture, image.size))
                    kernels += [
                        KernelRecord(
                            *(package.name, name, expression, image.architecture, usage.code),
                            *(usage.registers, usage.spill_stores, usage.spill_loads),
                            *(usage.stack, usage.shared, usage.constant),
                        )
                        for expression, usage in used.items()
                    ]
        return BuildRecord(
            project=self._project.name,
            started=self._started.isoformat(timespec="seconds"),
            duration=time.perf_counter() - self._clock,
            workers=self._workers,
            compilers=tuple(dict.fromkeys(package.compiler for package, _ in made)),
            jobs=tuple(jobs),
            images=tuple(images),
            kernels=tuple(kernels),
            fatbins={
                f"{package.name}/{name}": len(content)
                for package, _ in made
                for name, content in package.files.items()
                if name.endswith(".fatbin")
            },
        )


def check_overwritable(path: Path, kind: str, is_one: Callable[[bytes], bool]) -> None:
    """`path` is free for a report, or whatever `kind` says, or holds one already, which `is_one` tells.

    Raises :class:`BuildError`.
    """
    if path.is_dir():
        raise BuildError(f"{path}: is a directory; name a file")
    try:
        content = path.read_bytes() if path.is_file() else b""
    except OSError as error:
        raise BuildError(f"{path}: cannot be read: {error.strerror}; name another file") from None
    if (path.exists() and not path.is_file()) or (content and not is_one(content)):
        raise BuildError(
            f"{path}: is not the {kind} of a build, and stays; name another file, or remove this one"
        )


def _write(path: Path, content: bytes) -> None:
    aside = path.with_name(f".{path.name}.cuda_ext")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        aside.write_bytes(content)
        aside.replace(path)
    except OSError as error:
        with suppress(OSError):
            aside.unlink()
        raise BuildError(f"{path}: cannot be written: {error.strerror}; name another file") from None
