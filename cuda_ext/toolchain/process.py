"""Runs other programs and worker processes; no other module does.

Whatever ends the wait for a program, Ctrl-C included, ends the program too, with everything that it started.
"""

from __future__ import annotations

import math
import os
import shlex
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, ClassVar, NamedTuple, cast

from cuda_ext.time_limit import call_within, time_limit, too_slow
from cuda_ext.toolchain.programs.recorded_commands import record_command

_running: set[subprocess.Popen[bytes]] = set()
# The seconds that a program has for an answer, such as its version.
_ANSWER = 60
_MOST_OUTPUT = 16 << 20


class Completed(NamedTuple):
    """A program that has ended. ``output`` is what a terminal would have shown."""

    command: tuple[str, ...]
    exit_code: int
    output: str

    def __str__(self) -> str:
        shown = self.output.strip() or "no output"
        return f"{shlex.join(self.command)}\nended with exit code {self.exit_code}: {shown}"


def run(
    command: Sequence[str],
    *,
    environ: Mapping[str, str],
    directory: Path | None = None,
    compiles: str = "",
) -> Completed:
    """Run `command` in `directory` to its end, without input.

    If it `compiles` a source, it may take ``CUDA_EXT_TIMEOUT`` seconds, else it is to answer soon. Raises
    :class:`OSError` if it cannot be started, and :class:`~cuda_ext.errors.CompilationError` or
    :class:`TimeoutError` if it has to be ended.
    """
    seconds = time_limit(environ) if compiles else _ANSWER
    record_command(*command)
    # In a process group of its own, so that the compilers behind a compiler driver end with it.
    with subprocess.Popen(  # noqa: S603
        list(command),
        cwd=directory,
        env=environ,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        bufsize=0,
        process_group=0 if os.name == "posix" else None,
    ) as process:
        _running.add(process)
        try:
            # A descriptor of its own: the thread may go on after the time, when this one is closed.
            output = call_within(seconds, _read, os.dup(cast("IO[bytes]", process.stdout).fileno()))
            process.wait(seconds)
        except (TimeoutError, subprocess.TimeoutExpired):
            _end(process)
            if compiles:
                raise too_slow(compiles, seconds) from None
            raise TimeoutError(f"it did not end within {seconds:.0f} seconds") from None
        except BaseException:
            _end(process)
            raise
        finally:
            _running.discard(process)
    return Completed(tuple(command), process.returncode, output)


def _read(descriptor: int) -> str:
    """The text from a pipe, which is closed; cut at a length that no one reads to the end."""
    text = bytearray()
    try:
        while piece := os.read(descriptor, 1 << 16):
            if len(text) < _MOST_OUTPUT:
                text += piece
    finally:
        os.close(descriptor)
    return text.decode("utf-8", "replace").replace("\r\n", "\n")


def run_in_foreground(command: Sequence[str], environ: Mapping[str, str]) -> int:
    """Run `command` with the terminal of this process, to its end; return its exit code as a shell does.

    Signals that ask this process to end are for the program: Ctrl-C reaches it anyway, SIGTERM is passed on.
    Raises :class:`OSError` if it cannot be started.
    """
    with subprocess.Popen(list(command), env=environ) as process:  # noqa: S603
        on_interrupt = signal.signal(signal.SIGINT, signal.SIG_IGN)
        on_end = signal.signal(signal.SIGTERM, lambda number, _: process.send_signal(number))
        try:
            code = process.wait()
        finally:
            signal.signal(signal.SIGINT, on_interrupt)
            signal.signal(signal.SIGTERM, on_end)
    return code if code >= 0 else 128 - code


def end_all() -> None:
    """End every program that :func:`run` waits for, in whichever thread."""
    for process in list(_running):
        _end(process)


