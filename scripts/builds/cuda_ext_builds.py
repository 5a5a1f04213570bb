"""Build with cuda_ext in new processes: as the setuptools integration does, with pip, and with Dask."""

from __future__ import annotations

import importlib.util
import json
import shutil
import socket
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from _environment import ROOT
from bench.processes import CORES, benchmark_environment, kill, run, run_python, start, temporary_directory

from builds.checks import check_packages
from builds.measuring import Contender, Sample
from builds.workloads import Workload, copy_tree, write_tiny

COLD = "cuda_ext, cold"
NO_CHANGES = "cuda_ext, no changes"
CLONE = "cuda_ext, warm cache, new clone"

_CHILD = Path(__file__).with_name("child.py")


@dataclass(frozen=True, slots=True)
class Bench:
    """A working directory, and a cache that holds only NVRTC's unpacked headers."""

    directory: Path
    headers: Path
    unpacking: float

    @classmethod
    def create(cls, directory: Path) -> Bench:
        """Build one tiny kernel twice: the first time unpacks the headers."""
        root = write_tiny(directory / "tiny", 1)
        headers = directory / "headers"
        first, second = (run_child(f"{i}", "build", root, directory / "lib", cache=headers) for i in range(2))
        return cls(directory, headers, first.seconds - second.seconds)

    def fresh_cache(self, directory: Path) -> Path:
        return Path(shutil.copytree(self.headers, directory))


def run_child(label: str, *arguments: object, cache: Path, **variables: object) -> Sample:
    """Run ``child.py``, and return what it measures."""
    variables = {"CUDA_EXT_CACHE": cache, "MAX_JOBS": CORES, "PYTHONPATH": ROOT, **variables}
    completed = run_python(_CHILD, *arguments, environment=benchmark_environment(**variables))
    measured = json.loads(completed.output.splitlines()[-1])
    figures = (measured[name] for name in ("seconds", "imports", "peak_bytes"))
    return Sample(label, completed.seconds, *figures)


def build_with_cuda_ext(workload: Workload, bench: Bench) -> Contender:
    """Build in a new directory, again without changes, and in a clone with the cache of the first."""

    def take_turn() -> Iterator[Sample]:
        with temporary_directory(bench.directory) as directory:
            cache = bench.fresh_cache(directory / "cache")
            for label, place in ((COLD, "here"), (NO_CHANGES, "here"), (CLONE, "there")):
                root = directory / place
                if not root.exists():
                    copy_tree(workload.root, root)
                sample = run_child(label, "build", root, root / "build" / "lib", cache=cache)
                check_packages(workload, root / "build" / "lib")
                yield sample

    return Contender("cuda_ext", take_turn)


def build_cold(workload: Workload, bench: Bench, label: str, jobs: int) -> Contender:
    """Build once with `jobs` processes, with an empty cache."""

    def take_turn() -> Iterator[Sample]:
        with temporary_directory(bench.directory) as directory:
            cache, output = bench.fresh_cache(directory / "cache"), directory / "lib"
            yield run_child(label, "build", workload.root, output, cache=cache, MAX_JOBS=jobs)
            check_packages(workload, output)

    return Contender(label, take_turn)


def build_wheel(workload: Workload, bench: Bench) -> Contender:
    """Build a wheel with pip, with an empty cache."""

    def take_turn() -> Iterator[Sample]:
        with temporary_directory(bench.directory) as directory:
            cache = bench.fresh_cache(directory / "cache")
            root = copy_tree(workload.root, directory / "project")
            environment = benchmark_environment(CUDA_EXT_CACHE=cache, MAX_JOBS=CORES)
            pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "wheel"]
            options = ["--no-build-isolation", "--no-deps", "--wheel-dir", directory]
            completed = run([*pip, *options, root], environment=environment)
            (wheel,) = directory.glob("*.whl")
            shutil.unpack_archive(wheel, directory / "unpacked", "zip")
            check_packages(workload, directory / "unpacked")
            yield Sample("pip wheel, cold", completed.seconds)

    return Contender("pip wheel", take_turn)


def dask_label(workers: int) -> str:
    return f"cuda_ext, cold, Dask with {workers} worker{'s' if workers > 1 else ''}"


def build_with_dask(workload: Workload, bench: Bench, workers: int) -> Contender:
    def take_turn() -> Iterator[Sample]:
        _check_installed()
        with temporary_directory(bench.directory) as directory:
            root = copy_tree(workload.root, directory / "project")
            caches = [bench.fresh_cache(directory / f"cache-{i}") for i in range(2)]
            with _start_cluster(workers, caches[1]) as address:
                sample = run_child(
                    dask_label(workers),
                    *("build", root, directory / "lib"),
                    cache=caches[0],
                    CUDA_EXT_DASK_SCHEDULER=address,
                )
            check_packages(workload, directory / "lib")
            yield sample

    return Contender(dask_label(workers), take_turn)


def _check_installed() -> None:
    if importlib.util.find_spec("distributed") is None:
        raise RuntimeError("distributed is not installed in this Python")


@contextmanager
def _start_cluster(workers: int, cache: Path) -> Iterator[str]:
    """Start a scheduler and `workers`, and yield the scheduler's address once all are connected."""
    from distributed import Client

    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    address = f"tcp://127.0.0.1:{port}"
    environment = benchmark_environment(CUDA_EXT_CACHE=cache, DASK_LOGGING__DISTRIBUTED="error")
    options = ("--no-dashboard", "--nthreads", 1, "--nworkers", 1, "--local-directory", cache)
    scheduler = ["scheduler", "--host", "127.0.0.1", "--port", port, "--no-dashboard"]
    with ExitStack() as running:
        for arguments in (scheduler, *[["worker", address, *options]] * workers):
            process = start([sys.executable, "-m", "dask", *arguments], environment=environment)
            running.callback(kill, process)
        with Client(address, timeout=60) as client:
            client.wait_for_workers(workers, timeout=60)
        yield address
