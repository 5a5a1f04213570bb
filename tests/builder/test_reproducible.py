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


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The project that was built first."""
    return write_project(tmp_path_factory.mktemp("first") / "project", TABLE, FILES)


@pytest.fixture(scope="module")
def first(project: Path) -> Mapping[str, bytes]:
    """Its files, built from the directory around it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CUDA_EXT_CACHE_SIZE", "0")
        patch.chdir(project.parent)
        return build(project)["p.kernels"].files


@pytest.mark.parametrize("options", ["link = true", 'options = ["-lineinfo"]', 'options = ["-G"]'])
def test_two_places_give_the_same_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: str
) -> None:
    """Directories of the project as well as working directories; the others are below, without options."""
    table = f"{TABLE}{options}"
    monkeypatch.chdir(tmp_path)
    one = built(tmp_path / "one", table)
    monkeypatch.chdir(tmp_path / "one")
    assert built(tmp_path / "another place ü", table) == one


def test_tile_kernels_give_the_same_bytes_in_two_directories(tmp_path: Path) -> None:
    table = TABLE + 'options = ["-lineinfo"]'
    source = "namespace { __tile_global__ void hidden(int* x) { *x = 1; } }\n"
    files = {"device/tile.cu": source, "include/deep/check.cuh": CHECK}
    one, other = (
        build(write_project(tmp_path / place, table, files))["p.kernels"].files
        for place in ("one", "another place ü")
    )
    assert one == other


@pytest.mark.parametrize("elsewhere", ["/", "project/device", "größe"])
def test_two_working_directories_give_the_same_bytes(
    project: Path, first: Mapping[str, bytes], monkeypatch: pytest.MonkeyPatch, elsewhere: str
) -> None:
    (project.parent / "größe").mkdir(exist_ok=True)
    monkeypatch.chdir(project.parent / elsewhere)
    assert build(project)["p.kernels"].files == first


def test_a_relative_root_gives_the_same_bytes(
    project: Path, first: Mapping[str, bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(project)
    assert build(Path())["p.kernels"].files == first


def test_directory_times_and_the_order_of_files_do_not_matter(
    tmp_path: Path, first: Mapping[str, bytes]
) -> None:
    other = tmp_path / "another place ü"
    for name, content in reversed(FILES.items()):
        write_project(other, TABLE, {name: content})
        os.utime(other / name, (1, 1))
    assert build(other)["p.kernels"].files == first


def test_the_order_of_unordered_keys_does_not_matter(tmp_path: Path) -> None:
    one = built(tmp_path / "one", f'{TABLE}jit = true\ndefine = {{ A = "1", B = "2" }}')
    assert built(tmp_path / "other", f'{TABLE}define = {{ B = "2", A = "1" }}\njit = true') == one


def test_the_directory_of_the_build_is_nowhere_in_the_package(
    project: Path, first: Mapping[str, bytes]
) -> None:
    for name, content in first.items():
        assert os.fsencode(project) not in content, name


def test_hidden_kernels_and_variables_are_there_under_their_names(first: Mapping[str, bytes]) -> None:
    manifest = loads(first["manifest.json"], "manifest")
    assert [k.expression for k in manifest.kernels] == ["fill", "hidden", "local", "seen"]
    assert [s.name for s in manifest.symbols] == ["file"]
