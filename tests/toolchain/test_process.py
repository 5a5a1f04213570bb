"""Forks as worker processes: in a process of one thread, which pytest's may not be."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
BEGIN = """
import os, signal, sys, threading, time
from cuda_ext.toolchain import process

def echo(requests, answers):
    while line := requests.readline():
        answers.write(line.upper())
        answers.flush()
    os._exit(7)
"""


def output(script: str) -> list[str]:
    command = [sys.executable, "-c", BEGIN + script]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines()


pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="/proc tells how many threads there are")


def test_a_process_forks_while_it_has_one_thread():
    script = "print(process.can_fork()); threading.Thread(target=time.sleep, args=[1]).start()\n"
    assert output(f"{script}print(process.can_fork())") == ["True", "False"]


def test_a_fork_answers_and_ends_with_its_input_although_others_live():
    script = """
forks = [process.Fork(echo) for _ in range(3)]
for fork in forks:
    fork.stdin.write(b"hello\\n")
    fork.stdin.flush()
    print(fork.stdout.readline())
begin = time.monotonic()
print([process.end(fork) for fork in forks])
print(time.monotonic() - begin < 5)
"""
    assert output(script) == ["b'HELLO\\n'"] * 3 + ["[7, 7, 7]", "True"]


def test_forks_end_with_the_process_that_made_them(tmp_path):
    marker = tmp_path / "ended"
    script = f"""
def wait(requests, answers):
    requests.read()
    open({str(marker)!r}, "a").write("x")
    os._exit(0)
forks = [process.Fork(wait) for _ in range(2)]
os.kill(os.getpid(), signal.SIGKILL)
"""
    command = [sys.executable, "-c", BEGIN + script]
    # The output ends when the last process that has it ends.
    subprocess.run(command, cwd=ROOT, capture_output=True, timeout=300)
    assert marker.read_text() == "xx"


def test_a_fork_that_fails_ends_with_a_traceback_of_its_own():
    script = """
def fail(requests, answers):
    raise ValueError("in the fork")
print(process.end(process.Fork(fail)))
"""
    command = [sys.executable, "-c", BEGIN + script]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    assert ended.stdout == "1\n"
    assert "ValueError: in the fork" in ended.stderr


@pytest.mark.parametrize(
    "cause", ["signal.signal(signal.SIGCHLD, signal.SIG_IGN)", "killed = True"], ids=["ignored", "reaped"]
)
def test_a_fork_that_other_code_has_waited_for_has_ended(cause):
    script = f"""
killed = False
{cause}
fork = process.Fork(echo)
if killed:
    os.kill(fork.pid, signal.SIGKILL)
    os.waitpid(-1, 0)
    fork.kill()
print(process.end(fork), process.end(fork), fork.returncode)
"""
    assert output(script) == ["0 0 0"]


@pytest.mark.parametrize("closed", ["<&-", ">&-", "<&- >&-", "<&- 2>&-", "<&- >&- 2>&-"])
def test_forks_answer_although_standard_streams_are_closed(tmp_path, closed):
    answers = tmp_path / "answers"
    script = f"""
forks = [process.Fork(echo) for _ in range(2)]
with open({str(answers)!r}, "wb") as answers:
    for fork in forks:
        fork.stdin.write(b"hello\\n")
        fork.stdin.flush()
        answers.write(fork.stdout.readline())
    answers.write(b"%d %d" % tuple(process.end(fork) for fork in forks))
"""
    command = ["sh", "-c", f'exec "$0" -c "$1" {closed}', sys.executable, BEGIN + script]
    subprocess.run(command, cwd=ROOT, timeout=300, check=True)
    assert answers.read_text() == "HELLO\nHELLO\n7 7"


def test_a_signal_interrupts_after_what_it_must_not_interrupt():
    script = """
def handle(*_):
    raise InterruptedError

signal.signal(signal.SIGTERM, handle)
try:
    with process.signals_blocked():
        signal.raise_signal(signal.SIGTERM)
        fork = process.Fork(echo)
        print("complete")
except InterruptedError:
    print("interrupted", process.end(fork))
"""
    assert output(script) == ["complete", "interrupted 7"]
