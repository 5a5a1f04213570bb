"""Locks exclude other processes, and end with the process that holds them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from cuda_ext.filesystem.locks import lock

CHECKOUT = Path(__file__).parents[2]
HOLD = """
import sys, time
from pathlib import Path
{before}
from cuda_ext.filesystem.locks import lock
with lock(Path(sys.argv[1]), create=sys.argv[2] == "True") as is_held:
    print(is_held, flush=True)
    {then}
"""
# Windows' locks, made of what this system has.
AS_WINDOWS = """
import fcntl, types
def locking(descriptor, mode, size):
    try:
        fcntl.flock(descriptor, mode)
    except BlockingIOError as error:
        raise PermissionError(*error.args)
sys.modules["msvcrt"] = types.SimpleNamespace(
    locking=locking, LK_NBLCK=fcntl.LOCK_EX | fcntl.LOCK_NB, LK_UNLCK=fcntl.LOCK_UN
)
sys.platform = "win32"
"""


@contextmanager
def holder(path: Path, create: bool = False, before: str = "", then: str = "time.sleep(60)") -> Iterator[int]:
    """Start a process that holds the lock of `path`; yield its id."""
    script = HOLD.format(before=before, then=then)
    with subprocess.Popen(
        [sys.executable, "-c", script, str(path), str(create)],
        env={**os.environ, "PYTHONPATH": str(CHECKOUT), "TMPDIR": str(path.parent)},
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "True\n"
        try:
            yield process.pid
        finally:
            process.kill()


@pytest.mark.skipif(sys.platform == "win32", reason="Windows locks another file")
@pytest.mark.parametrize("kind", ["directory", "file", "created"])
def test_one_process_at_a_time(tmp_path: Path, kind: str) -> None:
    path = tmp_path / kind
    path.mkdir() if kind == "directory" else path.touch() if kind == "file" else None
    create = kind == "created"
    with holder(path, create) as process:
        with lock(path, create=create, patience=0.1) as is_held:
            assert not is_held
        os.kill(process, signal.SIGKILL)
        with lock(path, create=create, patience=60) as is_held:
            assert is_held
    with lock(path, create=create, patience=0) as is_held:
        assert is_held


def test_a_waiting_process_continues_as_soon_as_the_lock_is_free(tmp_path: Path) -> None:
    with holder(tmp_path, then="time.sleep(1)"), lock(tmp_path) as is_held:
        assert is_held


def test_a_file_that_cannot_be_opened_is_not_locked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with lock(tmp_path / "missing") as is_held:
        assert not is_held
    assert list(tmp_path.iterdir()) == []
    monkeypatch.setitem(sys.modules, "fcntl", None)
    with lock(tmp_path) as is_held:
        assert not is_held


@pytest.mark.skipif(not hasattr(os, "fork"), reason="processes are forked here")
def test_a_forked_child_does_not_keep_a_lock(tmp_path: Path) -> None:
    fork = "if not os.fork(): time.sleep(60)"
    with holder(tmp_path, before="import os", then=fork) as process:
        began = time.monotonic()
        with lock(tmp_path, patience=120) as is_held:
            assert is_held
        assert time.monotonic() - began < 30
        os.kill(process, 0)  # it has not been waited for


@pytest.mark.skipif(sys.platform == "win32", reason="this imitates Windows")
def test_windows_locks_a_file_of_the_user_instead(tmp_path: Path) -> None:
    path = tmp_path / "locked"
    path.mkdir()
    with holder(path, before=AS_WINDOWS) as process:
        (file,) = (each for each in tmp_path.iterdir() if each != path)
        assert file.match("cuda_ext-*.lock")
        environ = {**os.environ, "PYTHONPATH": str(CHECKOUT), "TMPDIR": str(tmp_path)}

        def other(patience: float) -> str:
            script = HOLD.format(before=AS_WINDOWS, then="").replace("create=", f"{patience=}, create=")
            command = [sys.executable, "-c", script, str(path), "False"]
            done = subprocess.run(command, env=environ, capture_output=True, text=True, check=True)
            return done.stdout

        assert other(patience=0.1) == "False\n"
        os.kill(process, signal.SIGKILL)
        assert other(patience=60) == "True\n"
    assert list(path.iterdir()) == []
