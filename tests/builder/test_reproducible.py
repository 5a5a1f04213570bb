"""The same input gives the same bytes: in any directory, from any directory, at any time."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import pytest

from cuda_ext.facts.manifest import loads
from tests.fixtures.projects import FILL, build, write_project

TABLE = """
[tool.cuda_ext]
architectures = ["sm_90", "compute_90"]
[tool.cuda_ext.modules."p.kernels"]
include-dirs = ["include"]
compress = "none"
"""
CHECK = """
__device__ const char* file;
static __device__ void check(float x) { if (!(x > 0)) file = __FILE__; }
"""
LOCAL = """
#include <deep/check.cuh>
namespace { __global__ void hidden(float* x) { check(*x); } }
static __global__ void local(float* x) { check(*x); }
extern "C" __global__ void seen(float* x) { check(*x); }
"""
FILES = {"include/deep/check.cuh": CHECK, "device/local.cu": LOCAL, "device/fill.cu": FILL}

# What was compiled in one place is compiled again in another.
pytestmark = pytest.mark.usefixtures("no_cache")


def built(root: Path, table: str = TABLE) -> Mapping[str, bytes]:
    return build(write_project(root, table, FILES))["p.kernels"].files


@pytest.mark.parametrize("options", ["", "link = true", 'options = ["-lineinfo"]', 'options = ["-G"]'])
def test_two_directories_give_the_same_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: str
) -> None:
    table = f"{TABLE}{options}"
    monkeypatch.chdir(tmp_path)
    one = built(tmp_path / "one", table)
    other = built(tmp_path / "another place ü", table)
    assert one == other


def test_tile_kernels_give_the_same_bytes_in_two_directories(tmp_path: Path) -> None:
    table = TABLE + 'options = ["-lineinfo"]'
    source = "namespace { __tile_global__ void hidden(int* x) { *x = 1; } }\n"
    files = {"device/tile.cu": source, "include/deep/check.cuh": CHECK}
    one, other = (
        build(write_project(tmp_path / place, table, files))["p.kernels"].files
        for place in ("one", "another place ü")
    )
    assert one == other


@pytest.mark.parametrize("elsewhere", ["/", "project", "project/device", "größe"])
def test_two_working_directories_give_the_same_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, elsewhere: str
) -> None:
    assert from_two_working_directories(tmp_path, monkeypatch, elsewhere, TABLE)


def test_line_tables_are_the_same_from_two_working_directories(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = f'{TABLE}options = ["-lineinfo"]'
    assert from_two_working_directories(tmp_path, monkeypatch, "project", table)


def from_two_working_directories(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, elsewhere: str, table: str
) -> bool:
    """Whether a project built from `tmp_path` is the same when built from `elsewhere`."""
    root = tmp_path / "project"
    monkeypatch.chdir(tmp_path)
    one = built(root, table)
    (tmp_path / "größe").mkdir()
    monkeypatch.chdir(tmp_path / elsewhere)
    return built(root, table) == one


def test_a_relative_root_gives_the_same_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one = built(tmp_path / "project")
    monkeypatch.chdir(tmp_path / "project")
    assert built(Path()) == one


def test_the_times_and_the_order_of_files_do_not_matter(tmp_path: Path) -> None:
    one = built(tmp_path / "one")
    for name, content in reversed(FILES.items()):
        write_project(tmp_path / "other", TABLE, {name: content})
        os.utime(tmp_path / "other" / name, (1, 1))
    assert build(tmp_path / "other")["p.kernels"].files == one


def test_the_order_of_unordered_keys_does_not_matter(tmp_path: Path) -> None:
    one = built(tmp_path / "one", f'{TABLE}jit = true\ndefine = {{ A = "1", B = "2" }}')
    assert built(tmp_path / "other", f'{TABLE}define = {{ B = "2", A = "1" }}\njit = true') == one


def test_the_directory_of_the_build_is_nowhere_in_the_package(tmp_path: Path) -> None:
    for name, content in built(tmp_path).items():
        assert os.fsencode(tmp_path) not in content, name


def test_hidden_kernels_and_variables_are_there_under_their_names(tmp_path: Path) -> None:
    manifest = loads(built(tmp_path)["manifest.json"], "manifest")
    assert [k.expression for k in manifest.kernels] == ["fill", "hidden", "local", "seen"]
    assert [s.name for s in manifest.symbols] == ["file"]
