"""NVRTC's own headers in the cache may vanish at any time: they are unpacked again."""

from __future__ import annotations

import shutil
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from cuda_ext.toolchain.nvrtc import Nvrtc
from cuda_ext.toolchain.programs import bundled_headers
from cuda_ext.toolchain.programs.bundled_headers import (
    complete_headers,
    count_bundled,
    count_headers,
    is_for_now,
    unpacked_headers,
)

pytestmark = pytest.mark.skipif(not count_bundled(), reason="this NVRTC contains no headers")
MARK = ".nvrtc_headers_version"


@pytest.fixture
def headers(empty_cache: Path) -> Path:
    (link,) = empty_cache.glob("nvrtc-headers-*")
    unpacked = link.resolve()
    link.unlink()
    shutil.copytree(unpacked, link)
    found = complete_headers(Nvrtc().version)
    assert found is not None
    assert found.parent == empty_cache
    return found


DAMAGE: dict[str, Callable[[Path], object]] = {
    "all files are gone": shutil.rmtree,
    "a file is gone": lambda headers: (headers / "cuda_fp16.h").unlink(),
    "a directory is gone": lambda headers: shutil.rmtree(headers / "cccl"),
    "they are being unpacked": lambda headers: (headers / MARK).unlink(),
}


@pytest.mark.parametrize(
    "damage", [pytest.param(d, marks=[pytest.mark.slow] * d.startswith("a directory")) for d in DAMAGE]
)
def test_headers_that_vanish_are_unpacked_again(headers: Path, damage: str) -> None:
    DAMAGE[damage](headers)
    assert complete_headers(Nvrtc().version) == headers
    assert unpacked_headers(Nvrtc().version) == headers
    assert count_headers(headers) == count_bundled()


@pytest.mark.skipif(sys.platform == "win32", reason="links need rights there")
def test_what_is_not_ours_stays_in_their_place(headers: Path, tmp_path: Path) -> None:
    shutil.rmtree(headers)
    (tmp_path / "mine").mkdir()
    headers.symlink_to(tmp_path / "mine")
    used = complete_headers(Nvrtc().version)
    assert used is not None
    assert is_for_now(used)
    assert complete_headers(Nvrtc().version) == used
    assert list((tmp_path / "mine").iterdir()) == []


def test_an_interrupt_does_not_wait_for_nvrtc(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The interpreter handles signals while the main thread waits for another, not while NVRTC runs in it."""
    threads: list[threading.Thread] = []

    def unpack_natively(*_: object) -> int:
        threads.append(threading.current_thread())
        return 0

    natively = {"nvrtcInstallBundledHeaders": unpack_natively}
    monkeypatch.setattr(bundled_headers, "open_library", lambda _: natively)
    bundled_headers._unpack(tmp_path)
    assert threads
    assert threading.main_thread() not in threads


def test_headers_that_vanish_while_a_process_uses_them_are_unpacked_again(headers: Path) -> None:
    code = f"""
import cuda_ext, os
for number in range(2):
    cuda_ext.compile("#include <cuda_fp16.h>\\n__global__ void k%d() {{}}" % number, architectures=["sm_90"])
    os.unlink({str(headers / "cuda_fp16.h")!r})
"""
    subprocess.run([sys.executable, "-c", code], check=True)
