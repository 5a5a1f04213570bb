"""Directories that appear at once, whatever happens to the process that fills them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from cuda_ext.filesystem.atomic_directory import create_directory


def fill(directory: Path) -> None:
    directory.mkdir()
    (directory / "header.h").write_text("complete")


def test_a_directory_is_filled_once(tmp_path: Path) -> None:
    create_directory(tmp_path / "headers", fill)
    create_directory(tmp_path / "headers", lambda _: pytest.fail("it exists"))
    assert [path.name for path in tmp_path.rglob("*")] == ["headers", "header.h"]


def test_a_directory_that_cannot_be_filled_leaves_nothing(tmp_path: Path) -> None:
    def stop(directory: Path) -> None:
        fill(directory)
        raise OSError("no space left")

    with pytest.raises(OSError, match="no space left"):
        create_directory(tmp_path / "headers", stop)
    assert list(tmp_path.iterdir()) == []


def test_of_several_processes_one_fills_a_directory(tmp_path: Path) -> None:
    code = f"""if True:
        import time
        from pathlib import Path
        from cuda_ext.filesystem.atomic_directory import create_directory

        def fill(directory):
            print("filled")
            directory.mkdir()
            time.sleep(0.2)
            (directory / "header.h").write_text("complete")

        create_directory(Path({str(tmp_path / "headers")!r}), fill)
        print((Path({str(tmp_path / "headers")!r}) / "header.h").read_text())
    """
    processes = [
        subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) for _ in range(4)
    ]
    lines = [line for process in processes for line in process.communicate()[0].split()]
    assert sorted(lines) == ["complete"] * 4 + ["filled"]


def test_the_remains_of_a_killed_process_are_removed(tmp_path: Path) -> None:
    code = f"""if True:
        import os, signal
        from pathlib import Path
        from cuda_ext.filesystem.atomic_directory import create_directory

        def fill(directory):
            directory.mkdir()
            os.kill(os.getpid(), signal.SIGKILL)

        create_directory(Path({str(tmp_path / "headers")!r}), fill)
    """
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode != 0
    assert len(list(tmp_path.iterdir())) == 1
    create_directory(tmp_path / "headers", fill)
    assert [path.name for path in tmp_path.iterdir()] == ["headers"]
