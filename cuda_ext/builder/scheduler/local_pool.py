"""Worker processes of this machine.

A worker stays alive between tasks, so that NVRTC is loaded once. One that dies is replaced. When this process
ends, in whichever way, its workers end too, and the programs that they run. Compilations never run in this
process itself: there, neither Ctrl-C nor a crash of the compiler could be handled.
"""

from __future__ import annotations

import functools
import heapq
import itertools
import json
import pickle
import secrets
import shutil
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import IO, Any, cast

from cuda_ext.builder.scheduler import worker
from cuda_ext.builder.scheduler.shared_headers import FEWEST, SharedHeaders
from cuda_ext.builder.scheduler.task import Task
from cuda_ext.errors import BuildError, CompilationError
from cuda_ext.time_limit import too_slow
from cuda_ext.toolchain import process

_START = (
    "import json, os, sys; sys.path[:] = json.loads(sys.argv[1]); "
    "from cuda_ext.builder.scheduler.worker import serve; "
    "serve(sys.argv[2], float(sys.argv[3]), os.fdopen(os.dup(0), 'rb'), os.fdopen(os.dup(1), 'wb'))"
)

# A worker whose time is over ends itself, unless a library keeps the GIL: it is killed so many seconds later.
_GRACE = 30

_Waiting = tuple[float, int, Task, "Future[Any]"]


