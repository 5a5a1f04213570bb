"""Launches of cuTile and CuPy; of modules in all forms: on demand, with structures, as operators."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from cuda_ext.recording.built_launches import compare
from tests.fixtures.projects import build, load, write_importable, write_project
from tests.recording.test_recording import describe, record

pytest.importorskip("triton", reason="Triton runs under Linux only")

TILES = """
import cuda.tile as ct

@ct.kernel
def product(a, b, out, n, M: ct.Constant[int], MODE: ct.Constant[str] = "plain"):
    pass
"""
TILE_PROGRAM = """
import sys
sys.path.insert(0, "device")
import cuda.tile as ct, numpy as np
from tiles import product

x = np.ones((32, 48), "float16")
ct.launch(None, (2, 3, 1), product, (x, x.T, x[:, :40], 1 << 40, 64, "plain"))
"""


def test_cutile_without_a_gpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("cuda.tile", reason="cuTile runs under Linux and Windows only")
    table = '[tool.cuda_ext.modules."p.kernels"]\nsources = ["device/*.py"]\n'
    root = write_project(tmp_path, table, {"device/tiles.py": TILES, "program.py": TILE_PROGRAM})
    monkeypatch.chdir(root)
    launches, _, _ = record(root, "program.py")
    needed = (
        "product(a: f16[?:16, ?:16]:16, b: f16[?:16, ?:16; 1, ?]:16, out: f16[?:16, ?]:16, n: i64, "
        "M=64, MODE='plain')"
    )
    assert [describe(launch) for launch in launches] == [
        f"1 device/tiles.py {needed} [a: float16:16 (32, 48) (48, 1), b: float16:16 (48, 32) (1, 48), "
        "out: float16:16 (32, 40) (48, 1), n = 1099511627776] ['(2, 3, 1)']"
    ]
    ((missing,), _) = compare(load(root), launches)
    assert missing.instantiations == [needed]


CUPY = """
import sys
from tests.fixtures.device_arrays import CupyArray as ndarray

class _Kernel:  # as RawModule makes it
    most_shared = 48 << 10
    def __init__(self, code, name, options=()):
        self.code = code
    def __call__(self, grid, block, args, *, shared_mem=0):
        print("launched", grid, block, self.most_shared)

class RawKernel(_Kernel):
    pass

class RawModule:
    def __init__(self, **keywords):
        self.keywords = keywords
    def get_function(self, name):
        return _Kernel("", name)
"""
CUPY_PROGRAM = """
import cupy, numpy as np
x = cupy.ndarray(np.ones((4, 6)))
cupy.RawKernel("...", "fill")((1,), (32,), (x, np.float32(2)), shared_mem=64)
kernel = cupy.RawModule(code="...").get_function("ns::axpy<double>")
kernel.most_shared = 1
kernel((1, 2), (32, 4), (np.int32(16), x))
print(kernel.code, isinstance(cupy.RawKernel("code", "k"), cupy.RawKernel))
"""


def test_cupy(tmp_path: Path) -> None:
    write_project(tmp_path, files={"device/fill.cu": "", "cupy.py": CUPY})
    path = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
    launches, output, _ = record(tmp_path, "-c", CUPY_PROGRAM, PYTHONPATH=path)
    assert output.startswith("launched (1,) (32,) 49152\nlaunched (1, 2) (32, 4) 1\n True\n")
    assert {(launch.kind, launch.module) for launch in launches} == {("cupy", "")}
    assert [describe(launch).replace(":16 (", " (") for launch in launches] == [
        "1  fill [0: float64 (4, 6) (6, 1), 1 = 2.0] ['(1,)', '(32,)']",
        "1  ns::axpy<double> [0 = 16, 1: float64 (4, 6) (6, 1)] ['(1, 2)', '(32, 4)']",
    ]
    assert launches[0].arguments[1].dtype == "float32"
    assert launches[0].shared == 64


KERNELS = """
struct Inner { int n; float* x; };
struct Params { float by; Inner inner; int sizes[2]; };
template <class T> __global__ void scale(T* x, T by) { x[threadIdx.x] *= by; }
__global__ void shift(Params params) { params.inner.x[threadIdx.x] += params.by; }
"""
FUNCTION = """
import triton
import triton.language as tl

