"""Builds by executors that the environment names.

The Dask cluster is a real scheduler and real workers in separate processes on loopback.
"""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Executor, ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, field, replace
from multiprocessing import get_context
from pathlib import Path

import pytest

from cuda_ext.builder.scheduler import local_pool
from cuda_ext.builder.scheduler.named_executor import NamedExecutor, open_named_executor
from cuda_ext.builder.scheduler.remembered_compiler import RememberedCompiler
from cuda_ext.builder.scheduler.task import Task, TaskResult
from cuda_ext.cache.dependencies import FileDigests
from cuda_ext.cache.open_store import open_store
from cuda_ext.compiler.jobs import CompileJob
from cuda_ext.compiler.translation_unit import TranslationUnit
from cuda_ext.errors import ToolchainError
from cuda_ext.facts.architecture import Architecture
from cuda_ext.toolchain.compilers import CompilerChoice
from tests.fixtures.projects import FILL, SCALE, SM_90, build, refusal, write_project

pytest.importorskip("distributed", reason="Dask is not installed")

ROOT = Path(__file__).parents[3]
TABLE = """[tool.cuda_ext]
architectures = ["sm_90", "compute_90"]
[tool.cuda_ext.modules."p.kernels"]
include-dirs = ["device"]
[tool.cuda_ext.modules."p.linked"]
sources = ["device/linked/*.cu"]
include-dirs = ["device"]
architectures = ["sm_80"]
link = true
"""
HEADER = "__device__ inline float twice(float x) { return 2 * x; }\n"
KERNEL = '#include "common.cuh"\nextern "C" __global__ void by%d(float* x) { *x = %d * twice(*x); }\n'
FILES = {
    "device/common.cuh": HEADER,
    "device/fill.cu": f"#include <cuda_fp16.h>\n{FILL}",
    **{f"device/{n}.cu": KERNEL % (n, n) for n in range(3)},
    **{f"device/linked/{n}.cu": KERNEL % (n, n) for n in range(2)},
}


@dataclass
class Cluster:
    """A scheduler and its workers; ``workers`` are their processes by address, each in its own directory."""

    root: Path
    scheduler: subprocess.Popen[bytes]
    address: str
    processes: list[subprocess.Popen[bytes]]
    workers: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    def add(self, *options: str) -> str:
        """Start a worker; its address."""
        place = self.root / f"worker{len(self.workers)}"
        place.mkdir()
        command = ["distributed.cli.dask_worker", self.address, "--host", "127.0.0.1", "--no-nanny"]
        # The process has nothing from the builder but the packages.
        process = _start(place, *command, "--no-dashboard", "--local-directory", f"{place}", *options)
        self.processes.append(process)
        text = _wait(lambda: re.search(r"Start worker at: +(\S+)", _log(place)))
        _wait(lambda: "Registered to" in _log(place))
        self.workers[text[1]] = process
        return text[1]

    def log(self) -> str:
        return _log(self.root)


def _start(place: Path, module: str, *options: str) -> subprocess.Popen[bytes]:
    environ = {
        **{k: v for k, v in os.environ.items() if not k.startswith("CUDA_EXT")},
        "CUDA_EXT_CACHE": f"{place}/cache",
        "PYTHONPATH": f"{ROOT}",
        "DASK_DISTRIBUTED__SCHEDULER__ALLOWED_FAILURES": "1",
    }
    with (place / "log").open("wb") as log:
        return subprocess.Popen(
            [sys.executable, "-m", module, *options], cwd=place, env=environ, stdout=log, stderr=log
        )


def _log(place: Path) -> str:
    return (place / "log").read_text()


def _wait(condition: Callable[[], object]) -> object:
    for _ in range(1200):
        if found := condition():
            return found
        time.sleep(0.1)
    raise AssertionError("waited for two minutes")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory) -> Iterator[Cluster]:
    """A cluster with a worker of three threads; starting it takes many seconds."""
    root = tmp_path_factory.mktemp("cluster")
    options = ["--host", "127.0.0.1", "--port", "0", "--no-dashboard"]
    scheduler = _start(root, "distributed.cli.dask_scheduler", *options)
    processes = [scheduler]
    try:
        found = _wait(lambda: re.search(r"Scheduler at: +(tcp://\S+)", _log(root)))
        started = Cluster(root, scheduler, found[1], processes)
        started.add("--nthreads", "3")
        yield started
    finally:
        for process in reversed(processes):
            process.kill()
            process.wait()


@pytest.fixture
def dask(cluster, monkeypatch) -> Cluster:
    """The cluster, for this build to use."""
    monkeypatch.setenv("CUDA_EXT_DASK_SCHEDULER", cluster.address)
    return cluster


