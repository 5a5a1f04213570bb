"""One against two workers of a Dask cluster on this machine, each a process of its own."""

from __future__ import annotations

import importlib.util
import socket
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from bench._checks import check_packages
from bench._measuring import Contender, Sample
from bench._ours import Bench, child
from bench._processes import kill, quiet_environment, scratch, start
from bench._workloads import Workload, copy_tree

__all__ = ["dask", "label"]


def label(workers: int) -> str:
    return f"ours, cold, Dask with {workers} worker{'s' if workers > 1 else ''}"


def dask(workload: Workload, bench: Bench, workers: int) -> Contender:
    def take_turn() -> Iterator[Sample]:
        _require()
        with scratch(bench.directory) as directory:
            root = copy_tree(workload.root, directory / "project")
            _choose_executor(root / "pyproject.toml")
            caches = [bench.fresh_cache(directory / f"cache-{i}") for i in range(2)]
            with _cluster(workers, caches[1]) as address:
                sample = child(
                    label(workers),
                    *("build", root, directory / "lib"),
                    cache=caches[0],
                    CUDA_EXT_DASK_SCHEDULER=address,
                )
            check_packages(workload, directory / "lib")
            yield sample

    return Contender(label(workers), take_turn)


def _require() -> None:
    if importlib.util.find_spec("distributed") is None:
        raise RuntimeError("distributed is not installed in this Python")


def _choose_executor(pyproject: Path) -> None:
    text = pyproject.read_text(encoding="utf-8")
    table = "[tool.cuda_ext]\n"
    pyproject.write_text(text.replace(table, f'{table}executor = "dask"\n'), encoding="utf-8")


@contextmanager
def _cluster(workers: int, cache: Path) -> Iterator[str]:
    """A scheduler with `workers` that wait for work; their address."""
    from distributed import Client

    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    address = f"tcp://127.0.0.1:{port}"
    environment = quiet_environment(CUDA_EXT_CACHE=cache, DASK_LOGGING__DISTRIBUTED="error")
    options = ("--no-dashboard", "--nthreads", 1, "--nworkers", 1, "--local-directory", cache)
    scheduler = ["scheduler", "--host", "127.0.0.1", "--port", port, "--no-dashboard"]
    with ExitStack() as running:
        for arguments in (scheduler, *[["worker", address, *options]] * workers):
            process = start([sys.executable, "-m", "dask", *arguments], environment=environment)
            running.callback(kill, process)
        with Client(address, timeout=60) as client:
            client.wait_for_workers(workers, timeout=60)
        yield address
