"""``split-instantiations``: each instantiation of a source is compiled separately, into its own fatbin."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.fixtures.projects import SCALE, SM_90, build, refusal, write_project

TABLE = f"""{SM_90}[tool.cuda_ext.modules."p.kernels"]
instantiate = ["scale<float>", "scale<double>", "scale<int>"]
split-instantiations = true
"""
PLAIN = 'extern "C" __global__ void fill(float* x) { x[threadIdx.x] = 1.0f; }\n'


# LTO-IR shows no names: the signatures alone tell what is in a part.
@pytest.mark.parametrize("architecture", ["sm_90", "lto_90"])
def test_each_instantiation_has_a_fatbin(tmp_path: Path, architecture: str) -> None:
    table = TABLE.replace("sm_90", architecture)
    files = build(write_project(tmp_path, table, {"device/scale.cu": SCALE + PLAIN}))["p.kernels"].files
    assert {f"scale-{i}.fatbin" for i in range(3)} <= files.keys()
    kernels = json.loads(files["manifest.json"])["kernels"]
    # What is no template is in the first.
    assert [(k["expression"], k["unit"]) for k in kernels] == [
        ("fill", 0),
        ("scale<float>", 0),
        ("scale<double>", 1),
        ("scale<int>", 2),
    ]


def test_a_source_whose_kernels_share_a_variable_is_refused(tmp_path: Path) -> None:
    text = "__device__ int count;\n" + SCALE.replace("x[threadIdx.x] *=", "++count; x[threadIdx.x] *=")
    message = refusal(write_project(tmp_path, TABLE, {"device/scale.cu": text}))
    assert "device/scale.cu: its kernels share the variable 'count'" in message
    assert "split-instantiations" in message


def test_one_instantiation_is_unchanged(tmp_path: Path) -> None:
    table = TABLE.replace('"scale<float>", "scale<double>", "scale<int>"', '"scale<float>"')
    files = build(write_project(tmp_path, table, {"device/scale.cu": SCALE}))["p.kernels"].files
    assert "scale.fatbin" in files