def start_python(code: str, *arguments: str) -> subprocess.Popen[bytes]:
    """Start this interpreter with `code`, its standard input and output pipes; Ctrl-C does not reach it.

    Nothing is imported from the working directory.
    """
    return subprocess.Popen(  # noqa: S603
        [sys.executable, "-P", "-c", code, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        process_group=0 if os.name == "posix" else None,
    )


def can_fork() -> bool:
    """Return True if this process has a single thread: a fork then inherits no lock of another thread."""
    try:
        return len(list(Path("/proc/self/task").iterdir())) == 1
    except OSError:
        return False


class Fork:
    """A fork of this process that calls `function` with a pipe from ``stdin`` and one to ``stdout``.

    Ctrl-C does not reach it. It has the part of the interface of :class:`subprocess.Popen` that workers need.
    """

    _others: ClassVar[set[Fork]] = set()

    def __init__(self, function: Callable[[IO[bytes], IO[bytes]], object]) -> None:
        # No pipe must become a standard stream where these are closed.
        while (unused := os.open(os.devnull, os.O_RDWR)) < 3:
            pass
        os.close(unused)
        its_input, self.stdin = _open_pipe()
        self.stdout, its_output = _open_pipe()
        self.returncode: int | None = None
        self._wait_lock = threading.Lock()
        # The exception of a signal's handler would be lost in the hooks that run at a fork.
        with signals_blocked():
            self.pid = os.fork()
            if not self.pid:
                self._call(function, its_input, its_output)
            self._others.add(self)
        its_input.close()
        its_output.close()

    def wait(self, timeout: float = math.inf) -> int:
        """Wait for its end, and return its exit code; 0 if it is unknown, as for :mod:`subprocess`."""
        deadline = time.monotonic() + timeout
        with self._wait_lock:
            while self.returncode is None:
                try:
                    pid, status = os.waitpid(self.pid, os.WNOHANG)
                except ChildProcessError:  # SIGCHLD is ignored, or other code has waited for it
                    pid, status = self.pid, 0
                if pid:
                    self.returncode = os.waitstatus_to_exitcode(status)
                    self._others.discard(self)
                elif time.monotonic() > deadline:
                    raise subprocess.TimeoutExpired("fork", timeout)
                else:
                    time.sleep(0.001)
            return self.returncode

    def kill(self) -> None:
        if self.returncode is None:
            with suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)

    def _call(
        self, function: Callable[[IO[bytes], IO[bytes]], object], its_input: IO[bytes], its_output: IO[bytes]
    ) -> None:
        """Call `function` in the fork, which never returns from here."""
        try:
            os.setpgid(0, 0)
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            # The input of another fork ends when this process ends, so it must not stay open here.
            for fork in (self, *self._others):
                fork.stdin.close()
                fork.stdout.close()
            function(its_input, its_output)
        except BaseException:
            sys.excepthook(*sys.exc_info())
        finally:
            os._exit(1)


Child = subprocess.Popen[bytes] | Fork


def end_input(child: Child) -> None:
    """Ask a worker process to end, by the end of its input."""
    for _ in range(2):  # closing fails the first time where something was not sent
        with suppress(OSError):
            cast("IO[bytes]", child.stdin).close()


def end(child: Child) -> int:
    """End a worker process, and return its exit code.

    Its input ends; if it does not end within ten seconds, it is killed.
    """
    end_input(child)
    try:
        child.wait(timeout=10)
    except subprocess.TimeoutExpired:
        child.kill()
    cast("IO[bytes]", child.stdout).close()
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


@contextmanager
def signals_blocked() -> Iterator[None]:
    """Let SIGINT and SIGTERM arrive afterwards, so that their exceptions interrupt nothing here."""
    if os.name != "posix":
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGINT, signal.SIGTERM))
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _open_pipe() -> tuple[IO[bytes], IO[bytes]]:
    reading, writing = os.pipe()
    return os.fdopen(reading, "rb"), os.fdopen(writing, "wb")


def _end(process: subprocess.Popen[bytes]) -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL) if os.name == "posix" else process.kill()
