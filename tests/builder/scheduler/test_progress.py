"""The progress of a build: a display that leaves terminals as they were, lines elsewhere."""

from __future__ import annotations

import io
import os
import re
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from cuda_ext.builder.scheduler import progress as progress_module
from cuda_ext.builder.scheduler.progress import Progress, progress_for

ROOT = Path(__file__).parents[3]


def plain() -> tuple[Progress, list[str]]:
    lines: list[str] = []
    return progress_for(io.StringIO(), lines.append), lines


def test_lines_count_jobs_and_end_with_a_summary():
    progress, lines = plain()
    progress.message("p.kernels: with nvrtc 13.5")
    progress.plan(10)
    progress.plan(2)
    for n in range(9):
        progress.finished(f"device/{n}.cu sm_90", "cached", 0.0)
    progress.started("device/axpy.cu sm_90")
    progress.finished("device/axpy.cu sm_90", "compiled", 0.041)
    progress.started("device/bad.cu sm_90")
    progress.finished("device/bad.cu sm_90", "failed", 1.5)
    progress.close()
    progress.close()
    assert lines[:3] == [
        "p.kernels: with nvrtc 13.5",
        "[10/12] device/axpy.cu sm_90 0.04 s",
        "[11/12] device/bad.cu sm_90 failed",
    ]
    (last,) = lines[3:]
    pattern = r"12 compilations: 1 compiled, 9 from the cache, 1 failed, 1 not done, in \d+(\.\d)? m?s"
    assert re.fullmatch(pattern, last)


def test_counts_are_aligned():
    progress, lines = plain()
    progress.plan(10)
    progress.finished("a", "compiled", 1)
    assert lines == ["[ 1/10] a 1.00 s"]


def test_one_compilation_is_singular():
    progress, lines = plain()
    progress.plan(1)
    progress.finished("a", "compiled", 1)
    progress.close()
    assert lines[-1].startswith("1 compilation: 1 compiled, in ")


def test_a_build_without_compilations_prints_nothing():
    progress, lines = plain()
    progress.close()
    assert lines == []


def test_progress_is_thread_safe():
    progress, lines = plain()
    progress.plan(800)

    def work(name: int) -> None:
        for n in range(100):
            progress.started(f"{name} {n}")
            progress.finished(f"{name} {n}", "compiled", 0)

    threads = [threading.Thread(target=work, args=(name,)) for name in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [int(line[1:4]) for line in lines] == list(range(1, 801))


class Terminal(io.StringIO):
    encoding = "utf-8"

    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    "environment", [{"TERM": "dumb"}, {"TERM": "unknown"}, {"CI": "true"}], ids=lambda e: "".join(e.values())
)
def test_terminals_that_cannot_show_a_display_get_lines(monkeypatch, environment):
    monkeypatch.delenv("CI", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    lines: list[str] = []
    progress = progress_for(Terminal(), lines.append)
    progress.message("kept")
    assert lines == ["kept"]


@pytest.fixture
def clock(monkeypatch):
    """A clock that only moves when it is set."""
    now = [100.0]
    monkeypatch.setattr(progress_module.time, "monotonic", lambda: now[0])
    return now


def counts(clock, done: int, seconds: float):
    """A build of 10 jobs on two workers that began `clock` ago."""
    found = Progress(print)
    found.plan(10)
    for n in range(done):
        found.started(str(n))
    clock[0] += done * seconds / 2
    for n in range(done):
        found.finished(str(n), "compiled", seconds)
    return found


def test_no_estimate_from_too_few_jobs(clock):
    assert counts(clock, 2, 60).remaining() is None
    assert counts(clock, 4, 0.5).remaining() is None
    assert counts(clock, 10, 60).remaining() is None


def test_estimate_from_the_jobs_so_far(clock):
    # 4 of 10 in 8 s.
    assert counts(clock, 4, 4).remaining() == pytest.approx(12)


SCRIPT = r"""
import sys
from cuda_ext.builder.scheduler.progress import progress_for
progress = progress_for(sys.stdout, print)
progress.message("p.kernels: with nvrtc 13.5\x1b[2J")
progress.plan(4)
try:
    progress.finished("device/old.cu sm_90", "cached", 0)
    progress.started("device/" + "very_" * 30 + ".cu sm_90")
    progress.started("device/späße.cu sm_90")
    sys.stdin.readline()  # once it is drawn
    progress.finished("device/späße.cu sm_90", "compiled", 0.4)
    progress.message("device/a.cu:1: warning: kept")
    progress.finished("device/bad.cu sm_90", "failed", 0.1)
    progress.finished("device/" + "very_" * 30 + ".cu sm_90", "compiled", 0.1)
finally:
    progress.close()
"""


def on_a_terminal(key: bytes) -> tuple[int, list[str]]:
    """Run the script on a pseudo-terminal of 100 columns; return the exit status and the lines.

    When a long name is in the output, `key` is pressed.
    """
    pty = pytest.importorskip("pty", reason="needs pseudo-terminals")
    import fcntl
    import struct
    import termios

    terminal, inner = pty.openpty()
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 30, 100, 0, 0))
    modes = termios.tcgetattr(inner)
    modes[3] &= ~termios.ECHO
    termios.tcsetattr(inner, termios.TCSANOW, modes)
    environment = {k: v for k, v in os.environ.items() if k not in ("CI", "NO_COLOR", "COLUMNS", "LINES")}
    environment |= {"TERM": "xterm-256color", "PYTHONPATH": str(ROOT), "PYTHONUTF8": "1"}
    # The first terminal that a session opens becomes its controlling terminal.
    script = f"import os; os.close(os.open(os.ttyname(0), os.O_RDWR))\n{SCRIPT}"
    output = b""
    with subprocess.Popen(
        [sys.executable, "-c", script],
        stdin=inner,
        stdout=inner,
        stderr=inner,
        env=environment,
        start_new_session=True,
    ) as process:
        os.close(inner)
        while part := _read(terminal):
            output += part
            if key and b"very_" in output:
                os.write(terminal, key)
                key = b""
    os.close(terminal)
    return process.returncode, [line.rstrip() for line in re.split(r"[\r\n]+", output.decode())]


def _read(terminal: int) -> bytes:
    """Return the next output; empty once the other end is closed."""
    try:
        return os.read(terminal, 65536)
    except OSError:
        return b""


def test_a_terminal_shows_a_status_line_and_keeps_messages():
    status, lines = on_a_terminal(b"\n")
    assert status == 0
    assert "[0/4]" in lines
    assert "[1/4]  1 cached  device/" + "very_" * 15 in lines
    assert r"p.kernels: with nvrtc 13.5\x1b[2J" in lines
    assert "device/a.cu:1: warning: kept" in lines
    assert "[3/4] device/bad.cu sm_90 failed" in lines
    assert max(map(len, lines)) < 100
    last = next(line for line in reversed(lines) if line)
    assert re.fullmatch(r"4 compilations: 2 compiled, 1 from the cache, 1 failed, in \d+(\.\d)? m?s", last)


def test_control_c_ends_the_status_line():
    status, lines = on_a_terminal(b"\x03")
    assert status != 0
    assert any(line.startswith("4 compilations: 1 from the cache, 3 not done, in ") for line in lines)


def test_the_status_line_names_one_job_and_estimates_the_rest(clock):
    progress = counts(clock, 4, 4)
    progress.started("device/a.cu sm_90")
    progress.started("device/b.cu sm_90")
    assert progress._status() == "[4/10]  about 0:12 left  device/a.cu sm_90  and 1 more"
