"""A file of launches gives the same bits with Triton's JIT and with a package: its import alone changes."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

import pytest

import cuda_ext
from tests.builder.test_derived_constants import BETWEEN, FILES, ROWS, STRIDED, table
from tests.fixtures.projects import build, write_importable, write_project

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not cuda_ext.gpu_available(), reason="there is no GPU that can be used"),
]
torch: Any = pytest.importorskip("torch")
triton: Any = pytest.importorskip("triton")

LAUNCHES = """
import torch
import triton
from {module} import between, rows, strided

def run():
    torch.manual_seed(0)
    x = torch.randn(64, 256, device="cuda")
    for n in (50, 64, 100, 192, 256):
        out = torch.zeros_like(x[0])
        for m in range(64):
            block, even = triton.next_power_of_2(n), n % 64 == 0
            rows[(1,)](out, x[m:], x.stride(0), n, BLOCK=block, EVEN=even, num_warps=4)
            yield out.clone()
    out = torch.zeros(64, device="cuda")
    for view, bias in ((x[0], None), (x[:, 0], None), (x[0, :64], x[1]), (x[:, 1], x[1])):
        strided[lambda meta: (triton.cdiv(60, meta["BLOCK"]),)](out, view, 60, view.stride(0), bias, 64)
        yield out.clone()
    between[(1,)](out, 64, x, 60)
    yield out.clone()
    between[(1,)](out, 64, x=x, n=60, factor=2.0)
    yield out.clone()
    between[(triton.cdiv(0, 64),)](out, 64, x, 0)
    yield out.clone()
"""


def test_launches_of_a_file_are_those_of_triton(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    items = f'{{ kernel = "{ROWS}", BLOCK = [64, 128, 256] }}', f'"{STRIDED}"', f'"{BETWEEN}"'
    root = write_project(tmp_path / "project", table(*items).replace('"sm_90"', '"native"'), FILES)
    write_importable(build(root)["p.kernels"], tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    for name in ("p", "p.kernels"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    (tmp_path / "jit_functions.py").write_text(FILES["device/rows.py"])
    for name, module in {"before": "jit_functions", "after": "p.kernels"}.items():
        (tmp_path / f"launches_{name}.py").write_text(LAUNCHES.replace("{module}", module))
    before, after = (importlib.import_module(f"launches_{name}") for name in ("before", "after"))
    compared = [torch.equal(*pair) for pair in zip(before.run(), after.run(), strict=True)]
    assert all(compared), compared
    assert len(compared) == 5 * 64 + 7