@pytest.fixture(autouse=True)
def fresh_cache(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("CUDA_EXT_CACHE", f"{tmp_path}/cache")


@pytest.fixture(scope="module")
def built_here(tmp_path_factory) -> Mapping[str, Mapping[str, bytes]]:
    """The package that local workers build."""
    root = tmp_path_factory.mktemp("local")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CUDA_EXT_CACHE", f"{root}/cache")
        return contents(write_project(root / "p", TABLE, FILES))


def contents(root: Path, log: list[str] | None = None) -> dict[str, Mapping[str, bytes]]:
    return {name: package.files for name, package in build(root, log).items()}


def executor_of(environ: Mapping[str, str]) -> NamedExecutor:
    executor = open_named_executor(environ, 60)
    assert executor
    return executor


@pytest.fixture
def project(tmp_path) -> Path:
    return write_project(tmp_path / "p", TABLE, FILES)


@pytest.fixture
def task(tmp_path) -> Task:
    """A small task, as a build sends it."""
    with closing(open_store(os.environ, lambda _: None)) as store:
        spec = RememberedCompiler.open(CompilerChoice(), os.environ, store, FileDigests(store)).spec
    job = CompileJob(TranslationUnit("device/fill.cu", FILL.encode()), (Architecture.parse("sm_90"),))
    return Task(job, spec)


# What comes out


def test_workers_compile_the_bytes_of_a_local_build(dask, project, built_here, capfd, monkeypatch):
    monkeypatch.setattr(local_pool, "WorkerPool", None)
    assert contents(project) == built_here
    assert capfd.readouterr() == ("", "")


def test_no_data_stays_on_the_cluster(dask, task):
    from distributed import Client

    with executor_of(os.environ) as executor, Client(dask.address, set_as_default=False) as client:
        futures = [executor.submit(task) for _ in range(4)]
        assert all(future.result(120).product for future in futures)
        del futures
        _wait(lambda: not any(client.has_what().values()))


def test_a_worker_that_is_killed_is_not_missed(dask, project, built_here):
    killed = dask.add("--nthreads", "1")

    class Log(list[str]):
        def append(self, line: str) -> None:
            super().append(line)
            if line.startswith("["):
                dask.workers[killed].kill()

    assert contents(project, Log()) == built_here
    _wait(lambda: re.search(f"Remove worker.*{killed}", dask.log()))
    del dask.workers[killed]


# What goes wrong


def test_errors_of_the_compiler_are_those_of_a_local_build(dask, tmp_path, monkeypatch, capfd):
    broken = {"device/a.cu": f"{FILL}\nint x = ;", "device/b.cu": SCALE + "# error " + "long " * 4000}
    project = write_project(tmp_path / "p", f'{SM_90}[tool.cuda_ext.modules."p.kernels"]\n', broken)
    text = refusal(project)
    assert "device/a.cu(3): error" in text
    assert "long long" in text
    assert capfd.readouterr() == ("", "")
    monkeypatch.delenv("CUDA_EXT_DASK_SCHEDULER")
    assert refusal(project) == text


@dataclass(frozen=True, slots=True)
class Deadly(Task):
    def __call__(self) -> TaskResult:
        os.kill(os.getpid(), signal.SIGKILL)
        raise AssertionError


@dataclass(frozen=True, slots=True)
class FromElsewhere(Task):
    def __reduce__(self) -> tuple[object, ...]:
        return __import__, ("module_that_is_nowhere",)


def test_what_a_worker_lacks_is_named(dask, task):
    other = replace(task, compiler=task.compiler._replace(identity="other"))
    with executor_of(os.environ) as executor:
        texts = [
            str(executor.submit(each).exception(120))
            for each in (other, FromElsewhere(task.job, task.compiler))
        ]
    assert re.search(r"has another nvrtc \(\d+\.\d+\) than the build", texts[0])
    assert "No module named 'module_that_is_nowhere'" in texts[1]


@pytest.mark.parametrize("listening", [False, True], ids=["no listener", "another listener"])
def test_a_scheduler_that_cannot_be_reached(project, monkeypatch, listening):
    monkeypatch.setattr("cuda_ext.builder.scheduler.named_executor._CONNECT", 1)
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        if listening:
            server.listen()
        monkeypatch.setenv("CUDA_EXT_DASK_SCHEDULER", f"tcp://127.0.0.1:{server.getsockname()[1]}")
        with pytest.raises(
            ToolchainError,
            match=r"no executor from 'tcp://127.*; install \"cuda-ext\[dask\]\"",
        ):
            build(project)


def test_pending_tasks_are_cancelled_on_the_cluster(dask, task):
    from distributed import Client

    def send(number: int) -> None:
        for process in dask.workers.values():
            os.kill(process.pid, number)

    with Client(dask.address, set_as_default=False) as client:
        executor = executor_of(os.environ)
        send(signal.SIGSTOP)
        for _ in range(20):
            executor.submit(task)
        executor.shutdown(cancel_futures=True)
        _wait(lambda: not any(client.processing().values()))
        send(signal.SIGCONT)


# Other executors


def in_processes() -> Executor:
    return ProcessPoolExecutor(2, mp_context=get_context("spawn"))


def in_threads() -> Executor:
    return ThreadPoolExecutor(3)


@pytest.mark.parametrize("make", [in_processes, in_threads])
def test_any_executor_does(make, project, built_here, monkeypatch):
    monkeypatch.setenv("CUDA_EXT_EXECUTOR", f"{__name__}:{make.__name__}")
    monkeypatch.setattr(local_pool, "WorkerPool", None)
    assert contents(project) == built_here


def test_a_process_that_dies_is_an_error_with_its_task(task):
    with NamedExecutor("CUDA_EXT_EXECUTOR", in_processes(), 60) as executor:
        error = executor.submit(Deadly(task.job, task.compiler)).exception(120)
    assert isinstance(error, ToolchainError)
    assert re.match(r"device/fill\.cu sm_90: .* did not compile it \(BrokenProcessPool: ", str(error))


def no_executor() -> None:
    pass


def failing() -> None:
    raise RuntimeError("no host is free")


@pytest.mark.parametrize(
    ("name", "answer"),
    [
        ("nowhere", r"ModuleNotFoundError: .*\); write module:function"),
        (f"{__name__}:nothing", "AttributeError: .*no attribute 'nothing'"),
        (f"{__name__}:no_executor", "TypeError: it returned None"),
        (f"{__name__}:failing", "RuntimeError: no host is free"),
    ],
)
def test_a_function_that_gives_no_executor(project, monkeypatch, name, answer):
    monkeypatch.setenv("CUDA_EXT_EXECUTOR", name)
    with pytest.raises(ToolchainError, match=rf"CUDA_EXT_EXECUTOR: no executor from '{name}' \({answer}"):
        build(project)
