"""``split-instantiations``: the instantiations of a source are compiled separately, or in parts."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cuda_ext.builder.sources.plan import _deal
from tests.fixtures.projects import SCALE, SM_90, build, refusal, write_project

TABLE = f"""{SM_90}[tool.cuda_ext.modules."p.kernels"]
instantiate = ["scale<float>", "scale<double>", "scale<int>"]
split-instantiations = true
"""
PLAIN = 'extern "C" __global__ void fill(float* x) { x[threadIdx.x] = 1.0f; }\n'


# LTO-IR shows no names: the signatures alone tell what is in a part.
@pytest.mark.parametrize(("architecture", "parts"), [("sm_90", "true"), ("lto_90", "9")])
def test_each_instantiation_has_a_fatbin(tmp_path: Path, architecture: str, parts: str) -> None:
    table = TABLE.replace("sm_90", architecture).replace("= true", f"= {parts}")
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


def test_a_number_divides_the_instantiations(tmp_path: Path) -> None:
    names = [f"scale<{each}>" for each in ("float", "double", "int", "long long", "short")]
    table = f"{SM_90}[tool.cuda_ext.modules.'p.kernels']\n"
    packages = {}
    parts = {
        "all": names,
        "0": ["scale<float>", "scale<long long>"],
        "1": ["scale<double>", "scale<int>", "scale<short>"],
    }
    for part, own in parts.items():
        divided = "split-instantiations = 2\n" if part == "all" else ""
        project = write_project(
            tmp_path / part, f"{table}instantiate = {own}\n{divided}", {"device/scale.cu": SCALE + PLAIN}
        )
        packages[part] = build(project)["p.kernels"].files
    files = packages["all"]
    assert {name for name in files if name.endswith(".fatbin")} == {"scale-0.fatbin", "scale-1.fatbin"}
    kernels = json.loads(files["manifest.json"])["kernels"]
    assert sorted((k["unit"], k["expression"]) for k in kernels) == [
        (0, "fill"),
        *((int(part), name) for part in "01" for name in sorted(parts[part])),
    ]
    # A part is what a module of its instantiations has.
    for part in "01":
        assert files[f"scale-{part}.fatbin"] == packages[part]["scale.fatbin"]


@pytest.mark.parametrize("number", [1, 2, 4, 7])
def test_parts_are_of_equal_size_and_one_more_instantiation_changes_one(number: int) -> None:
    names = [f"f<{kind}, {block}>" for kind in "abcdefg" for block in (64, 128, 256, 512)]
    parts = _deal(names, number)
    assert sorted(name for part in parts for name in part) == sorted(names)
    assert max(map(len, parts)) - min(map(len, parts)) <= 1
    more = _deal([*names, "f<h, 64>"], number)
    assert sum(old != new for old, new in zip(parts, more, strict=True)) == 1
    largest = [sum("512" in name for name in part) for part in parts]
    assert max(largest) - min(largest) <= 2


def test_a_source_whose_kernels_share_a_variable_is_refused(tmp_path: Path) -> None:
    text = "__device__ int count;\n" + SCALE.replace("x[threadIdx.x] *=", "++count; x[threadIdx.x] *=")
    message = refusal(write_project(tmp_path, TABLE, {"device/scale.cu": text}))
    assert "device/scale.cu: its kernels share the variable 'count'" in message
    assert "split-instantiations" in message


def test_one_instantiation_is_unchanged(tmp_path: Path) -> None:
    table = TABLE.replace('"scale<float>", "scale<double>", "scale<int>"', '"scale<float>"')
    files = build(write_project(tmp_path, table, {"device/scale.cu": SCALE}))["p.kernels"].files
    assert "scale.fatbin" in files
