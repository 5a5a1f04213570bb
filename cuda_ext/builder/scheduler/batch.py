"""All compilations of a build at once: what is known comes from the cache, the rest from an executor.

Libraries are computations that yield jobs. Each goes on as soon as its own jobs are done, and the executor
knows all jobs that wait.
"""

from __future__ import annotations

import queue
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Executor, Future
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, cast

from cuda_ext.builder.scheduler.progress import Outcome as Ending
from cuda_ext.builder.scheduler.progress import Progress
from cuda_ext.builder.scheduler.spool import Place, Spool
from cuda_ext.builder.scheduler.task import Done, Task
from cuda_ext.builder.scheduler.timings import Durations
from cuda_ext.builder.scheduler.toolchain_keys import Toolchain
from cuda_ext.cache.dependencies import DependencyCache, Resolve
from cuda_ext.compiler.jobs import Job, Steps, decode, together
from cuda_ext.compiler.translation_unit import TranslationUnit
from cuda_ext.errors import BuildError, CompilationError, ToolchainError
from cuda_ext.toolchain.fatbin_packing import PackedLibrary

if TYPE_CHECKING:
    from cuda_ext.builder.report.build_log import BuildLog

__all__ = ["Execution", "Made", "Work"]

# So many tasks the executor knows at a time, each with its source and a future.
_KNOWN = 2000


@dataclass(frozen=True, slots=True)
class Work:
    """A library of `module` to be made: by taking ``steps``, unless the cache has it under ``key``.

    It is made of ``units``, and depends on the headers that these read.
    """

    module: str
    toolchain: Toolchain
    key: str
    units: tuple[TranslationUnit, ...]
    steps: Steps[PackedLibrary]

    @property
    def resolve(self) -> Resolve:
        return self.toolchain.resolver(self.units)


class Made(NamedTuple):
    """A library, and the names of the headers that it depends on."""

    library: PackedLibrary
    reads: frozenset[str]


@dataclass(slots=True)
class _Library:
    """A library on its way: the jobs that it waits for, their outcomes so far, and what they read."""

    index: int
    work: Work
    steps: Steps[PackedLibrary]
    jobs: Sequence[Job] = ()
    outcomes: list[Place | CompilationError | None] = field(default_factory=list)
    reads: set[str] = field(default_factory=set)


class _Wish(NamedTuple):
    """Whoever wants a job done, and at which place among its jobs."""

    library: _Library
    position: int


def _checked(content: bytes) -> bytes:
    decode(content)
    return content


