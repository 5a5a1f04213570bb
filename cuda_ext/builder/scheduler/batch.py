"""All compilations of a build: known products come from the cache, the others from an executor.

The jobs that the libraries of all modules need first are collected before the executor is opened, so that the
longest start first. A library whose jobs are done is packed at once, or needs its next jobs. While it waits,
it does not hold its cached products, since nearly all libraries may wait.

What compiles and packs is imported when it is needed: if nothing has changed, imports take most of the time.
"""

from __future__ import annotations

import queue
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, Future
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from cuda_ext.builder.scheduler.job_keys import JobKeys
from cuda_ext.builder.scheduler.timings import Timings
from cuda_ext.cache.dependencies import CachedContent, DependencyCache, Resolve
from cuda_ext.compiler.jobs import Job, Outcome, decode_product, group_jobs
from cuda_ext.compiler.module_plan import LibraryPlan
from cuda_ext.compiler.products import PackedLibrary
from cuda_ext.errors import BuildError, CompilationError, ToolchainError
from cuda_ext.formats import codec

if TYPE_CHECKING:
    from cuda_ext.builder.report.build_log import BuildLog
    from cuda_ext.builder.scheduler.progress import Ending, Progress
    from cuda_ext.builder.scheduler.task import Task, TaskResult

__all__ = ["Batch", "BuiltLibrary", "PlannedLibrary"]

# The tasks that an executor has at a time, each with its source and a future.
_SUBMITTED = 2000


@dataclass(frozen=True, slots=True, eq=False)
class PlannedLibrary:
    """A library to build: its plan, and the keys of what its compiler makes."""

    plan: LibraryPlan
    keys: JobKeys

    @property
    def module(self) -> str:
        return self.plan.module

    @property
    def resolve(self) -> Resolve:
        return self.keys.resolver(self.plan.compiled_units)


@dataclass(frozen=True, slots=True)
class BuiltLibrary:
    """A library, and the names of the headers that it depends on; ``known`` if the cache had it whole."""

    library: PackedLibrary
    reads: frozenset[str]
    known: bool = False


@dataclass(slots=True, eq=False)
class _Unfinished:
    """A library that lacks the products of ``open_jobs`` jobs. ``cached`` are those that the cache has."""

    index: int
    planned: PlannedLibrary
    key: str
    cached: set[Job] = field(default_factory=set)
    products: dict[Job, Outcome] = field(default_factory=dict)
    reads: set[str] = field(default_factory=set)
    open_jobs: int = 0


# A library that waits for a product, and its own job for it.
_Waiting = tuple[_Unfinished, Job]
# A task, and the key of each of its jobs.
_Planned = tuple["Task", tuple[str, ...]]


