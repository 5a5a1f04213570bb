"""Run other programs with a time limit, and kill them with all processes that they started."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from shutil import which

CORES = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
TIMEOUT = 4 * 3600.0

# Variables that change a contender's work, or make every Python process compile its modules again.
_EXCLUDED_VARIABLES = ("CUDAARCHS", "NVCC_PREPEND_FLAGS", "NVCC_APPEND_FLAGS", "PYTHONDONTWRITEBYTECODE")


@dataclass(frozen=True, slots=True)
class Completed:
    """A program that succeeded: its wall time, and its standard output."""

    seconds: float
    output: str


def benchmark_environment(**variables: object) -> dict[str, str]:
    """Return this process's environment with `variables`, without those that disturb a benchmark."""
    kept = {name: value for name, value in os.environ.items() if name not in _EXCLUDED_VARIABLES}
    return kept | {name: str(value) for name, value in variables.items()}


def run(
    command: Sequence[object],
    *,
    directory: Path | None = None,
    environment: Mapping[str, str] | None = None,
    timeout: float = TIMEOUT,
) -> Completed:
    """Run `command`. Raises :class:`RuntimeError` with its output if it fails or takes too long."""
    began = time.perf_counter()
    process = start(command, directory=directory, environment=environment)
    try:
        output, errors = process.communicate(timeout=timeout)
    except subprocess.TimeoutExpired:
        raise RuntimeError(f"{_format_command(command)}\nwas still running after {timeout:.0f} s") from None
    finally:
        kill(process)
    seconds = time.perf_counter() - began
    if process.returncode != 0:
        status = f"ended with exit code {process.returncode}"
        raise RuntimeError(f"{_format_command(command)}\n{status}:\n{output}{errors}")
    return Completed(seconds, output)


def start(
    command: Sequence[object],
    *,
    directory: Path | None = None,
    environment: Mapping[str, str] | None = None,
) -> subprocess.Popen[str]:
    """Start `command` in its own process group, which :func:`kill` ends."""
    return subprocess.Popen(
        list(map(str, command)),
        cwd=directory,
        env=benchmark_environment() if environment is None else environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        encoding="utf-8",
        errors="replace",
        process_group=0,
    )


def kill(process: subprocess.Popen[str]) -> None:
    """Kill `process`, if it still runs, and all processes that it started."""
    if process.poll() is None:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


@contextmanager
def temporary_directory(parent: Path) -> Iterator[Path]:
    """Create a directory in `parent`; remove it at the end."""
    with tempfile.TemporaryDirectory(dir=parent, ignore_cleanup_errors=True) as name:
        yield Path(name)


def find_program(name: str) -> str | None:
    """Find `name` in the environment of the running Python, else on ``PATH``."""
    return which(name, path=sysconfig.get_path("scripts")) or which(name)


def _format_command(command: Sequence[object]) -> str:
    text = shlex.join(map(str, command))
    return text if len(text) < 2000 else f"{text[:2000]} ..."


def run_python(script: Path, *arguments: object, environment: Mapping[str, str]) -> Completed:
    """Run `script` in a new process of the running Python."""
    return run([sys.executable, script, *arguments], environment=environment)
