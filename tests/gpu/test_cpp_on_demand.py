"""Compilation on demand from C++, on a GPU: kernels are compiled here, once for all processes."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import cuda_ext
from cuda_ext.runtime.driver.driver import Device, open_driver
from cuda_ext.toolchain.cuda_packages import library_directories
from tests.fixtures.cpp_modules import INCLUDE, LOADER, ON_DEMAND, write_cpp
from tests.fixtures.loader import CHECKOUT
from tests.fixtures.projects import build, write_project
from tests.include.test_cpp_loader import compiled

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not cuda_ext.gpu_available(), reason="there is no GPU that can be used"),
    pytest.mark.host_compiler,
    pytest.mark.skipif(shutil.which("g++") is None, reason="takes a C++ compiler"),
    pytest.mark.skipif(
        not any(d.is_relative_to(sys.prefix) for d in map(Path, library_directories(13))),
        reason="takes NVRTC 13 from the registry, in this environment",
    ),
]

AXPY = """
template <class T> __global__ void axpy(int n, T a, const T* x, T* y) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] += a * x[i];
}
"""


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A program with ``axpy<float>`` for a GPU that is not this one."""
    root = tmp_path_factory.mktemp("on_demand_gpu")
    other = 75 if first_gpu().capability >= 80 else 80
    table = (
        f'[tool.cuda_ext]\narchitectures = ["sm_{other}"]\n[tool.cuda_ext.modules."p.kernels"]\n'
        'instantiate = ["axpy<float>"]\n'
    )
    (package,) = build(write_project(root / "project", table, {"device/axpy.cu": AXPY})).values()
    module = write_cpp(package, root, jit=True)
    package.write(root / "package")
    sources = CHECKOUT / "tests" / "cpp" / "on_demand_gpu.cpp", LOADER, ON_DEMAND, root / module.source
    where = f"-I{INCLUDE}", f"-I{root / 'include'}"
    compiled("-std=c++17", "-O1", *where, *sources, "-o", root / "program", "-ldl", "-pthread")
    return root / "program"


def first_gpu() -> Device:
    return open_driver().device(0)


def run(program: Path, type_: str, cache: Path, **variables: str) -> tuple[int, list[str]]:
    environment = {"CUDA_EXT_CACHE": str(cache), "VIRTUAL_ENV": sys.prefix, **variables}
    done = subprocess.run(
        [program, type_],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.stderr == ""
    return done.returncode, done.stdout.splitlines()


@pytest.mark.parametrize("type_", ["float", "double"])
def test_the_sums_equal_those_of_numpy_and_the_second_process_compiles_nothing(
    program: Path, tmp_path: Path, type_: str
) -> None:
    """One has an image for another GPU, the other has no image."""
    expected = np.arange(1000) * 5.0
    for nvrtc in "nvrtc", "no nvrtc":
        code, (sums, opened) = run(program, type_, tmp_path / "cache")
        assert code == 0
        assert np.array_equal(np.array(sums.split(), float), expected)
        assert opened == nvrtc


@pytest.mark.parametrize("type_", ["float", "double"])
def test_without_compilation_on_demand_there_is_no_image(program: Path, tmp_path: Path, type_: str) -> None:
    code, (message,) = run(program, type_, tmp_path / "cache", CUDA_EXT_JIT="0")
    assert code == 1
    assert "jit: turned off by CUDA_EXT_JIT=0; " in message