class WorkerPool(Executor):
    """Runs tasks in up to `count` processes, of which `first` start at once (all, if not given).

    The others start when there are tasks for them. `started` is called for each task when it starts, in some
    thread. A task that takes longer than `limit` seconds is ended.

    A worker takes the task of the highest priority, but first those that share headers with its last task,
    and last those that share headers with the task of another worker.
    """

    def __init__(
        self,
        count: int,
        started: Callable[[Task], None] = lambda _: None,
        *,
        first: int | None = None,
        limit: float = 3600,
    ) -> None:
        self._count = count
        self._started = started
        self._limit = limit
        # Guards all that follows.
        self._condition = threading.Condition()
        # By the headers that tasks share: those of highest priority first, in order of arrival among equals.
        self._waiting: dict[SharedHeaders | None, list[_Waiting]] = {}
        self._order = itertools.count()
        # Tasks that wait or run.
        self._unfinished = 0
        self._taken: Counter[SharedHeaders] = Counter()
        # By number of the worker, with whether it has them precompiled.
        self._current: dict[int, tuple[SharedHeaders, bool]] = {}
        # No longer once a worker died of it.
        self._precompiles = True
        self._is_closed = False
        self._has_ended = False
        # Workers create it and remove it: nothing is left if this process is killed before there is one.
        self._scratch = str(Path(tempfile.gettempdir(), f"cuda_ext-{secrets.token_hex(8)}"))
        self._processes: dict[int, process.Child] = {}
        self._threads: list[threading.Thread] = []
        try:
            with process.signals_blocked():
                # These start before the first thread, since a process with several threads cannot fork.
                for number in range(count if first is None else min(first, count)):
                    self._processes[number] = self._start()
                for _ in range(len(self._processes)):
                    self._add_thread()
        except BaseException:
            self.shutdown(cancel_futures=True)
            raise

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        if args or kwargs or not isinstance(fn, Task):
            raise TypeError("only tasks can be submitted")
        future: Future[Any] = Future()
        with self._condition:
            waiting = self._waiting.setdefault(fn.headers, [])
            heapq.heappush(waiting, (-fn.priority, next(self._order), fn, future))
            self._condition.notify()
            self._unfinished += 1
            is_short = len(self._threads) < min(self._unfinished, self._count)
        if is_short:
            self._add_thread()
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """End the workers. With `cancel_futures`, end them at once, whatever they are doing."""
        with self._condition:
            self._is_closed = True
            if cancel_futures:
                self._has_ended = True
                for *_, future in itertools.chain(*self._waiting.values()):
                    future.cancel()
                self._waiting.clear()
            self._condition.notify_all()
            children = list(self._processes.values()) if cancel_futures else []
        for child in children:
            process.end_input(child)
        for child in children:
            process.end(child)
        if wait:
            for thread in self._threads:
                if thread.is_alive():  # if an interrupt came before its start, it is not
                    thread.join()
            shutil.rmtree(self._scratch, ignore_errors=True)

    def _add_thread(self) -> None:
        """Add a thread, which starts its worker if there is none."""
        thread = threading.Thread(target=self._drive, args=(len(self._threads),), daemon=True)
        self._threads.append(thread)
        try:
            thread.start()
        except RuntimeError:  # the system starts no more; the others do all tasks
            self._threads.remove(thread)
            if not self._threads:
                raise

    def _drive(self, number: int) -> None:
        """Pass one task after the other to one worker."""
        while item := self._take(number):
            task, future = item
            self._started(task)
            try:
                show = functools.partial(future.set_result, self._run(number, task))
            except BaseException as error:
                show = functools.partial(future.set_exception, error)
            # Count down before the result is known, which may lead to another task.
            with self._condition:
                self._unfinished -= 1
            show()
        with self._condition:
            child = self._processes.pop(number, None)
        if child:
            process.end(child)

    def _take(self, worker: int) -> tuple[Task, Future[Any]] | None:
        """Wait for the next task for `worker`; ``None`` at the end."""
        with self._condition:
            while not self._waiting:
                if self._is_closed:
                    return None
                self._condition.wait()
            own, is_precompiled = self._current.pop(worker, (None, False))
            others = [headers for headers, _ in self._current.values()]
            headers = own
            if own is None or own not in self._waiting:
                headers = min(self._waiting, key=lambda h: (h in others, self._waiting[h][0][:2]))
            *_, task, future = heapq.heappop(self._waiting[headers])
            if not self._waiting[headers]:
                del self._waiting[headers]
            if headers is None:
                return task, future
            # While this one would precompile them, others that have done so take most of the tasks.
            share = (headers.tasks - self._taken[headers]) / (1 + 2 * others.count(headers))
            # Where workers are many, each has few tasks.
            share = min(share, headers.all_tasks / self._count)
            precompiles = self._precompiles and ((headers is own and is_precompiled) or share >= FEWEST)
            self._taken[headers] += 1
            self._current[worker] = headers, precompiles
            return replace(task, precompiles=precompiles), future

    def _run(self, number: int, task: Task) -> Any:
        """Return the worker's answer. If two workers die in a task, the task is at fault.

        Only the first uses precompiled headers.
        """
        exit_code = 0
        for _ in range(2):
            child = self._worker(number)
            start = time.monotonic()
            requests, answers = cast("IO[bytes]", child.stdin), cast("IO[bytes]", child.stdout)
            message = pickle.dumps(task, pickle.HIGHEST_PROTOCOL)
            with (
                suppress(OSError, EOFError, pickle.UnpicklingError),
                _killed_after(self._limit + _GRACE, child),
            ):
                requests.write(message)
                requests.flush()
                result, error = pickle.load(answers)  # noqa: S301 - from a process of ours
                if error:
                    raise error
                return result
            with self._condition:
                if self._has_ended:
                    raise _cancelled()
                exit_code = process.end(self._processes.pop(number))
            is_late = time.monotonic() - start >= self._limit + _GRACE
            if exit_code == worker.TOO_SLOW or is_late:
                raise too_slow(str(task), self._limit)
            if task.precompiles:
                self._precompiles = False
                task = replace(task, precompiles=False)
        is_killed = exit_code < 0
        death = f"was ended by signal {-exit_code}" if is_killed else f"ended with exit code {exit_code}"
        memory = "if there is too little memory, set MAX_JOBS to fewer"
        raise CompilationError(
            f"the compiler's process {death}, twice",
            where=str(task),
            remedy=memory if is_killed else "read its output; perhaps the source crashes the compiler",
        )

    def _worker(self, number: int) -> process.Child:
        """The process of a worker, which is started if there is none."""
        with self._condition:
            if self._has_ended:
                raise _cancelled()
            if number not in self._processes:
                self._processes[number] = self._start()
            return self._processes[number]

    def _start(self) -> process.Child:
        # A fork has all modules imported, which takes a new interpreter longer than a small compilation.
        if process.can_fork():
            return process.Fork(functools.partial(worker.serve, self._scratch, self._limit))
        return process.start_python(_START, json.dumps(sys.path), self._scratch, str(self._limit))


@contextmanager
def _killed_after(seconds: float, child: process.Child) -> Iterator[None]:
    """Kill `child` if the block takes longer than so many seconds."""
    timer = threading.Timer(seconds, child.kill)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def _cancelled() -> BuildError:
    return BuildError("the build was interrupted", remedy="start it again, and it continues from there")
