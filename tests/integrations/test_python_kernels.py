"""Sources in Python through every build tool, and in C++ programs."""

from __future__ import annotations

import re
import shutil
import sys
import zipfile
from pathlib import Path

import pytest

from tests.builder.test_triton import FILES, TABLE, TEXT
from tests.fixtures.cmake_projects import APPLICATION, LISTS, CMakeProject
from tests.fixtures.environments import CHECKOUT, run
from tests.fixtures.loader import run_script
from tests.fixtures.projects import write_project

pytest.importorskip("triton", reason="Triton runs under Linux only")

BACKENDS = {"setuptools.build_meta": "", "hatchling.build": "\n[tool.hatch.build.hooks.cuda-ext]\n"}
PROJECT = '[project]\nname = "p"\nversion = "1"\n[tool.setuptools]\npackages = ["p"]\n'
HOOK = "import sys, {0} as backend; getattr(backend, sys.argv[1])(sys.argv[2])"
NAMES = ["scale<fp16, BLOCK=128>", "scale<fp32, BLOCK=128>"]


def call_hook(root: Path, backend: str, hook: str) -> Path:
    """Build the project in `root` by a hook of `backend` with what is installed here; return the wheel."""
    out = root.with_name("dist")
    command = sys.executable, "-P", "-c", HOOK.format(backend), hook, out
    run(*command, cwd=root, PYTHONPATH=str(CHECKOUT))
    (wheel,) = out.glob("*.whl")
    return wheel


@pytest.mark.parametrize(
    ("backend", "hook"),
    [
        ("setuptools.build_meta", "build_wheel"),
        ("setuptools.build_meta", "build_editable"),
        ("hatchling.build", "build_wheel"),
    ],
)
def test_a_backend_builds_kernels_in_python(tmp_path: Path, backend: str, hook: str) -> None:
    table = PROJECT + TABLE.format(text=TEXT) + BACKENDS[backend]
    root = write_project(tmp_path / "project", table, FILES)
    with zipfile.ZipFile(call_hook(root, backend, hook)) as wheel:
        wheel.extractall(tmp_path / "site")
    script = f"""
    import site
    site.addsitedir({str(tmp_path / "site")!r})
    import cuda_ext
    from p import kernels
    print(*sorted(kernel.expression for kernel in cuda_ext.describe(kernels).kernels), sep="\\n")
    """
    assert run_script(script, tmp_path, "-P").output == NAMES


MAIN = """#include <app/kernels.h>
#include <cstdint>

struct __half {
  unsigned short bits;
};

int main() {
  auto* const x = reinterpret_cast<float*>(4096);
  for (float* const out : {x + 1024, x + 1025}) app::kernels::scale<128>(3, out, x, 60, 2.0f);
  auto* const half = reinterpret_cast<__half*>(4096);
  app::kernels::scale<128>({{3, 2}, nullptr}, half + 1, half, 60, 2.0f);
}
"""
MODULE = f"""cuda_ext_add_module(app_kernels NAME app.kernels SOURCES device/scale.py
  ARCHITECTURES 90-real EMIT cubin INSTANTIATE
    "{TEXT.format(T="fp16", B=128)}"
    "{TEXT.format(T="fp32", B=128)}")
"""


@pytest.mark.host_compiler
@pytest.mark.skipif(shutil.which("cmake") is None, reason="takes CMake")
def test_cpp_launches_kernels_in_python(tmp_path: Path, fake_driver: Path) -> None:
    files = {**FILES, "CMakeLists.txt": LISTS + MODULE + APPLICATION, "main.cpp": MAIN}
    project = CMakeProject(tmp_path / "app").write(files)
    project.configure()
    project.build()
    log = tmp_path / "log"
    run(project.executable, LD_LIBRARY_PATH=str(fake_driver), FAKE_CUDA_LOG=str(log))
    calls = log.read_text().splitlines()
    launches = [re.sub(r" shared.*device=0", "", call) for call in calls if call.startswith("cuLaunch")]
    values = "0010000000000000 3c000000 00000040 " + " ".join(["0" * 16] * 2)
    assert launches == [
        f"cuLaunchKernel scale grid=3,1,1 block=32,1,1 0020000000000000 {values}",
        f"cuLaunchKernel scale grid=3,1,1 block=32,1,1 0420000000000000 {values}",
        f"cuLaunchKernel scale grid=3,2,1 block=32,1,1 0210000000000000 {values}",
    ]
    # Each dtype has an image for aligned arguments and one for all others; a launch loads its own.
    assert calls.count("cuLibraryLoadData") == 3
    only = "--target", "app_kernels_generate"
    assert project.steps(*only) == []
    (project.root / "device/common.py").write_text(FILES["device/common.py"] + "\n")
    assert project.steps(*only) == ["Compiling app.kernels"]
