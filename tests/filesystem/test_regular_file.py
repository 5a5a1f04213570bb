"""Pipes, devices and sockets in the place of files are refused."""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from cuda_ext.filesystem.regular_file import digest_file, read_file
from tests.fixtures.projects import SM_90, refusal, write_project

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such files")
TABLE = f'{SM_90}[tool.cuda_ext.modules."p.kernels"]\n'


def bind(path: Path) -> None:
    here = os.open(".", os.O_RDONLY)
    try:
        os.chdir(path.parent)  # names of sockets are short
        with socket.socket(socket.AF_UNIX) as opened:
            opened.bind(path.name)
    finally:
        os.fchdir(here)
        os.close(here)


KINDS: dict[str, Callable[[Path], object]] = {
    "pipe": os.mkfifo,
    "socket": bind,
    "device": lambda path: path.symlink_to("/dev/zero"),
}


@pytest.mark.parametrize("kind", KINDS)
def test_only_regular_files_are_read(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "file"
    KINDS[kind](path)
    for read in (read_file, digest_file):
        with pytest.raises(OSError, match=r"it is not a regular file|No such device"):
            read(str(path))
        with pytest.raises(IsADirectoryError):
            read(str(tmp_path))


def test_a_file_that_is_too_large_is_not_read(tmp_path: Path) -> None:
    with (tmp_path / "large").open("wb") as file:
        file.truncate((2 << 30) + 1)
    with pytest.raises(OSError, match="it is larger than 2 GiB"):
        read_file(str(tmp_path / "large"))


@pytest.mark.parametrize("kind", ["pipe", "socket"])
def test_a_source_or_header_that_is_no_file_is_refused(tmp_path: Path, kind: str) -> None:
    root = write_project(tmp_path / "p", TABLE, {"device/ok.cu": '#include "h.cuh"\n'})
    KINDS[kind](root / "device" / "h.cuh")
    where = root / "device" / "h.cuh"
    assert f"{where}: it is not a regular file; do not include it" in refusal(root)
    KINDS[kind](root / "device" / "a.cu")
    assert "device/a.cu: cannot be read: " in refusal(root)