@triton.jit
def twice(out, x, n, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.store(out + at, 2 * tl.load(x + at, mask=at < n), mask=at < n)
"""
TABLE = """
[tool.cuda_ext.modules."p.kernels"]
sources = ["device/*"]
architectures = ["sm_90"]
emit = "cubin"
instantiate = ["scale<float>", "twice(out: *fp32:16, x: *fp32:16, n: i32=1?, BLOCK=64)"]
"""
PROGRAM = """
import numpy as np
from p import kernels
from tests.fixtures.device_arrays import Tensor, import_torch
import_torch()
x, y = Tensor(np.ones(64, "float32")), Tensor(np.ones(64))
kernels.scale["double"](y, 2.0, grid=1, block=64)  # compiled on demand
kernels.scale["float"].torch_op("p::scale", grid=1, block=64).cuda(x, 2.0)
kernels.shift(kernels.Params(by=2, inner={"n": 16, "x": x}, sizes=[1, 2]), grid=1, block=64)
kernels.twice[(2,)](x, x, 60, 64)
kernels.twice[lambda given: given["BLOCK"] // 64](x, x, 1, BLOCK=64)
kernels.twice(y, y, 60, BLOCK=32, grid=1)  # compiled on demand
"""


@pytest.mark.host_compiler
def test_own_modules_in_all_forms(tmp_path: Path, fake_driver: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = write_project(tmp_path / "project", TABLE, {"device/k.cu": KERNELS, "device/twice.py": FUNCTION})
    (tmp_path / "site").mkdir()
    write_importable(build(root)["p.kernels"], tmp_path / "site")
    path = os.pathsep.join([str(tmp_path / "site"), os.environ.get("PYTHONPATH", "")])
    variables = {"LD_LIBRARY_PATH": fake_driver, "FAKE_CUDA_LOG": tmp_path / "log", "PYTHONPATH": path}
    launches, _, errors = record(root, "-c", PROGRAM, **variables)
    assert errors == ""
    x, y = "float32:16 (64,) (1,)", "float64:16 (64,) (1,)"
    assert [describe(launch) for launch in launches] == [
        f"1 device/k.cu scale<double> [x: {y}, by = 2.0] ['(1, 1, 1)', '(64, 1, 1)']",
        f"1 device/k.cu scale<float> [x: {x}, by = 2.0] ['(1, 1, 1)', '(64, 1, 1)']",
        f"1 device/k.cu shift [params.by = 2.0, params.inner.n = 16, params.inner.x: {x}, "
        "params.sizes_0 = 1, params.sizes_1 = 2] ['(1, 1, 1)', '(64, 1, 1)']",
        f"1 device/twice.py twice(out: *fp32:16, x: *fp32:16, n: i32, BLOCK=64) [out: {x}, x: {x}, n = 60] "
        "['(2, 1, 1)', '(128, 1, 1)']",
        f"1 device/twice.py twice(out: *fp32:16, x: *fp32:16, BLOCK=64, n=1) [out: {x}, x: {x}] "
        "['(1, 1, 1)', '(128, 1, 1)']",
        f"1 device/twice.py twice(out: *fp64:16, x: *fp64:16, n: i32, BLOCK=32) [out: {y}, x: {y}, n = 60] "
        "['(1, 1, 1)', '(128, 1, 1)']",
    ]
    (cuda, triton), _ = compare(load(root), launches)
    assert cuda.instantiations == ["scale<double>"]
    assert triton.instantiations == ["twice(out: *fp64:16, x: *fp64:16, n: i32, BLOCK=32)"]