class Batch:
    """The compilations of one build, shown by `progress` and, if there is one, recorded in `log`."""

    def __init__(
        self, cache: DependencyCache, timings: Timings, progress: Progress, log: BuildLog | None = None
    ) -> None:
        self._cache = cache
        self._timings = timings
        self._progress = progress
        self._log = log
        self._results: dict[int, BuiltLibrary | BuildError] = {}
        # By key, so that a product that several libraries need is made once.
        self._waiting: dict[str, list[_Waiting]] = {}
        self._new: list[str] = []
        self._cached: list[tuple[str, Job]] = []
        self._ended: queue.SimpleQueue[tuple[_Planned, Future[TaskResult]]] = queue.SimpleQueue()

    def run(
        self, libraries: Sequence[PlannedLibrary], open_executor: Callable[[int], Executor]
    ) -> list[BuiltLibrary | BuildError]:
        """Build each of `libraries`, or return the error that it failed with.

        If anything is to be compiled, the executor is opened for that number of tasks. Raises
        :class:`BuildError` for what ends the whole build. In any case, the executor has ended afterwards, and
        all products are in the cache.
        """
        for index, planned in enumerate(libraries):
            self._begin(index, planned)
        tasks = self._tasks()
        if tasks:
            # Before the display starts a thread: a process with a single thread starts workers faster.
            executor = open_executor(len(tasks))
            try:
                self._compile(executor, tasks)
            except BaseException:
                executor.shutdown(cancel_futures=True)
                raise
            executor.shutdown()
        self._show_planned()
        return [self._results[index] for index in range(len(libraries))]

    def _begin(self, index: int, planned: PlannedLibrary) -> None:
        key = planned.keys.library_key(planned.plan)
        known = self._cache.find(key, planned.resolve, lambda content: codec.decode(PackedLibrary, content))
        if known is None:
            self._advance(_Unfinished(index, planned, key))
            return
        library = known.content
        self._results[index] = BuiltLibrary(library, known.dependencies, known=True)
        if self._log is not None:
            for image in library.unit.images:
                unit = library.unit.sources[0].name
                self._log.add_job(planned.module, unit, image.architecture, "compile", "cached")

    def _advance(self, library: _Unfinished) -> None:
        """Look up the jobs that `library` needs next, and finish it if it needs none."""
        from cuda_ext.compiler.library import missing_jobs

        while not library.open_jobs:
            jobs = missing_jobs(library.planned.plan, library.products)
            if not jobs:
                self._finish(library)
                return
            found = [(job, known) for job in jobs if (known := self._look_up(library, job))]
            # If others are to be waited for, these are missing again afterwards, and looked up again.
            if not library.open_jobs:
                for job, known in found:
                    self._take(library, job, known)

    def _look_up(self, library: _Unfinished, job: Job) -> CachedContent[bytes] | None:
        """The encoded product of `job`; if the cache lacks it, `library` waits for it."""
        keys = library.planned.keys
        key = keys.key(job)
        known = None if key in self._waiting else self._cache.find(key, keys.resolver(job.units), bytes)
        if known is None:
            self._wait_for(library, job, key)
        elif job not in library.cached:
            library.cached.add(job)
            self._cached.append((library.planned.module, job))
        return known

    def _take(self, library: _Unfinished, job: Job, known: CachedContent[bytes]) -> None:
        """Give a product of the cache to `library`, which waits for a new one if it is damaged."""
        try:
            library.products[job] = decode_product(job, known.content)
        except (BuildError, codec.DecodingError):
            self._wait_for(library, job, library.planned.keys.key(job))
        else:
            library.reads |= known.dependencies

    def _wait_for(self, library: _Unfinished, job: Job, key: str) -> None:
        if key not in self._waiting:
            self._waiting[key] = []
            self._new.append(key)
        self._waiting[key].append((library, job))
        library.open_jobs += 1

    def _finish(self, library: _Unfinished) -> None:
        from cuda_ext.toolchain.compile_library import pack_library

        planned = library.planned
        try:
            packed = pack_library(planned.plan, library.products)
        except ToolchainError:
            raise
        except BuildError as error:
            self._results[library.index] = error
            return
        reads = frozenset(library.reads)
        self._cache.keep(library.key, reads, planned.resolve, codec.encode(packed))
        self._results[library.index] = BuiltLibrary(packed, reads)

    def _show_planned(self, tasks: Sequence[_Planned] = ()) -> None:
        """Show that `tasks` are planned, and the jobs that the cache knew."""
        cached, self._cached = self._cached, []
        if count := len(cached) + sum(len(task.jobs) for task, _ in tasks):
            self._progress.plan(count)
        for module, job in cached:
            self._show_ended(module, (job,), "cached")

    def _tasks(self) -> list[_Planned]:
        """Tasks for the new jobs, with their keys.

        The library with the longest expected task comes first, and the tasks of a library follow each other:
        then few libraries are unfinished at a time, and their products fit into memory.
        """
        if not self._new:
            return []
        from cuda_ext.builder.scheduler.task import Task

        by_library: dict[_Unfinished, dict[Job, str]] = {}
        for key in self._new:
            library, job = self._waiting[key][0]
            by_library.setdefault(library, {})[job] = key
        self._new.clear()
        ordered = []
        for library, keys in by_library.items():
            module, spec = library.planned.module, library.planned.keys.compiler.spec
            expected = {
                group: max(self._timings.expected(module, job) for job in group) for group in group_jobs(keys)
            }
            longest = max(expected.values())
            ordered += [
                (Task(group, spec, longest, self._log is not None), tuple(keys[job] for job in group))
                for group in sorted(expected, key=lambda group: -expected[group])
            ]
        return sorted(ordered, key=lambda item: -item[0].priority)

    def _compile(self, executor: Executor, tasks: Sequence[_Planned]) -> None:
        """Have `tasks` done, and those that become necessary."""
        unsubmitted = deque(tasks)
        self._show_planned(tasks)
        running = 0
        while unsubmitted or running:
            while unsubmitted and running < _SUBMITTED:
                planned = unsubmitted.popleft()
                future = executor.submit(planned[0])
                future.add_done_callback(lambda f, planned=planned: self._ended.put((planned, f)))  # type: ignore[misc]
                running += 1
            planned, future = self._ended.get()
            running -= 1
            for library in self._receive(*planned, future):
                self._advance(library)
            more = self._tasks()
            self._show_planned(more)
            unsubmitted.extendleft(reversed(more))

    def _receive(self, task: Task, keys: Sequence[str], future: Future[TaskResult]) -> list[_Unfinished]:
        """Distribute the products of `task`; return the libraries that can go on now."""
        waiting = [self._waiting.pop(key) for key in keys]
        first = waiting[0][0][0].planned
        try:
            result = future.result()
        except CompilationError as error:
            for libraries in waiting:
                self._distribute(libraries, error)
            self._show_ended(first.module, task.jobs, "failed")
        else:
            for job, key, libraries, content in zip(task.jobs, keys, waiting, result.products, strict=True):
                self._cache.keep(key, result.reads, first.keys.resolver(job.units), content)
                self._distribute(libraries, decode_product(job, content), result.reads)
                self._timings.measured(first.module, job, result.seconds)
            self._show_ended(first.module, task.jobs, "compiled", result)
        concerned = dict.fromkeys(library for each in waiting for library, _ in each)
        return [library for library in concerned if not library.open_jobs]

    def _distribute(
        self, waiting: Sequence[_Waiting], outcome: Outcome, reads: frozenset[str] = frozenset()
    ) -> None:
        for library, job in waiting:
            library.products[job] = outcome
            library.reads |= reads
            library.open_jobs -= 1

    def _show_ended(
        self, module: str, jobs: Sequence[Job], ending: Ending, result: TaskResult | None = None
    ) -> None:
        """Show and record how the `jobs` of one task ended."""
        seconds = result.seconds if result else 0.0
        for job in jobs:
            self._progress.finished(str(job), ending, seconds / len(jobs))
        if self._log is not None:
            architectures = ", ".join(str(job.architecture) for job in jobs)
            self._log.add_job(module, jobs[0].name, architectures, jobs[0].action, ending, result)
