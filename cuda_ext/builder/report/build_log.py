"""The log of one build: it receives jobs as they finish, and writes the report and the trace at the end."""

from __future__ import annotations

import os
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from cuda_ext.builder.report.build_record import Action, BuildRecord, JobRecord
from cuda_ext.builder.report.chrome_trace import chrome_trace, is_trace
from cuda_ext.builder.report.difference import Place
from cuda_ext.builder.report.html_page import html_page, is_report, read_record
from cuda_ext.compiler.tuned_kernels import Landscape
from cuda_ext.errors import BuildError, CudaExtError
from cuda_ext.facts.architecture import Architecture
from cuda_ext.filesystem.atomic_directory import replace_file
from cuda_ext.filesystem.ownership import check_replaceable
from cuda_ext.formats.cubin import Resources
from cuda_ext.formats.image_content import ImageContent, join_images, read_images, select_image

if TYPE_CHECKING:
    from cuda_ext.builder.package.generate import Package
    from cuda_ext.builder.scheduler.progress import Ending
    from cuda_ext.builder.scheduler.task import TaskResult
    from cuda_ext.compiler.products import Library


class BuildLog:
    """The log of a build, which begins now.

    Raises :class:`BuildError` if `report` or `trace` is a file that no build wrote.
    """

    def __init__(self, project: str, report: Path | None, trace: Path | None, workers: int) -> None:
        self._project = project
        self._report = report
        self._trace = trace
        self._workers = workers
        self._started = datetime.now().astimezone()
        self._clock = time.perf_counter()
        self._jobs: list[JobRecord] = []
        self.landscapes: list[Landscape] = []
        self._workers_by_id: dict[str, str] = {}
        self._check()

    def add_job(
        self,
        module: str,
        unit: str,
        architecture: str,
        action: Action,
        ending: Ending,
        run: TaskResult | None = None,
    ) -> None:
        """Add a finished job; one from the cache, or one that failed, has no `run`."""
        if run:
            worker = self._workers_by_id.setdefault(run.worker, str(len(self._workers_by_id) + 1))
            began, seconds, spans = run.began, run.seconds, run.spans
        else:
            worker, began, seconds, spans = "", time.time(), 0.0, ()
        # The clock of another machine may be behind.
        start = max(0.0, began - self._started.timestamp())
        self._jobs.append(
            JobRecord(module, unit, architecture, action, ending, worker, start, seconds, spans)
        )

    def write(self, packages: Iterable[tuple[Package, Iterable[Library]]]) -> None:
        """Write the report and the trace; `packages` are what was built. Raises :class:`BuildError`."""
        record = self._record(list(packages))
        if self._trace:
            _write(self._trace, chrome_trace(record))
        if self._report:
            previous = None
            with suppress(OSError, UnicodeDecodeError):
                previous = read_record(self._report.read_text(encoding="utf-8"))
            _write(self._report, html_page(record, previous, self.landscapes).encode(errors="replace"))

    def _check(self) -> None:
        if self._report and self._trace and os.path.realpath(self._report) == os.path.realpath(self._trace):
            raise BuildError(
                "is named as both the report and the trace",
                where=str(self._trace),
                remedy="name another file",
            )
        if self._report:
            check_replaceable(self._report, "report of a build", is_report)
        if self._trace:
            check_replaceable(self._trace, "trace of a build", is_trace)

    def _record(self, packages: list[tuple[Package, Iterable[Library]]]) -> BuildRecord:
        images: defaultdict[Place, list[ImageContent]] = defaultdict(list)
        kernel_count = image_count = 0
        kernels: dict[Place, Resources] = {}
        for package, libraries in packages:
            for library in libraries:
                sources = library.unit.sources
                place = package.name, sources[0].name if len(sources) == 1 else package.name
                kernel_count += len(library.kernels)
                image_count += len(library.unit.images)
                for content in _read_contents(library):
                    # A source is compiled several times if its instantiations are split.
                    images[*place, content.architecture].append(content._replace(kernels={}, variables={}))
                    for name, resources in content.kernels.items():
                        if resources:
                            kernels[*place, name, content.architecture] = resources
        return BuildRecord(
            project=self._project,
            started=self._started.isoformat(timespec="seconds"),
            duration=time.perf_counter() - self._clock,
            workers=self._workers,
            compilers=tuple(dict.fromkeys(package.compiler for package, _ in packages)),
            jobs=tuple(self._jobs),
            images={place: join_images(several) for place, several in images.items()},
            kernels=kernels,
            fatbins={
                (f"{package.name}/{name}",): len(content)
                for package, _ in packages
                for name, content in package.files.items()
                if name.endswith(".fatbin")
            },
            kernel_count=kernel_count,
            image_count=image_count,
        )


def _read_contents(library: Library) -> Iterator[ImageContent]:
    """Read the images of `library`."""
    read: dict[str, list[ImageContent]] = {}
    for image in library.unit.images:
        if image.file not in read:
            read[image.file] = []
            with suppress(CudaExtError):  # others compiled it, and nothing else is known of it
                read[image.file] = read_images(library.files[image.file], image.architecture)
        kind = Architecture.parse(image.architecture).kind
        unknown = ImageContent(image.architecture, kind, "none", 0, image.size, {"other": image.size})
        yield select_image(image, read[image.file], library.kernels) or unknown


def _write(path: Path, content: bytes) -> None:
    try:
        replace_file(path, content)
    except OSError as error:
        raise BuildError(
            f"cannot be written: {error.strerror}", where=str(path), remedy="name another file"
        ) from None
