"""Tasks, which carry jobs to other processes, and their results."""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
import threading
import time
from contextlib import nullcontext
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from cuda_ext.builder.scheduler.remembered_compiler import CompilerSpec
from cuda_ext.builder.scheduler.shared_headers import SharedHeaders
from cuda_ext.compiler.jobs import Job, encode_product
from cuda_ext.compiler.products import Span
from cuda_ext.compiler.translation_unit import Compiler
from cuda_ext.errors import CompilationError, ToolchainError
from cuda_ext.toolchain.compile_library import perform
from cuda_ext.toolchain.compilers import open_compiler
from cuda_ext.toolchain.identity import identity_of
from cuda_ext.toolchain.nvrtc import Nvrtc
from cuda_ext.toolchain.programs.recorded_commands import recorded_commands


@dataclass(frozen=True, slots=True)
class TaskResult:
    """The encoded product of a job, and the headers that the compiler read.

    ``commands`` are the commands that the job ran, and ``worker`` is the host and process id.
    ``began`` is the start in seconds since the epoch, and ``seconds`` the duration.
    """

    product: tuple[bytes, ...]
    reads: frozenset[str]
    spans: tuple[Span, ...]
    commands: tuple[str, ...]
    worker: str
    began: float
    seconds: float


@dataclass(frozen=True, slots=True)
class Task:
    """A job and its compiler. Calling a task does the job, in any process.

    Executors start tasks of higher ``priority`` first. If ``timed``, the compiler records a time trace. An
    executor may set ``precompiles``: then the process precompiles ``headers`` and keeps them for later tasks.
    """

    job: Job
    compiler: CompilerSpec
    priority: float = 0.0
    timed: bool = False
    headers: SharedHeaders | None = None
    precompiles: bool = False

    def __str__(self) -> str:
        return str(self.job)

    def __call__(self) -> TaskResult:
        """Do the job. Raises :class:`~cuda_ext.errors.BuildError`."""
        with _lock:
            compiler = _open(self.compiler, self.timed)
        with _lock if compiler.name in ("nvrtc", "tile") else nullcontext():
            if isinstance(compiler, Nvrtc):
                compiler.shared_headers = self.headers.source if self.headers and self.precompiles else b""
            began, clock = time.time(), time.perf_counter()
            with recorded_commands() as commands:
                try:
                    product = perform(self.job, compiler)
                except CompilationError as error:
                    error.commands = tuple(commands)
                    raise
        trace = product[0].trace
        return TaskResult(
            encode_product(product),
            trace.reads,
            trace.spans,
            tuple(commands),
            f"{_host()}:{os.getpid()}",
            began,
            time.perf_counter() - clock,
        )


# An executor may run tasks in several threads. NVRTC's front end compiles one program at a time, and all
# compilations of a process share one scratch directory.
_lock = threading.Lock()


@cache
def _open(spec: CompilerSpec, timed: bool) -> Compiler:
    """Open the compiler in this process. Raises :class:`ToolchainError` if the build has another one."""
    compiler = open_compiler(spec.choice, os.environ, scratch=_scratch(), timed=timed, check=lambda _: None)
    files = compiler.files()
    if identity_of(compiler.name, files, "" if files else compiler.version) != spec.identity:
        raise ToolchainError(
            f"has another {compiler.name} ({compiler.version}) than the build",
            where=_host(),
            remedy="install the same packages on every machine",
        )
    vars(compiler)["version"] = spec.version  # a cached property, which would load the compiler
    return compiler


@cache
def _host() -> str:
    return os.uname().nodename if hasattr(os, "uname") else os.environ.get("COMPUTERNAME", "")


@cache
def _scratch() -> Path:
    directory = Path(tempfile.mkdtemp(prefix="cuda_ext-"))
    atexit.register(shutil.rmtree, directory, ignore_errors=True)
    return directory
