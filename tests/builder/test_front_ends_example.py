"""The example with kernels of several front-ends: one package has them all."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from cuda_ext.facts.manifest import loads
from cuda_ext.toolchain.front_ends.cutile import CuTile
from cuda_ext.toolchain.front_ends.triton import Triton
from tests.fixtures.projects import build

pytest.importorskip("triton", reason="Triton runs under Linux only")
pytest.importorskip("cuda.tile", reason="cuTile runs under Linux and Windows only")

EXAMPLE = Path(__file__).parents[2] / "examples" / "front_ends"


@pytest.mark.slow
def test_one_package_has_the_kernels_of_all_front_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = shutil.copytree(EXAMPLE, tmp_path / "example")
    monkeypatch.setenv("CUDAARCHS", "90-real")
    files = build(root)["front_ends.kernels"].files
    manifest = loads(files["manifest.json"], "example")
    cutile, triton = (each.version for each in (CuTile(), Triton()))
    assert manifest.compilers == f"nvrtc {manifest.version}, Triton {triton}, cuTile {cutile}"
    names = {kernel.expression.partition("<")[0] for kernel in manifest.named_kernels}
    own = {"axpy", "ct_matmul", "ct_softmax", "simt::softmax", "tile::axpy", "tile::matmul", "transpose"}
    assert names == own | {"attention", "layer_norm", "matmul", "matmul_tma", "softmax"}
    # Each of Triton's and cuTile's is there for divisible arguments and for all others. There are two
    # configurations of matmul.
    conditions = {variants.name: len(variants.candidates) for variants in manifest.variants}
    assert conditions.pop("matmul<fp16>") == conditions.pop("matmul<fp32>") == 4
    assert len(conditions) == 15
    assert set(conditions.values()) == {2}
