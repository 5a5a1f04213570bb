"""Other programs: run to their end with a time limit, and ended with all that they started."""

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

__all__ = ["CORES", "Ended", "find_program", "kill", "python", "quiet_environment", "run", "scratch", "start"]

CORES = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
TIMEOUT = 4 * 3600.0

# What would change one contender's work, or make every start of Python compile its modules again.
_DISTURBING = ("CUDAARCHS", "NVCC_PREPEND_FLAGS", "NVCC_APPEND_FLAGS", "PYTHONDONTWRITEBYTECODE")


@dataclass(frozen=True, slots=True)
class Ended:
    """A program that succeeded: how long it took, and what it wrote to its standard output."""

    seconds: float
    output: str


def quiet_environment(**variables: object) -> dict[str, str]:
    """This environment without what disturbs, and with `variables`."""
    kept = {name: value for name, value in os.environ.items() if name not in _DISTURBING}
    return kept | {name: str(value) for name, value in variables.items()}


def run(
    command: Sequence[object],
    *,
    directory: Path | None = None,
    environment: Mapping[str, str] | None = None,
    timeout: float = TIMEOUT,
) -> Ended:
    """Run `command`. Raises :class:`RuntimeError` with its output if it fails or takes too long."""
    began = time.perf_counter()
    process = start(command, directory=directory, environment=environment)
    try:
        output, errors = process.communicate(timeout=timeout)
    except subprocess.TimeoutExpired:
        raise RuntimeError(f"{_shown(command)}\nwas still running after {timeout:.0f} s") from None
    finally:
        kill(process)
    seconds = time.perf_counter() - began
    if process.returncode != 0:
        raise RuntimeError(f"{_shown(command)}\nended with exit code {process.returncode}:\n{output}{errors}")
    return Ended(seconds, output)


def start(
    command: Sequence[object],
    *,
    directory: Path | None = None,
    environment: Mapping[str, str] | None = None,
) -> subprocess.Popen[str]:
    """Start `command` in a process group of its own, for :func:`kill`."""
    return subprocess.Popen(
        list(map(str, command)),
        cwd=directory,
        env=quiet_environment() if environment is None else environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        encoding="utf-8",
        errors="replace",
        process_group=0,
    )


def kill(process: subprocess.Popen[str]) -> None:
    """End `process`, if it still runs, and everything that it started."""
    if process.poll() is None:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


@contextmanager
def scratch(parent: Path) -> Iterator[Path]:
    """A new directory in `parent`, gone afterwards."""
    with tempfile.TemporaryDirectory(dir=parent, ignore_cleanup_errors=True) as name:
        yield Path(name)


def find_program(name: str) -> str | None:
    """`name` as installed in the running Python's environment, else on ``PATH``."""
    return which(name, path=sysconfig.get_path("scripts")) or which(name)


def _shown(command: Sequence[object]) -> str:
    text = shlex.join(map(str, command))
    return text if len(text) < 2000 else f"{text[:2000]} ..."


def python(script: Path, *arguments: object, environment: Mapping[str, str]) -> Ended:
    """Run `script` in a fresh process of the running Python."""
    return run([sys.executable, script, *arguments], environment=environment)
