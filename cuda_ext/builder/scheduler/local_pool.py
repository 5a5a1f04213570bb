"""Processes of this machine that compile, and who does what next.

A worker stays alive between tasks: loading NVRTC is paid for once. One that dies is
replaced. When this process ends, in whichever way, so do its workers, and the programs that they run.
"""

from __future__ import annotations

import itertools
import json
import math
import os
import pickle
import queue
import re
import secrets
import shutil
import sys
import tempfile
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Executor, Future
from contextlib import suppress
from pathlib import Path
from typing import IO, Any, cast

from cuda_ext.builder.scheduler import worker
from cuda_ext.builder.scheduler.task import Task
from cuda_ext.errors import BuildError, CompilationError, ConfigError
from cuda_ext.toolchain import process

__all__ = ["WorkerPool", "worker_count"]

# What CUB takes.
_MEMORY_OF_A_WORKER = 1 << 30
# Bytes below which a compiler cannot work.
_SPACE = 1 << 20
_START = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]); "
    "from cuda_ext.builder.scheduler.worker import serve; serve(sys.argv[2])"
)


def worker_count(environ: Mapping[str, str]) -> int:
    """``MAX_JOBS``, or else as many as there are cores, and memory for."""
    if text := environ.get("MAX_JOBS", "").strip():
        if not re.fullmatch("0*[1-9][0-9]{0,3}", text):
            raise ConfigError(f"MAX_JOBS: {text!r} is not a number of processes; write 1 or more")
        return int(text)
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, min(cores, _available_memory() // _MEMORY_OF_A_WORKER))


def _available_memory() -> int:
    """Bytes that this machine, or the container that this process is in, has left."""
    available = sys.maxsize
    with suppress(OSError, ValueError, IndexError):
        kilobytes = Path("/proc/meminfo").read_text().partition("MemAvailable:")[2].split()[0]
        available = int(kilobytes) << 10
    with suppress(OSError, ValueError):
        available = min(available, int(Path("/sys/fs/cgroup/memory.max").read_text()))
    return available


_Item = tuple[Task, "Future[Any]"]


class WorkerPool(Executor):
    """Calls tasks in `count` processes of their own, which begin when they are needed.

    `started` is told of each task when its turn has come, in some thread.
    """

    def __init__(self, count: int, started: Callable[[Task], None] = lambda _: None) -> None:
        self._count = count
        self._started = started
        # The longest first, and of those that are alike the earliest; at the end, nothing for each thread.
        self._queue: queue.PriorityQueue[tuple[float, int, _Item | None]] = queue.PriorityQueue()
        self._order = itertools.count()
        self._threads: list[threading.Thread] = []
        self._processes: dict[int, process.Child] = {}
        self._lock = threading.Lock()
        self._ended = False
        # The sources in a row for which workers died.
        self._lost: set[str] = set()
        # The workers make it and remove it: if this process is killed before there is one, nothing is left.
        self._scratch = str(Path(tempfile.gettempdir(), f"cuda_ext-{secrets.token_hex(8)}"))

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        if args or kwargs or not isinstance(fn, Task):
            raise TypeError("a worker does tasks")
        future: Future[Any] = Future()
        self._queue.put((-fn.expected, next(self._order), (fn, future)))
        with self._lock:
            if len(self._threads) < self._count:
                number = len(self._threads)
                self._threads.append(threading.Thread(target=self._drive, args=(number,), daemon=True))
                self._threads[-1].start()
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """End the workers. With `cancel_futures` at once, whatever they are doing."""
        if cancel_futures:
            with suppress(queue.Empty):
                while item := self._queue.get_nowait()[-1]:
                    item[1].cancel()
        for _ in self._threads:
            self._queue.put((math.inf, next(self._order), None))
        if cancel_futures:
            with self._lock:
                self._ended = True
                children = list(self._processes.values())
            for child in children:
                process.end(child)
        if wait:
            for thread in self._threads:
                thread.join()
            shutil.rmtree(self._scratch, ignore_errors=True)

    def _drive(self, number: int) -> None:
        """Have one worker do one task after the other."""
        while item := self._queue.get()[-1]:
            task, future = item
            if not future.set_running_or_notify_cancel():
                continue
            self._started(task)
            try:
                future.set_result(self._ask(number, task))
            except BaseException as error:
                future.set_exception(error)
        with self._lock:
            child = self._processes.pop(number, None)
        if child:
            process.end(child)

    def _ask(self, number: int, task: Task) -> Any:
        """The worker's answer. A task in which two workers died is at fault itself."""
        how = "was ended"
        for _ in range(2):
            requests, answers = self._worker(number)
            with suppress(OSError):
                worker.send(requests, task)
                if (answer := worker.receive(answers)) is not None:
                    self._lost.clear()
                    result, error = pickle.loads(answer)  # noqa: S301 - from a process of ours
                    if error:
                        raise error
                    return result
            with self._lock:
                if self._ended:
                    raise _cancelled()
                how = _how(process.end(self._processes.pop(number)))
        self._lost.add(task.jobs[0].name)
        temporary = tempfile.gettempdir()
        if shutil.disk_usage(temporary).free < _SPACE:
            raise BuildError(f"{temporary}: is full; free some space, or set TMPDIR to a directory with more")
        if len(self._lost) > 2:
            sources = ", ".join(sorted(self._lost))
            raise BuildError(
                f"the processes that compile end at once ({how}), whatever the source ({sources}); if there "
                f"is too little memory for {self._count} of them, set MAX_JOBS to fewer"
            )
        raise CompilationError(
            f"{task}: the compiler's process {how}, twice; if there is too little memory, set "
            "MAX_JOBS to fewer"
        )

    def _worker(self, number: int) -> tuple[IO[bytes], IO[bytes]]:
        """The pipes to a worker and from it."""
        with self._lock:
            if self._ended:
                raise _cancelled()
            if number not in self._processes:
                self._processes[number] = process.start_python(_START, json.dumps(sys.path), self._scratch)
            child = self._processes[number]
        return cast("IO[bytes]", child.stdin), cast("IO[bytes]", child.stdout)


def _cancelled() -> BuildError:
    return BuildError("the build was ended; start it again, and it goes on from there")


def _how(exit_code: int) -> str:
    return f"was ended by signal {-exit_code}" if exit_code < 0 else f"ended with exit code {exit_code}"
