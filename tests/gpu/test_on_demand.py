"""Compilation on demand on a real GPU: kernels compute, and each is compiled once."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

import cuda_ext
from cuda_ext.builder.project import Project
from cuda_ext.builder.session import build_project
from tests.fixtures.loader import CHECKOUT
from tests.runtime.jit.test_on_demand import compilations

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not cuda_ext.gpu_available(), reason="there is no GPU that can be used"),
]

EXAMPLE = CHECKOUT / "example_project"
LISTEN = (
    "import logging, sys\nlogging.basicConfig(stream=sys.stdout, format='%(message)s', level=logging.INFO)\n"
)
Run = Callable[..., str]


@pytest.fixture(scope="module")
def example(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The example, built for one architecture that this GPU does not run."""
    root = tmp_path_factory.mktemp("example") / "example_project"
    shutil.copytree(EXAMPLE, root, ignore=shutil.ignore_patterns("kernels", "build", "*.egg-info"))
    project = Project.load(root)
    assert project is not None
    for package in build_project(project, environ={**os.environ, "CUDAARCHS": "80-real"}):
        package.write(root.joinpath("src", *package.name.split(".")))
    return root / "src"


@pytest.fixture
def run(example: Path, empty_cache: Path) -> Run:
    """Runs Python code that can import the example and logs compilations."""

    def run(code: str) -> str:
        environ = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, (example, CHECKOUT)))}
        command = [sys.executable, "-c", LISTEN + code]
        done = subprocess.run(command, env=environ, capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    return run


DEMONSTRATION = """
import runpy
sys.argv = ["example_project"]
runpy.run_module("example_project", run_name="__main__")
"""


def test_every_kernel_of_the_example_first_cold_then_from_the_cache(run: Run) -> None:
    for state in ("cold", "warm"):
        began = time.perf_counter()
        output = run(DEMONSTRATION)
        print(f"\nall kernels of the example, {state}: {time.perf_counter() - began:.2f} s")
        results = output.partition("against numpy")[2]
        assert " ok " in results
        assert "WRONG" not in results
        compiled = re.findall(r"^example_project\.\w+: compiled .*$", output, re.MULTILINE)
        print("\n".join(compiled))
        assert bool(compiled) == (state == "cold")


def test_an_instantiation_on_demand_computes_like_numpy(run: Run) -> None:
    code = """
import numpy as np
from example_project import kernels
n = 100_000
x, y = (np.random.default_rng(seed).integers(0, 1000, n, dtype=np.int32) for seed in (1, 2))
expected = 3 * x + y
kernels.axpy["int"](n, 3, x, y, threads=n)
print((y == expected).all())
"""
    compiled, result = run(code).splitlines()
    assert result == "True"
    assert re.fullmatch(r"axpy<int> for sm_\d+", compilations([compiled])[0])
    assert run(code) == "True\n"


def test_of_64_processes_one_compiles_each_kernel(example: Path, empty_cache: Path) -> None:
    code = LISTEN + (
        "from example_project import kernels\n"
        "for type_ in ('int', 'short'):\n"
        "    kernels.axpy[type_](0, 1, None, None, grid=1, block=1)\n"
    )
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, (example, CHECKOUT)))}
    processes = [
        subprocess.Popen([sys.executable, "-c", code], env=environ, stdout=subprocess.PIPE, text=True)
        for _ in range(64)
    ]
    lines = [line for process in processes for line in process.communicate(timeout=300)[0].splitlines()]
    assert all(process.returncode == 0 for process in processes)
    assert sorted(line.partition(" for ")[0] for line in lines) == [
        "example_project.kernels: compiled axpy<int>",
        "example_project.kernels: compiled axpy<short>",
    ]


@pytest.mark.parametrize("instantiate", [["fill<float>"], []], ids=["listed", "not listed"])
def test_a_compiled_string_launches(empty_cache: Path, instantiate: list[str]) -> None:
    numpy = pytest.importorskip("numpy")
    source = "template <class T> __global__ void fill(T* x, T value) { x[threadIdx.x] = value; }"
    module = cuda_ext.compile(source, instantiate=instantiate)
    x, y = numpy.zeros(32, "f4"), numpy.zeros(32, "i8")
    module.fill["float"](x, 2.5, grid=1, block=32)
    module.fill["long long"](y, 7, grid=1, block=32)
    assert (x == 2.5).all()
    assert (y == 7).all()
