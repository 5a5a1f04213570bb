"""Device headers embedded for NVRTC: a C++ program passes them on unchanged, and NVRTC compiles them."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from cuda_ext.toolchain.cuda_packages import header_directories, library_directories
from tests.fixtures.cmake_projects import CMakeProject

pytestmark = [
    pytest.mark.xdist_group("cmake_jit"),
    pytest.mark.host_compiler,
    pytest.mark.skipif(shutil.which("c++") is None, reason="takes a C++ compiler"),
]

SOURCES = Path(__file__).parents[1] / "cmake" / "jit"
# Each by its path within the project, and by that below the directories that it is included from.
HEADERS = {
    *("device/fp16_math.cuh", "device/ops/binary.cuh", "device/ops/unary.cuh", "device/utils.cuh"),
    *("fp16_math.cuh", "ops/binary.cuh", "ops/unary.cuh", "utils.cuh"),
    *("extra/shared/limits.cuh", "shared/limits.cuh"),
}


@pytest.fixture(scope="module")
def printed(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The output lines of the program, which must succeed."""
    libraries = [
        file for directory in library_directories("nvrtc", 13) for file in directory.glob("libnvrtc.so.13")
    ]
    if not libraries:
        pytest.skip("takes NVRTC 13 for Linux from the registry")
    root = tmp_path_factory.mktemp("jit") / "app"
    shutil.copytree(SOURCES, root)
    project = CMakeProject(root)
    project.configure()
    project.build()
    # Nothing but the executable is there when it runs.
    shutil.rmtree(root)
    executable = project.executable.with_name("jit").rename(project.tree.with_name("jit"))
    shutil.rmtree(project.tree)
    return project.run(executable, libraries[0], header_directories(13)[0]).splitlines()


def test_headers_have_every_name_by_which_they_are_included(printed: list[str]) -> None:
    names = [line.removeprefix("header ") for line in printed if line.startswith("header ")]
    assert set(names) == HEADERS
    assert len(names) == len(HEADERS)


def test_a_source_of_run_time_text_compiles_with_them(printed: list[str]) -> None:
    assert "zip.cu: zip<ops::Subtract, float> = _Z3zipIN3ops8SubtractEfEviPKT0_PS2_" in printed
    assert "zip.cu: zip<ops::Subtract, __half> = _Z3zipIN3ops8SubtractE6__halfEviPKT0_PS3_" in printed


def test_embedded_sources_compile_with_them(printed: list[str]) -> None:
    assert "device/copy.cu: copy<float> = _Z4copyIfEviPKT_PS0_" in printed
