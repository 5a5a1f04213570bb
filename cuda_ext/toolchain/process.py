"""Runs other programs: the command, its exit code and its output in one place.

Whatever ends the wait, Ctrl-C among it, ends the program too, with everything that it started.
"""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, cast

__all__ = ["Child", "Completed", "end", "end_all", "ending_in_order", "run", "start_python"]

Child = subprocess.Popen[bytes]

_running: set[subprocess.Popen[str]] = set()


@dataclass(frozen=True, slots=True)
class Completed:
    """A program that has ended. ``output`` is what a terminal would have shown."""

    command: tuple[str, ...]
    exit_code: int
    output: str

    def __str__(self) -> str:
        shown = self.output.strip() or "it said nothing"
        return f"{shlex.join(self.command)}\nended with exit code {self.exit_code}: {shown}"


def run(command: Sequence[str], *, environ: Mapping[str, str], directory: Path | None = None) -> Completed:
    """Run `command` in `directory` to its end, without input.

    Raises :class:`OSError` if it cannot be started.
    """
    # In a process group of its own, so that the compilers behind a compiler driver can be ended with it.
    with subprocess.Popen(  # noqa: S603
        list(command),
        cwd=directory,
        env=environ,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        encoding="utf-8",
        errors="replace",
        process_group=0 if os.name == "posix" else None,
    ) as process:
        _running.add(process)
        try:
            output, _ = process.communicate()
        except BaseException:
            _end(process)
            raise
        finally:
            _running.discard(process)
    return Completed(tuple(command), process.returncode, output)


def end_all() -> None:
    """End every program that :func:`run` waits for, in whichever thread."""
    for process in list(_running):
        _end(process)


def start_python(code: str, *arguments: str) -> Child:
    """Start this interpreter with `code`, its standard input and output pipes; Ctrl-C does not reach it.

    Nothing is imported from the working directory.
    """
    return subprocess.Popen(  # noqa: S603
        [sys.executable, "-P", "-c", code, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        process_group=0 if os.name == "posix" else None,
    )


def end(child: Child) -> int:
    """End what :func:`start_python` started, and return its exit code.

    Its input ends, and if it goes on all the same, so does it.
    """
    pipes = cast("IO[bytes]", child.stdin), cast("IO[bytes]", child.stdout)
    for _ in range(2):  # what was not sent fails the first time
        with suppress(OSError):
            pipes[0].close()
    try:
        child.wait(timeout=10)
    except subprocess.TimeoutExpired:
        child.kill()
    pipes[1].close()
    return child.wait()


@contextmanager
def ending_in_order() -> Iterator[None]:
    """Let SIGTERM end this process as an exception does, with everything that it started."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _end(process: subprocess.Popen[str]) -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL) if os.name == "posix" else process.kill()
