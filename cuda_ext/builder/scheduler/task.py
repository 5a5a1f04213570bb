"""Jobs on their way to a compiler: what is sent to another process, and what comes back."""

from __future__ import annotations

import atexit
import os
import platform
import shutil
import tempfile
import threading
import time
from contextlib import closing, nullcontext
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from cuda_ext.builder.scheduler.toolchain_keys import CompilerSpec, identity
from cuda_ext.cache.dependencies import FileDigests
from cuda_ext.cache.open_store import open_store
from cuda_ext.compiler.jobs import Job, encode, perform
from cuda_ext.compiler.translation_unit import Compiler
from cuda_ext.errors import ToolchainError
from cuda_ext.toolchain.time_trace import Span

__all__ = ["Done", "Task"]


@dataclass(frozen=True, slots=True)
class Done:
    """What came out of a task: a product for each job, encoded, and how that came about.

    ``worker`` names the process that did it, ``began`` is when, in seconds since the epoch, and ``seconds``
    how long it took there.
    """

    products: tuple[bytes, ...]
    reads: frozenset[str]
    spans: tuple[Span, ...]
    worker: str
    began: float
    seconds: float


@dataclass(frozen=True, slots=True)
class Task:
    """Jobs that one pass of a compiler does. Called, in whatever process, it does them.

    ``keys`` name the product of each job. ``expected`` is how long the task will take, in seconds. With
    ``timed`` the compiler keeps account of itself.
    """

    jobs: tuple[Job, ...]
    keys: tuple[str, ...]
    module: str
    compiler: CompilerSpec
    expected: float = 0.0
    timed: bool = False

    def __str__(self) -> str:
        return f"{self.jobs[0].name} {', '.join(str(job.architecture) for job in self.jobs)}"

    def __call__(self) -> Done:
        """Raises :class:`~cuda_ext.errors.BuildError`."""
        with _lock:
            compiler = _compiler(self.compiler, self.timed)
        with _lock if self.compiler.name == "nvrtc" else nullcontext():
            began, clock = time.time(), time.perf_counter()
            products = perform(self.jobs, compiler)
        return Done(
            tuple(map(encode, products)),
            products[0].trace.reads,
            products[0].trace.spans,
            f"{platform.node()}:{os.getpid()}",
            began,
            time.perf_counter() - clock,
        )


# For those who call tasks in several threads. NVRTC's front end does one at a time anyway, and the files that
# this process's Nvrtc keeps in its scratch directory are for one.
_lock = threading.Lock()


@cache
def _compiler(spec: CompilerSpec, timed: bool) -> Compiler:
    """This process's compiler. Raises :class:`ToolchainError` if it is not the one that was asked for."""
    compiler = spec.open(_scratch(), timed)
    files = compiler.files()
    with closing(open_store(os.environ, lambda _: None)) as store:
        digests = FileDigests(store)
        found = identity(spec.name, files, digests, "" if files else compiler.version)
        digests.save()
    if found != spec.identity:
        raise ToolchainError(
            f"{platform.node()}: has another {spec.name} ({compiler.version}) than the build; "
            "install the same packages on every machine"
        )
    return compiler


@cache
def _scratch() -> Path:
    directory = Path(tempfile.mkdtemp(prefix="cuda_ext-"))
    atexit.register(shutil.rmtree, directory, ignore_errors=True)
    return directory
