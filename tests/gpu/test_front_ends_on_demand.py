"""Functions of Triton and cuTile that are compiled on demand give the right results."""

from __future__ import annotations

import importlib
import sys
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import cuda_ext
from tests.builder import test_cutile_kernels, test_python_on_demand
from tests.fixtures.projects import build, write_importable, write_project

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not cuda_ext.gpu_available(), reason="there is no GPU that can be used"),
]
torch: Any = pytest.importorskip("torch")


def kernels_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, table: str, files: dict[str, str]) -> Any:
    root = write_project(tmp_path / "project", table, files)
    write_importable(build(root)["p.kernels"], tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    for name in ("p", "p.kernels"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    return importlib.import_module("p.kernels")


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_triton(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, empty_cache: Path, dtype: str) -> None:
    pytest.importorskip("triton")
    table = test_python_on_demand.TABLE.format(architecture=80)  # for another GPU
    kernels = kernels_of(tmp_path, monkeypatch, table, test_python_on_demand.FILES)
    for size, block, offset in ((1000, 256, 0), (1024, 256, 0), (1, 128, 0), (999, 512, 1)):
        x = torch.randn(size + offset, device="cuda").to(getattr(torch, dtype))[offset:]
        for _ in range(2):
            out = torch.zeros_like(x)
            grid = lambda given: (-(-given["n"] // given["BLOCK"]),)  # noqa: E731 - as in Triton
            kernels.scale[grid](out, x, size, 2.0, BLOCK=block, num_warps=4)
            assert torch.equal(out, x * 4)


def assert_close(found: Any, wanted: Any, tolerance: float) -> None:
    torch.testing.assert_close(found.float(), wanted.float(), rtol=tolerance, atol=tolerance)


def test_cutile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, empty_cache: Path) -> None:
    pytest.importorskip("cuda.tile")
    files = {"device/cutile_kernels.py": test_cutile_kernels.SOURCE.read_text(), "p/__init__.py": ""}
    kernels = kernels_of(tmp_path, monkeypatch, test_cutile_kernels.TABLE, files)
    for dtype, tolerance in ((torch.float16, 2e-3), (torch.bfloat16, 2e-2)):
        x, y, q, k, v = torch.randn(5, 2, 256, 64, device="cuda").to(dtype)
        weight, bias = torch.randn(2, 64, device="cuda").to(dtype)
        rows, out, square = x[0], torch.empty_like(x[0]), torch.empty(256, 256, device="cuda", dtype=dtype)
        close = partial(assert_close, tolerance=tolerance)
        turned = torch.empty(64, 256, device="cuda", dtype=dtype)
        kernels.transpose[4, 1](rows, turned, 64, 64)
        close(turned, rows.T)
        kernels.softmax[256](out, rows, SIZE=64)
        close(out, rows.float().softmax(1))
        kernels.layer_norm[256](out, rows, weight, bias, 64)
        close(out, torch.nn.functional.layer_norm(rows.float(), (64,), weight.float(), bias.float()))
        kernels.matmul[2, 2](rows, y[0].T.contiguous(), square, 128, 128, 64)
        close(square / 8, (rows.float() @ y[0].float().T) / 8)
        result = torch.empty_like(q)
        kernels.attention[4, 2](result, q, k, v, 0.125, 64, 64, 64)
        close(result, torch.nn.functional.scaled_dot_product_attention(q.float(), k.float(), v.float()))
