"""Sources of one basename in several directories, as in trees that were copied into a project."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cuda_ext.builder.sources.compilation_database import list_commands
from tests.fixtures.projects import KERNELS, SCALE, build, load, write_project

# Each has a static function and a static variable of the same name as the others.
TEXT = """namespace {0} {{
static __device__ int total = {1};
static __device__ __noinline__ int add(int i) {{ return atomicAdd(&total, i); }}
__global__ void forward(int* x) {{ *x = add({1}); }}
}}
"""
NAMES = ("device/forward.cu", "third_party/one/forward.cu", "third_party/two/forward.cu")
FILES = {
    **{name: TEXT.format(f"n{number}", number) for number, name in enumerate(NAMES)},
    "third_party/two/backward.cu": SCALE,
}
TABLE = f"""{KERNELS}sources = ["device/*.cu", "third_party/**/*.cu"]
instantiate = ["scale<float>", "scale<int>"]
"""


@pytest.mark.parametrize(
    ("key", "files"),
    [
        ("", {"device.forward.fatbin", "one.forward.fatbin", "two.forward.fatbin", "backward.fatbin"}),
        (
            'emit = "cubin"',
            {f"{name}.sm_90.cubin" for name in ("device.forward", "one.forward", "two.forward", "backward")},
        ),
        (
            "split-instantiations = true",
            {f"{name}.forward.fatbin" for name in ("device", "one", "two")}
            | {f"backward-{number}.fatbin" for number in (0, 1)},
        ),
        ("link = true", {"kernels.fatbin"}),
    ],
)
def test_files_are_named_after_the_directories_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, key: str, files: set[str]
) -> None:
    monkeypatch.setenv("CUDA_EXT_REPORT", str(tmp_path / "report.html"))
    package = build(write_project(tmp_path, f"{TABLE}{key}\n", FILES))["p.kernels"]
    assert files == {name for name in package.files if name.endswith((".fatbin", ".cubin"))}
    kernels = {k["expression"]: k["unit"] for k in json.loads(package.files["manifest.json"])["kernels"]}
    assert set(kernels) == {"n0::forward", "n1::forward", "n2::forward", "scale<float>", "scale<int>"}


def test_each_source_has_its_command(tmp_path: Path) -> None:
    commands = list_commands(load(write_project(tmp_path, TABLE, FILES)))
    assert [command["file"] for command in commands] == sorted(FILES)
