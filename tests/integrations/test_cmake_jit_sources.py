"""Device code that a C++ program embeds and compiles: headers with every name, and missing kernels."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest

from cuda_ext.toolchain.cuda_packages import library_directories
from tests.fixtures.cmake_projects import CMakeProject
from tests.fixtures.environments import CHECKOUT

pytestmark = [
    pytest.mark.xdist_group("cmake_jit"),
    pytest.mark.host_compiler,
    pytest.mark.skipif(shutil.which("c++") is None, reason="takes a C++ compiler"),
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the fake driver takes Linux"),
]

SOURCES = Path(__file__).parents[1] / "cmake" / "jit"
# Each by its path within the project, and by that below the directories that it is included from.
HEADERS = {
    *("device/fp16_math.cuh", "device/ops/binary.cuh", "device/ops/unary.cuh", "device/utils.cuh"),
    *("fp16_math.cuh", "ops/binary.cuh", "ops/unary.cuh", "utils.cuh"),
    *("extra/shared/limits.cuh", "shared/limits.cuh"),
}


@pytest.mark.slow
def test_a_program_compiles_with_what_it_embeds(tmp_path: Path, fake_driver: Path) -> None:
    if not any(Path(d, "libnvrtc.so.13").is_file() for d in library_directories(13)):
        pytest.skip("takes NVRTC 13 for Linux from the registry")
    root = tmp_path / "app"
    shutil.copytree(SOURCES, root)
    project = CMakeProject(root)
    project.configure(f"-DEXAMPLE={CHECKOUT / 'examples' / 'cmake_application'}")
    steps = project.steps("--target", "jit", "expressions")
    for shared in "loader.cpp.o", "on_demand.cpp.o":
        assert sum(step.endswith(shared) for step in steps) == 1, "all modules share one object"
    # Nothing but the executable is there when it runs.
    shutil.rmtree(root)
    executable = (project.tree / "jit").rename(tmp_path / "jit")
    expressions = (project.tree / "example" / "expressions").rename(tmp_path / "expressions")
    shutil.rmtree(project.tree)
    environment = {
        "LD_LIBRARY_PATH": str(fake_driver),
        "CUDA_EXT_CACHE": str(tmp_path / "cache"),
        "VIRTUAL_ENV": sys.prefix,
        "FAKE_CUDA_LOG": str(tmp_path / "calls"),
    }
    *headers, named = project.run(executable, **environment).splitlines()
    names = [line.removeprefix("header ") for line in headers]
    assert set(names) == HEADERS
    assert len(names) == len(HEADERS)
    assert named.startswith("device/ops/binary.cuh has ")
    launches = [line.split() for line in (tmp_path / "calls").read_text().splitlines() if "cuLaunch" in line]
    assert [words[1] for words in launches] == [
        "_Z3zipIN3ops8SubtractE6__halfEviPKT0_PS3_",
        "_Z4copyIdEviPKT_PS0_",
    ]
    head, *lines = project.run(expressions, "x + y", "gelu(x)", **environment).splitlines()
    assert head.split() == ["expression", "compile", "from", "cache", "launch", "GB/s"]
    assert [line.split("  ")[0] for line in lines] == ["x + y", "gelu(x)"]
