"""Compiling in worker processes: their number, the replacement of dead ones, and the order of tasks."""

from __future__ import annotations

import functools
import json
import os
import pickle
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from cuda_ext.builder.scheduler import local_pool, worker
from cuda_ext.builder.scheduler.local_pool import WorkerPool
from cuda_ext.builder.scheduler.remembered_compiler import CompilerSpec
from cuda_ext.builder.scheduler.task import Task, TaskResult
from cuda_ext.builder.scheduler.worker_count import worker_count
from cuda_ext.builder.session import build_project
from cuda_ext.compiler.jobs import CompileJob
from cuda_ext.errors import BuildError, CompilationError, ConfigError
from cuda_ext.facts.architecture import Architecture
from cuda_ext.toolchain import process
from cuda_ext.toolchain.compilers import CompilerChoice
from tests.fixtures.caches import create_empty_cache
from tests.fixtures.device_code import KERNEL, unit
from tests.fixtures.projects import SM_90, build, load, write_project

linux = pytest.mark.skipif(sys.platform != "linux", reason="/proc tells which processes there are")
UNITS = {
    f"device/u{i}.cu": f'extern "C" __global__ void kernel{i}(int* x) {{ *x = {i}; }}\n' for i in range(6)
}
TABLE = f'{SM_90}[tool.cuda_ext.modules."p.kernels"]\n'


# Set in the process of test_forks_do_the_same.
FORKING = "CUDA_EXT_TESTS_FORK" in os.environ


@pytest.fixture(autouse=True)
def start(monkeypatch: pytest.MonkeyPatch) -> None:
    """Workers start as forks, or as new interpreters, but not as one or the other by chance."""
    if FORKING:
        deadline = time.monotonic() + 10  # the system may still list a thread that was joined
        while not process.can_fork() and time.monotonic() < deadline:
            time.sleep(0.01)
        assert process.can_fork()
    else:
        monkeypatch.setattr(process, "can_fork", lambda: False)