class Execution:
    """One build's compilations, all told to `progress`, and to the `log` if there is one."""

    def __init__(
        self, cache: DependencyCache, durations: Durations, progress: Progress, log: BuildLog | None = None
    ) -> None:
        self._cache = cache
        self._durations = durations
        self._progress = progress
        self._log = log
        self._results: dict[int, Made | BuildError] = {}
        # By key, so that what several libraries need is compiled once.
        self._wishes: dict[str, list[_Wish]] = {}
        self._unsent: dict[str, _Wish] = {}
        self._ended: queue.SimpleQueue[tuple[Task, Future[Done]]] = queue.SimpleQueue()

    def run(self, works: Sequence[Work], open_executor: Callable[[], Executor]) -> list[Made | BuildError]:
        """Make the library of each of `works`, or the error that says why there is none.

        The executor is opened if anything is to be compiled. Raises :class:`BuildError` for what ends the
        whole build. However it ends, the executor has ended, and what was compiled is in the cache.
        """
        with closing(Spool()) as self._spool:
            for index, work in enumerate(works):
                self._begin(index, work)
            if self._unsent:
                executor = open_executor()
                try:
                    self._compile(executor)
                except BaseException:
                    executor.shutdown(cancel_futures=True)
                    raise
                executor.shutdown()
        return [self._results[index] for index in range(len(works))]

    def _begin(self, index: int, work: Work) -> None:
        if known := self._cache.find(work.key, work.resolve, PackedLibrary.decode):
            library = known.content
            self._results[index] = Made(library, known.dependencies)
            if self._log is not None:
                for image in library.unit.images:
                    unit = library.unit.sources[0].name
                    self._log.add_job(work.module, unit, image.architecture, "compile", "cached")
            return
        self._advance(_Library(index, work, work.steps))

    def _advance(self, library: _Library) -> None:
        """Take `library`, whose jobs are all done, as far as it comes."""
        while None not in library.outcomes:
            outcomes = [
                decode(self._spool.get(o)) if isinstance(o, Place) else cast("CompilationError", o)
                for o in library.outcomes
            ]
            try:
                # A generator begins with nothing.
                library.jobs = library.steps.send(outcomes or cast("list[CompilationError]", None))
            except StopIteration as stop:
                made = Made(stop.value, frozenset(library.reads))
                work = library.work
                self._cache.keep(work.key, made.reads, work.resolve, made.library.encode())
                self._results[library.index] = made
                return
            except ToolchainError:
                raise
            except BuildError as error:
                self._results[library.index] = error
                return
            library.outcomes = [None] * len(library.jobs)
            for position, job in enumerate(library.jobs):
                self._look_up(job, _Wish(library, position))

    def _look_up(self, job: Job, wish: _Wish) -> None:
        toolchain = wish.library.work.toolchain
        key = toolchain.key(job)
        if key in self._wishes:
            self._wishes[key].append(wish)
            return
        self._progress.plan(1)
        if known := self._cache.find(key, toolchain.resolver(job.units), _checked):
            self._fulfil([wish], self._spool.put(known.content), known.dependencies)
            self._tell(wish.library.work.module, [job], "cached")
        else:
            self._wishes[key] = [wish]
            self._unsent[key] = wish

    def _fulfil(
        self, wishes: Iterable[_Wish], outcome: Place | CompilationError, reads: Iterable[str] = ()
    ) -> None:
        for library, position in wishes:
            library.outcomes[position] = outcome
            library.reads.update(reads)

    def _compile(self, executor: Executor) -> None:
        """Have all jobs done that are wanted, and those that libraries want next."""
        waiting = deque(self._tasks())
        running = 0
        while waiting or running:
            while waiting and running < _KNOWN:
                task = waiting.popleft()
                future = executor.submit(task)
                future.add_done_callback(lambda f, task=task: self._ended.put((task, f)))  # type: ignore[misc]
                running += 1
            task, future = self._ended.get()
            running -= 1
            for library in self._receive(task, future):
                self._advance(library)
            waiting.extendleft(reversed(self._tasks()))

    def _tasks(self) -> list[Task]:
        """Tasks for what nobody has yet, the longest first."""
        keys: dict[Job, str] = {}
        by_module: dict[tuple[Toolchain, str], list[Job]] = {}
        for key, (library, position) in self._unsent.items():
            work, job = library.work, library.jobs[position]
            keys[job] = key
            by_module.setdefault((work.toolchain, work.module), []).append(job)
        self._unsent.clear()
        tasks = []
        for (toolchain, module), jobs in by_module.items():
            for group in together(jobs):
                expected = max(self._durations.expected(module, job) for job in group)
                names = tuple(keys[job] for job in group)
                timed = self._log is not None
                tasks.append(Task(tuple(group), names, module, toolchain.spec, expected, timed))
        return sorted(tasks, key=lambda task: -task.expected)

    def _receive(self, task: Task, future: Future[Done]) -> list[_Library]:
        """Take in what came out of `task`; the libraries that can go on now."""
        wishes = [self._wishes.pop(key) for key in task.keys]
        try:
            done = future.result()
        except CompilationError as error:
            for waiting in wishes:
                self._fulfil(waiting, error)
            self._tell(task.module, task.jobs, "failed")
        else:
            for job, key, waiting, content in zip(task.jobs, task.keys, wishes, done.products, strict=True):
                resolve = waiting[0].library.work.toolchain.resolver(job.units)
                self._cache.keep(key, done.reads, resolve, content)
                self._fulfil(waiting, self._spool.put(content), done.reads)
                self._durations.measured(task.module, job, done.seconds)
            self._tell(task.module, task.jobs, "compiled", done)
        libraries = {id(w.library): w.library for waiting in wishes for w in waiting}
        return [library for library in libraries.values() if None not in library.outcomes]

    def _tell(self, module: str, jobs: Sequence[Job], ending: Ending, done: Done | None = None) -> None:
        """Show and record how `jobs` ended, all of them in one task."""
        seconds = done.seconds if done else 0.0
        for job in jobs:
            self._progress.finished(str(job), ending, seconds / len(jobs), self._durations.known(module, job))
        if self._log is None:
            return
        log_job = partial(
            self._log.add_job,
            module,
            jobs[0].name,
            ", ".join(str(job.architecture) for job in jobs),
            jobs[0].action,
            ending,
        )
        if done:
            log_job(worker=done.worker, began=done.began, seconds=done.seconds, spans=done.spans)
        else:
            log_job()
