"""Pipes, devices and sockets in the place of files are refused without being opened."""

from __future__ import annotations

import os
import socket
import subprocess
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
        with pytest.raises(OSError, match=f"it is a {kind}, not a regular file"):
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
    assert f"{where}: it is a {kind}, not a regular file; do not include it" in refusal(root)
    KINDS[kind](root / "device" / "a.cu")
    assert f"device/a.cu: cannot be read: it is a {kind}, not a regular file" in refusal(root)


@pytest.mark.parametrize(
    "name", ["nvrtc-headers-13.5/cuda_ext.list", "objects/total", "objects/tmp", "objects"]
)
def test_a_pipe_in_the_cache_is_a_miss(tmp_path: Path, name: str, empty_cache: Path) -> None:
    path = empty_cache / name
    if path.parent.name.startswith("nvrtc") and not path.exists():
        pytest.skip("this NVRTC contains no headers")
    path.parent.mkdir(exist_ok=True, mode=0o700)
    path.unlink(missing_ok=True)
    os.mkfifo(path)
    code = """
import cuda_ext
print(cuda_ext.compile("#include <cuda_fp16.h>\\n__global__ void k(__half* x) {}", architectures=["sm_90"]))
"""
    ended = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code], capture_output=True, text=True, timeout=300
    )
    assert ended.stdout == "<kernels of kernels: k>\n"