@linux
@pytest.mark.skipif(FORKING, reason="they fork")
def test_forks_do_the_same() -> None:
    """In a process of its own, which has a single thread."""
    tests = [
        test_a_worker_that_is_killed_is_replaced,
        test_a_task_that_cannot_be_read_is_an_error,
        test_cancelling_ends_running_tasks_and_drops_waiting_ones,
        test_an_interrupt_while_workers_start_leaves_nothing,
        test_more_workers_start_when_there_are_tasks_for_them,
    ]
    names = [f"{__file__}::{test.__name__}" for test in tests]
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:xdist", "-p", "no:cacheprovider", *names]
    ended = subprocess.run(
        command,
        cwd=Path(__file__).parents[3],
        env=os.environ | {"CUDA_EXT_TESTS_FORK": "1"},
        capture_output=True,
        text=True,
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "skipped" not in ended.stdout


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project of six units, an empty cache, and an empty directory for temporary files."""
    create_empty_cache(tmp_path / "cache")
    (tmp_path / "tmp").mkdir()
    monkeypatch.setenv("CUDA_EXT_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "tmp"))
    return write_project(tmp_path / "project", TABLE, UNITS)


def children() -> set[int]:
    """Return the running child processes; those of earlier tests may end at any time."""
    found: set[int] = set()
    for task in Path("/proc/self/task").iterdir():
        with suppress(OSError):
            found.update(map(int, (task / "children").read_text().split()))
    return found


# How many.


@pytest.mark.parametrize(("value", "count"), [("1", 1), ("3", 3), (" 12 ", 12), ("007", 7)])
def test_max_jobs_is_obeyed_literally(value: str, count: int) -> None:
    assert worker_count({"MAX_JOBS": value}) == count


@pytest.mark.parametrize("value", ["0", "-1", "two", "1.5", "1_0", "²", "٣"])
def test_an_invalid_number_of_processes_is_reported(value: str) -> None:
    with pytest.raises(
        ConfigError, match=r"MAX_JOBS: '.*' is not a number of processes; write one from 1 to 1024"
    ):
        worker_count({"MAX_JOBS": value})


@pytest.mark.parametrize("value", ["1025", "100000", "9" * 5000])
def test_more_processes_than_are_useful_are_reduced_with_a_word(value: str) -> None:
    words: list[str] = []
    assert worker_count({"MAX_JOBS": value}, words.append) == 1024
    assert words == ["MAX_JOBS: 1024 processes compile, which is the limit"]


@pytest.mark.parametrize("environ", [{}, {"MAX_JOBS": ""}, {"MAX_JOBS": " "}])
def test_without_max_jobs_there_are_as_many_as_cores_at_most(environ: dict[str, str]) -> None:
    assert 1 <= worker_count(environ) <= (os.cpu_count() or 1)


@linux
@pytest.mark.parametrize("count", [1, 3])
def test_so_many_processes_compile(project: Path, monkeypatch: pytest.MonkeyPatch, count: int) -> None:
    monkeypatch.setenv("MAX_JOBS", str(count))
    before = children()
    seen: set[int] = set()
    build_project(load(project), lambda _: seen.update(children()))
    assert len(seen - before) == count
    assert children() <= before


@linux
def test_cached_results_start_no_process(project: Path) -> None:
    build(project)
    (project / "pyproject.toml").write_text(f"{TABLE}jit = false\n")
    before = children()
    seen: set[int] = set()
    build_project(load(project), lambda _: seen.update(children()))
    assert seen <= before


# What goes wrong.


@linux
@pytest.mark.parametrize(("count", "times"), [("1", ("[2/", "[5/")), ("2", ("[2/",))])
def test_a_worker_that_is_killed_is_replaced(
    project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, count: str, times: tuple[str, ...]
) -> None:
    monkeypatch.setenv("MAX_JOBS", count)
    before, killed = children(), list[int]()

    def kill(line: str) -> None:
        # No worker dies twice in the same task, which would be blamed on the task.
        if line.startswith(times):
            for child in children() - before:
                with suppress(ProcessLookupError):
                    os.kill(child, signal.SIGKILL)
                    killed.append(child)

    packages = {package.name: package for package in build_project(load(project), kill)}
    assert len(killed) >= 2
    assert list((tmp_path / "tmp").iterdir()) == []
    os.environ["CUDA_EXT_CACHE_SIZE"] = "0"
    try:
        assert build(project) == packages
    finally:
        del os.environ["CUDA_EXT_CACHE_SIZE"]


@linux
def test_a_task_whose_workers_always_die_is_named(project: Path, tmp_path: Path) -> None:
    before, over = children(), threading.Event()

    def kill() -> None:
        while not over.wait(0.005):
            for child in children() - before:
                with suppress(ProcessLookupError):
                    os.kill(child, signal.SIGKILL)

    killer = threading.Thread(target=kill)
    killer.start()
    try:
        with pytest.raises(BuildError) as caught:
            build(project)
    finally:
        over.set()
        killer.join()
    for name in UNITS:
        named = f"{name} sm_90: the compiler's process was ended by signal 9, twice; if there is too little"
        assert named in str(caught.value)
    assert list((tmp_path / "tmp").iterdir()) == []
    assert build(project)


def test_modules_in_the_working_directory_are_not_imported(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Build tools run in the project's root."""
    for name in ("json", "queue", "pickle", "cuda_ext"):
        (project / f"{name}.py").write_text("raise SystemExit(3)\n")
    monkeypatch.chdir(project)
    assert build(project)


class Unreadable(Task):
    """A task that is decoded as another object, as from another version."""

    __slots__ = ()

    def __reduce__(self) -> tuple[object, ...]:
        return int, ("no task",)


SPEC = CompilerSpec(CompilerChoice(), "another", "13.0")
TASK = Task(CompileJob(unit(KERNEL), (Architecture.parse("sm_90"),)), SPEC)


@pytest.fixture
def pool() -> Iterator[WorkerPool]:
    workers = WorkerPool(2)
    yield workers
    workers.shutdown(cancel_futures=True)


def test_a_task_that_cannot_be_read_is_an_error(pool: WorkerPool) -> None:
    future = pool.submit(Unreadable(TASK.job, TASK.compiler))
    with pytest.raises(CompilationError, match="ended with exit code 1, twice"):
        future.result(timeout=300)


def test_another_compiler_than_the_builds_is_refused(pool: WorkerPool) -> None:
    with pytest.raises(BuildError, match=r"has another nvrtc .* than the build"):
        pool.submit(TASK).result(timeout=300)


def test_only_tasks_are_accepted(pool: WorkerPool) -> None:
    with pytest.raises(TypeError):
        pool.submit(print, "hello")


class Endless(Task):
    """A task that does not end."""

    __slots__ = ()

    def __call__(self) -> TaskResult:
        time.sleep(600)
        raise AssertionError


@linux
def test_cancelling_ends_running_tasks_and_drops_waiting_ones() -> None:
    before = children()
    started = threading.Event()
    pool = WorkerPool(1, lambda _: started.set())
    futures = [pool.submit(Endless(TASK.job, TASK.compiler)) for _ in range(3)]
    assert started.wait(60)
    pool.shutdown(cancel_futures=True)
    assert children() <= before
    assert all(future.done() for future in futures)
    assert futures[-1].cancelled()


def descriptors() -> set[Path]:
    return set(Path("/proc/self/fd").iterdir())


class Interruption(Exception):
    pass


@linux
@pytest.mark.parametrize("owner", [WorkerPool, threading.Thread])
@pytest.mark.parametrize("kind", ["signal", "error"])
def test_an_interrupt_while_workers_start_leaves_nothing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, owner: type, kind: str
) -> None:
    """At the start of the second worker, or of the second thread."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    before = children(), descriptors(), set(threading.enumerate())
    name = "_start" if owner is WorkerPool else "start"
    original = getattr(owner, name)
    starts = 0

    def handle(*_: object) -> None:
        raise Interruption

    def start(this: object) -> object:
        nonlocal starts
        starts += 1
        if starts == 2 and kind == "error":
            raise Interruption
        result = original(this)
        if starts == 2:
            signal.raise_signal(signal.SIGTERM)
        return result

    handler = signal.signal(signal.SIGTERM, handle)
    try:
        with monkeypatch.context() as patch:
            patch.setattr(owner, name, start)
            with pytest.raises(Interruption):
                WorkerPool(3)
    finally:
        signal.signal(signal.SIGTERM, handler)
    assert children() <= before[0]
    assert set(threading.enumerate()) <= before[2]
    assert descriptors() <= before[1]
    assert list(tmp_path.iterdir()) == []


def until_its_files_go() -> None:
    """A task that has many temporary files, and fails if one of them is missing."""
    directory = Path(tempfile.gettempdir())
    for i in range(3000):
        (directory / str(i)).touch()
    (directory / "last").touch()
    while True:
        for i in range(0, 3000, 100):
            (directory / str(i)).stat()


@pytest.mark.parametrize("task", [until_its_files_go, functools.partial(time.sleep, 0.5)])
def test_a_worker_without_a_build_leaves_no_files(tmp_path: Path, task: Callable[[], None]) -> None:
    """Even if its task ends meanwhile, or fails because its files are removed."""
    scratch = tmp_path / "scratch"
    child = start_worker(scratch)
    send(child, task)
    while task is until_its_files_go and not list(scratch.glob("*/last")):
        time.sleep(0.01)
    assert process.end(child) == 0
    assert not scratch.exists()


def start_worker(scratch: Path, limit: int = 60) -> subprocess.Popen[bytes]:
    return process.start_python(local_pool._START, json.dumps(sys.path), str(scratch), str(limit))


def send(child: subprocess.Popen[bytes], task: Callable[[], object]) -> None:
    assert child.stdin
    child.stdin.write(pickle.dumps(task))
    child.stdin.flush()


def test_a_task_that_takes_too_long_ends_its_worker(tmp_path: Path) -> None:
    child = start_worker(tmp_path / "scratch", limit=1)
    send(child, functools.partial(time.sleep, 60))
    assert child.wait(60) == worker.TOO_SLOW
    assert not (tmp_path / "scratch").exists()
    process.end(child)


class Stopped(Task):
    """A task that stops its whole process, as a library that does not end and keeps the GIL."""

    __slots__ = ()

    def __call__(self) -> TaskResult:
        os.kill(os.getpid(), signal.SIGSTOP)
        raise AssertionError


@linux
def test_a_worker_that_cannot_end_itself_is_killed_when_its_time_is_over(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(local_pool, "_GRACE", 0.5)
    before = children()
    pool = WorkerPool(1, limit=1)
    with pytest.raises(CompilationError, match="the compilation did not end within 1 seconds"):
        pool.submit(Stopped(TASK.job, TASK.compiler)).result(timeout=60)
    pool.shutdown()
    assert children() <= before


# Who does what next.


@linux
def test_more_workers_start_when_there_are_tasks_for_them() -> None:
    """At first few are known: a link, for instance, becomes necessary later."""
    before = children()
    pool = WorkerPool(3, first=1)
    seen = [len(children() - before)]
    for tasks in (1, 1, *[50] * 20):  # on a busy machine, two workers may do 50 before the third starts
        for future in [pool.submit(TASK) for _ in range(tasks)]:
            with pytest.raises(BuildError, match="another nvrtc"):
                future.result(timeout=300)
        seen.append(len(children() - before))
        if seen[-1] == 3:
            break
    pool.shutdown()
    assert seen[:3] == [1, 1, 1]
    assert seen[-1] == 3
    assert children() <= before


def test_the_longest_is_first() -> None:
    order: list[float] = []
    pool = WorkerPool(1, lambda task: order.append(task.priority))
    for priority in (9, 1, 3, 2):  # the first is on its way before the others come
        pool.submit(replace(TASK, priority=float(priority)))
    pool.shutdown()
    assert order[1:] == [3, 2, 1]


@linux
def test_only_the_worker_answers_if_a_source_forks_it(tmp_path: Path) -> None:
    child = start_worker(tmp_path / "scratch")
    assert child.stdout
    send(child, os.fork)
    assert pickle.load(child.stdout) != (0, None)
    send(child, os.getpid)
    assert pickle.load(child.stdout) == (child.pid, None)
    process.end(child)
