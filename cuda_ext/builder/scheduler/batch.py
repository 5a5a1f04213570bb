"""All compilations of a build: known products come from the cache, the others from an executor.

The batch collects the first jobs of all modules' libraries before it opens the executor, so that the longest
jobs start first. A library whose jobs are done is packed at once, or needs its next jobs. While it waits, it
does not hold its cached products, since nearly all libraries may wait.

Modules that compile and pack are imported when needed: if nothing has changed, imports take most of the time.
"""

from __future__ import annotations

import queue
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from cuda_ext.builder.scheduler.job_cache import JobCache
from cuda_ext.cache.dependencies import CachedContent
from cuda_ext.compiler.jobs import CompileJob, Job, Outcome, decode_product
from cuda_ext.compiler.module_plan import LibraryPlan
from cuda_ext.compiler.products import Library
from cuda_ext.errors import BuildError, CompilationError, ToolchainError
from cuda_ext.facts import codec
from cuda_ext.toolchain.cuda_libraries import open_library

if TYPE_CHECKING:
    from concurrent.futures import Executor, Future

    from cuda_ext.builder.report.build_log import BuildLog
    from cuda_ext.builder.scheduler.progress import Ending, Progress
    from cuda_ext.builder.scheduler.task import Task, TaskResult

# The number of tasks that an executor has at a time, each with its source and a future.
_SUBMITTED = 2000


@dataclass(slots=True, eq=False)
class _Pending:
    """A library that lacks the products of ``open_jobs`` jobs. ``cached`` are the products in the cache."""

    index: int
    plan: LibraryPlan
    cache: JobCache
    cached: set[Job] = field(default_factory=set)
    products: dict[Job, Outcome] = field(default_factory=dict)
    reads: set[str] = field(default_factory=set)
    open_jobs: int = 0


# A library that waits for a product, and its own job for it.
_Waiting = tuple[_Pending, Job]
# The keys that identify the same job of several libraries.
_Keys = tuple[str, ...]
# A task, and the keys of its job.
_Planned = tuple["Task", _Keys]


