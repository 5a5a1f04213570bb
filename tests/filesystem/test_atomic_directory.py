"""Directories that appear at once, whatever happens to the process that fills them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from cuda_ext.filesystem.atomic_directory import replace_directory

FILES = {"header.h": b"complete", "inner/header.h": b"complete"}
SCRIPT = """
import os, sys
from pathlib import Path
from cuda_ext.filesystem.atomic_directory import replace_directory

class Slow(dict):
    def items(self):
        for number, item in enumerate(super().items()):
            {between}
            yield item

files = Slow({{str(n): sys.argv[2].encode() for n in range(20)}})
replace_directory(Path(sys.argv[1]), files)
"""


def start(between: str, directory: Path, content: str) -> subprocess.Popen[bytes]:
    script = SCRIPT.format(between=between)
    return subprocess.Popen([sys.executable, "-c", script, str(directory), content])


def names(directory: Path) -> list[str]:
    return sorted(path.relative_to(directory).as_posix() for path in directory.rglob("*"))


def test_a_directory_has_exactly_the_files(tmp_path: Path) -> None:
    for files in FILES, {"other": b""}, FILES:
        replace_directory(tmp_path / "a", files)
        assert {n: (tmp_path / "a" / n).read_bytes() for n in files} == files
        assert {name for name in names(tmp_path / "a") if name != "inner"} == set(files)
    inode = (tmp_path / "a").stat().st_ino
    replace_directory(tmp_path / "a", FILES)
    assert (tmp_path / "a").stat().st_ino == inode, "it was as it should be"
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


def test_a_file_is_not_replaced_and_nothing_lies_outside(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    with pytest.raises(NotADirectoryError):
        replace_directory(tmp_path / "file", FILES)
    with pytest.raises(OSError, match="not a path within it"):
        replace_directory(tmp_path / "a", {"../file": b""})
    assert [path.read_text() for path in tmp_path.iterdir()] == ["mine"]


def test_several_processes_write_one_after_the_other(tmp_path: Path) -> None:
    writers = [start("os.sched_yield()", tmp_path / "a", content) for content in "ab" * 3]
    assert [writer.wait() for writer in writers] == [0] * 6
    assert len({path.read_bytes() for path in (tmp_path / "a").iterdir()}) == 1
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


@pytest.mark.parametrize("before", [{}, FILES], ids=["new", "replaced"])
def test_a_killed_process_leaves_the_old_state(tmp_path: Path, before: dict[str, bytes]) -> None:
    if before:
        replace_directory(tmp_path / "a", before)
    assert start("number < 9 or os.abort()", tmp_path / "a", "half").wait() != 0
    assert (tmp_path / "a").exists() == bool(before)
    assert len(list(tmp_path.iterdir())) == bool(before) + 1
    replace_directory(tmp_path / "a", FILES)
    assert [path.name for path in tmp_path.iterdir()] == ["a"]
