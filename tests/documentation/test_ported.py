"""The ported packages of examples/ported: `after` builds, and has the kernels of `before`.

What both compute is compared on a GPU, by ``examples/ported/compare.py``.
"""

from __future__ import annotations

import itertools
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import cuda_ext
from tests.fixtures.environments import CHECKOUT

pytestmark = pytest.mark.xdist_group("documentation")  # their cache has Triton's kernel

PORTED = CHECKOUT / "examples" / "ported"
SIGNATURES = {
    "torch_gelu": [
        f"gelu_{way}<{T}>(long long n, {parameters})".replace("T*", f"{T}*")
        for way, parameters in (
            ("backward", "const T* dy, const T* x, T* dx"),
            ("forward", "const T* x, T* y"),
        )
        for T in ("__half", "double", "float")
    ],
    "torch_conv": [
        f"conv_{way}<{', '.join((T, str(width), *flags))}>({parameters})"
        for way, parameters in (("backward", "ConvGradients g"), ("forward", "ConvParams p"))
        for T in ("__half", "__nv_bfloat16", "float")
        for width in (2, 3, 4)
        for flags in itertools.product(("false", "true"), repeat=3)
    ],
    "torch_scan": [
        f"scan_forward<ScanTraits<{T}, {W}, {size}>>(ScanParams p)"
        for T in ("__half", "float")
        for W in ("complex_t", "float")
        for size in ("128, 16", "256, 16", "64, 8")
    ],
    "cupy_heat": [
        "hottest(int n, const float* x, float* highest)",
        "step<double>(int rows, int columns, const double* from, double* to)",
        "step<float>(int rows, int columns, const float* from, float* to)",
    ],
    "triton_softmax": [
        f"softmax<{name}, BLOCK={block}>({T}* out, {T}* x, int stride, int n_cols)"
        for name, T in (("fp16", "__half"), ("fp32", "float"))
        for block in (1024, 4096)
    ],
}


SLOW = ("torch_conv", "torch_scan")  # hundreds of kernels, and CUB


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] * (name in SLOW)) for name in SIGNATURES]
)
def test_after_builds_with_all_kernels(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if name == "triton_softmax":
        pytest.importorskip("triton")
    project = shutil.copytree(PORTED / name / "after", tmp_path / name)
    monkeypatch.setenv("CUDAARCHS", "90-real")
    subprocess.run([sys.executable, "-m", "cuda_ext", "build", project], check=True)
    (kernels,) = project.glob("src/*/kernels")
    described = cuda_ext.describe(cuda_ext.load(kernels))
    assert sorted(k.signature for k in described.kernels if " if " not in k.expression) == SIGNATURES[name]


@pytest.mark.parametrize("name", SIGNATURES)
def test_kernels_are_those_of_before(name: str) -> None:
    """All but the names of types that one compiler has and the other has not."""
    before = (
        _texts(PORTED / name / "before")
        .replace("int64_t", "long long")
        .replace("def _softmax", "def softmax")
    )
    parts = re.split(r"\n\n+", _texts(PORTED / name / "after" / "device"))
    kernels = [part.strip() for part in parts if "__global__" in part or "@triton.jit" in part]
    assert kernels
    assert [kernel for kernel in kernels if kernel not in before] == []


def _texts(directory: Path) -> str:
    files = (file for file in sorted(directory.rglob("*")) if file.suffix in (".py", ".cu"))
    return "\n".join(file.read_text(encoding="utf-8") for file in files)