class Batch:
    """The compilations of one build, shown by `progress` and, if there is one, recorded in `log`.

    ``changed`` are the names of the modules of which the cache lacked a library.
    """

    def __init__(self, progress: Progress, log: BuildLog | None = None) -> None:
        self.changed: set[str] = set()
        self._progress = progress
        self._log = log
        self._results: dict[int, Library | BuildError] = {}
        # By keys, so that a product for several libraries is made once.
        self._waiting: dict[_Keys, list[_Waiting]] = {}
        self._new: list[_Keys] = []
        self._cached: list[tuple[str, Job]] = []
        self._ended: queue.SimpleQueue[tuple[_Planned, Future[TaskResult]]] = queue.SimpleQueue()

    def run(
        self, libraries: Sequence[tuple[LibraryPlan, JobCache]], open_executor: Callable[[int], Executor]
    ) -> list[Library | BuildError]:
        """Build each of `libraries`, or return the error that it failed with.

        If there is anything to compile, the executor is opened for this number of tasks. Raises
        :class:`BuildError` for errors that end the whole build, such as a missing nvFatbin. In any case, the
        executor has ended afterwards, and all products are in the cache.
        """
        for index, (plan, cache) in enumerate(libraries):
            self._begin(_Pending(index, plan, cache))
        tasks = self._tasks()
        if tasks:
            if any(plan.emit == "fatbin" for plan, _ in libraries):
                open_library("nvfatbin")  # if it is missing, nothing is compiled in vain
            # Do this before the display starts a thread: a process with a single thread starts workers
            # faster.
            executor = open_executor(len(tasks))
            try:
                self._compile(executor, tasks)
            except BaseException:
                executor.shutdown(cancel_futures=True)
                raise
            executor.shutdown()
        self._show_planned()
        return [self._results[index] for index in range(len(libraries))]

    def _begin(self, library: _Pending) -> None:
        plan = library.plan
        known = library.cache.find_library(plan)
        if known is None:
            self.changed.add(plan.module)
            self._advance(library)
            return
        self._results[library.index] = known

    def _advance(self, library: _Pending) -> None:
        """Look up the jobs that `library` needs next, and finish it if it needs none."""
        from cuda_ext.compiler.library import missing_jobs

        while not library.open_jobs:
            jobs = missing_jobs(library.plan, library.products)
            if not jobs:
                self._finish(library)
                return
            found = [(job, known) for job in jobs if (known := self._look_up(library, job))]
            # If it has to wait for others, these are dropped, and looked up again afterwards.
            if not library.open_jobs:
                for job, known in found:
                    self._take(library, job, known)

    def _look_up(self, library: _Pending, job: Job) -> CachedContent[tuple[bytes, ...]] | None:
        """Return the encoded product of `job`; if the cache lacks it, `library` waits for it."""
        keys = library.cache.keys(job)
        known = None if keys in self._waiting else library.cache.find(job, keys)
        if known is None:
            self._wait_for(library, job, keys)
        elif job not in library.cached:
            library.cached.add(job)
            self._cached.append((library.plan.module, job))
        return known

    def _take(self, library: _Pending, job: Job, known: CachedContent[tuple[bytes, ...]]) -> None:
        """Give a cached product to `library`, which waits for a new one if this cannot be decoded."""
        try:
            library.products[job] = decode_product(job, known.content)
        except codec.DecodingError:
            self._wait_for(library, job, library.cache.keys(job))
        else:
            library.reads |= known.dependencies

    def _wait_for(self, library: _Pending, job: Job, keys: _Keys) -> None:
        if keys not in self._waiting:
            self._waiting[keys] = []
            self._new.append(keys)
        self._waiting[keys].append((library, job))
        library.open_jobs += 1

    def _finish(self, library: _Pending) -> None:
        from cuda_ext.toolchain.compile_library import pack_library

        try:
            packed = pack_library(library.plan, library.products, library.cache.write_image)
            packed = packed._replace(reads=frozenset(library.reads))
        except ToolchainError:
            raise
        except BuildError as error:
            if library.plan.trial:
                library.cache.keep_refusal(library.plan, str(error))
            self._results[library.index] = error
            return
        library.cache.keep_library(library.plan, packed)
        self._results[library.index] = packed

    def _show_planned(self, tasks: Sequence[_Planned] = ()) -> None:
        """Show that `tasks` are planned, and the jobs that the cache knew."""
        cached, self._cached = self._cached, []
        if count := len(cached) + len(tasks):
            self._progress.plan(count)
        for module, job in cached:
            self._show_ended(module, job, "cached")

    def _tasks(self) -> list[_Planned]:
        """Tasks for the new jobs, with their keys.

        The library with the longest expected task comes first, and the tasks of a library follow each other:
        then few libraries are unfinished at a time, and their products fit into memory.
        """
        if not self._new:
            return []
        from cuda_ext.builder.scheduler.expected_time import expected_seconds
        from cuda_ext.builder.scheduler.shared_headers import share_headers
        from cuda_ext.builder.scheduler.task import Task

        by_library: dict[_Pending, dict[_Keys, Job]] = {}
        compiled: list[CompileJob] = []
        for keys in self._new:
            library, job = self._waiting[keys][0]
            by_library.setdefault(library, {})[keys] = job
            if isinstance(job, CompileJob) and library.cache.compiler.name == "nvrtc":
                compiled.append(job)
        self._new.clear()
        shared = share_headers(compiled)
        ordered = []
        for library, jobs in by_library.items():
            spec = library.cache.compiler.spec
            expected = {keys: expected_seconds(job) for keys, job in jobs.items()}
            longest = max(expected.values())
            ordered += [
                (Task(job := jobs[keys], spec, longest, self._log is not None, shared.get(job)), keys)
                for keys in sorted(expected, key=lambda keys: -expected[keys])
            ]
        return sorted(ordered, key=lambda item: -item[0].priority)

    def _compile(self, executor: Executor, tasks: Sequence[_Planned]) -> None:
        """Do `tasks`, and the tasks that become necessary."""
        unsubmitted = deque(tasks)
        self._show_planned(tasks)
        running = 0
        while unsubmitted or running:
            while unsubmitted and running < _SUBMITTED:
                planned = unsubmitted.popleft()
                future = executor.submit(planned[0])
                future.add_done_callback(lambda f, planned=planned: self._ended.put((planned, f)))  # type: ignore[misc]
                running += 1
            (task, keys), future = self._ended.get()
            running -= 1
            for library in self._receive(task.job, keys, future):
                self._advance(library)
            more = self._tasks()
            self._show_planned(more)
            unsubmitted.extendleft(reversed(more))

    def _receive(self, job: Job, keys: _Keys, future: Future[TaskResult]) -> list[_Pending]:
        """Give the product of `job` to the libraries that wait for it; return those that can continue."""
        waiting = self._waiting.pop(keys)
        first = waiting[0][0]
        reads: frozenset[str] = frozenset()
        outcome: Outcome
        try:
            result = future.result()
        except CompilationError as error:
            outcome = error
            ending: Ending = "compiled" if first.plan.trial else "failed"
            self._show_ended(first.plan.module, job, ending, commands=error.commands)
        else:
            try:
                outcome, reads = decode_product(job, result.product), result.reads
            except codec.DecodingError as error:  # such as a variable that is larger than any memory
                outcome = CompilationError(f"its image is beyond all limits: {error}", where=str(job))
                self._show_ended(first.plan.module, job, "failed", result)
            else:
                first.cache.keep(job, keys, reads, result.product)
                self._show_ended(first.plan.module, job, "compiled", result)
        for library, own_job in waiting:
            library.products[own_job] = outcome
            library.reads |= reads
            library.open_jobs -= 1
        return [
            library for library in dict.fromkeys(library for library, _ in waiting) if not library.open_jobs
        ]

    def _show_ended(
        self,
        module: str,
        job: Job,
        ending: Ending,
        result: TaskResult | None = None,
        commands: Sequence[str] = (),
    ) -> None:
        """Show and record how `job` ended. The `commands` of a `result` are its own."""
        commands, seconds = (result.commands, result.seconds) if result else (commands, 0.0)
        self._progress.finished(str(job), ending, seconds, commands)
        if self._log is not None:
            architectures = ", ".join(map(str, job.architectures))
            self._log.add_job(module, job.name, architectures, job.action, ending, result)
