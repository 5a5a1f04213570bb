"""NVRTC's own headers in the cache may vanish or be damaged at any time: they are unpacked again."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from cuda_ext.toolchain import nvrtc
from cuda_ext.toolchain.cuda_libraries import open_library
from cuda_ext.toolchain.nvrtc import UNPACK, Nvrtc
from cuda_ext.toolchain.programs.bundled_headers import (
    find_damage,
    is_for_now,
    unpack_headers,
    unpacked_headers,
)

VERSION = "13.99"


def unpack(directory: Path) -> None:
    """As NVRTC does."""
    for name in ("cuda.h", "cccl/cub/version.cuh"):
        (directory / name).parent.mkdir(parents=True, exist_ok=True)
        (directory / name).write_text("// a header\n")


@pytest.fixture
def headers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("CUDA_EXT_CACHE", str(tmp_path / "cache"))
    return unpack_headers(VERSION, unpack)


def empty(directory: Path) -> None:
    for path in directory.rglob("*.*"):
        path.unlink()


DAMAGE: dict[str, Callable[[Path], object]] = {
    "all files are gone": empty,
    "a file is gone": lambda headers: (headers / "cuda.h").unlink(),
    "a file deep inside is gone": lambda headers: (headers / "cccl" / "cub" / "version.cuh").unlink(),
    "a directory is gone": lambda headers: shutil.rmtree(headers / "cccl"),
    "a file is another": lambda headers: (headers / "cuda.h").replace(headers / "old.h"),
    "there is no list": lambda headers: (headers / "cuda_ext.list").unlink(),
    "the list is damaged": lambda headers: (headers / "cuda_ext.list").write_bytes(b"\xff\0 1\nd\n"),
    "the list is empty": lambda headers: os.truncate(headers / "cuda_ext.list", 0),
    "others may write": lambda headers: headers.chmod(0o777),
}
IN_FILES: dict[str, Callable[[Path], object]] = {
    "a file is cut": lambda headers: os.truncate(headers / "cuda.h", 0),
    "a byte is another": lambda headers: (headers / "cuda.h").write_text("/* a header"),
    "a file is a directory": lambda headers: ((headers / "cuda.h").unlink(), (headers / "cuda.h").mkdir()),
}


@pytest.mark.parametrize("damage", DAMAGE | IN_FILES)
def test_damaged_headers_are_unpacked_again(headers: Path, damage: str) -> None:
    assert unpacked_headers(VERSION, in_files=True) == headers
    (DAMAGE | IN_FILES)[damage](headers)
    assert unpacked_headers(VERSION, in_files=True) is None
    assert unpack_headers(VERSION, unpack) == headers
    assert unpacked_headers(VERSION, in_files=True) == headers
    assert [path.name for path in headers.parent.iterdir()] == [headers.name]


@pytest.mark.parametrize("damage", DAMAGE)
def test_what_vanishes_is_seen_without_a_look_at_each_file(headers: Path, damage: str) -> None:
    DAMAGE[damage](headers)
    assert find_damage(headers, in_files=False)


@pytest.mark.skipif(sys.platform == "win32", reason="links need rights there")
@pytest.mark.parametrize("kind", ["file", "link"])
def test_what_is_not_ours_stays_in_their_place(headers: Path, tmp_path: Path, kind: str) -> None:
    shutil.rmtree(headers)
    (tmp_path / "mine").mkdir()
    if kind == "file":
        headers.write_text("mine")
    else:
        headers.symlink_to(tmp_path / "mine")
    used = unpack_headers(VERSION, unpack)
    assert is_for_now(used)
    assert find_damage(used, in_files=True) == ""
    assert unpack_headers(VERSION, unpack) == used
    (used / "cuda.h").unlink()
    assert find_damage(unpack_headers(VERSION, unpack), in_files=True) == ""
    assert headers.is_symlink() if kind == "link" else headers.read_text() == "mine"
    assert list((tmp_path / "mine").iterdir()) == []


def test_an_interrupt_does_not_wait_for_nvrtc(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The interpreter handles signals while the main thread waits for another, not while NVRTC runs in it."""
    threads: list[threading.Thread] = []

    def unpack_natively(*_: object) -> int:
        threads.append(threading.current_thread())
        return 0

    monkeypatch.setattr(nvrtc, "open_library", lambda _: {UNPACK: unpack_natively})
    Nvrtc._unpack_headers(object.__new__(Nvrtc), tmp_path)
    assert threads
    assert threading.main_thread() not in threads


def test_a_copy_without_fractions_of_seconds_is_used(headers: Path) -> None:
    for path in (headers, *headers.rglob("*")):
        os.utime(path, (0, int(path.stat().st_mtime)))
    assert find_damage(headers, in_files=True) == ""


@pytest.mark.skipif(not hasattr(open_library("nvrtc"), UNPACK), reason="this NVRTC contains no headers")
def test_headers_that_vanish_while_a_process_uses_them_are_unpacked_again(empty_cache: Path) -> None:
    headers = unpacked_headers(Nvrtc().version, in_files=True)
    assert headers is not None
    assert headers.is_relative_to(empty_cache)
    code = f"""
import cuda_ext, os
for number in range(2):
    cuda_ext.compile("#include <cuda_fp16.h>\\n__global__ void k%d() {{}}" % number, architectures=["sm_90"])
    os.unlink({str(headers / "cuda_fp16.h")!r})
"""
    subprocess.run([sys.executable, "-c", code], check=True)
