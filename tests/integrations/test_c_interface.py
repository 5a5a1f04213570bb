"""The C interface of modules: programs in C and Rust, under the fake driver."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.builder.cpp.test_header import WHOLE
from tests.fixtures.cpp_modules import LOADER, compile_cpp, write_cpp
from tests.fixtures.loader import CHECKOUT, Run

pytestmark = [
    pytest.mark.host_compiler,
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the fake driver takes Linux"),
    pytest.mark.skipif(shutil.which("gcc") is None, reason="takes gcc"),
]


def run_under_driver(program: Path, driver: Path, status: int = 0) -> Run:
    log = program.with_name("calls")
    log.write_text("")
    environment = {**os.environ, "LD_LIBRARY_PATH": str(driver), "FAKE_CUDA_LOG": str(log)}
    done = subprocess.run(
        [program], env=environment, capture_output=True, text=True, timeout=300, check=False
    )
    assert (done.returncode, done.stderr) == (status, "")
    return Run.of(done.stdout, log)


def test_a_program_in_c_launches_by_index(tmp_path: Path, fake_driver: Path) -> None:
    made = write_cpp(WHOLE, tmp_path, "literal", with_c=True)
    sanitizers = "-fsanitize=address,undefined", "-fno-sanitize-recover=all"
    warnings = "-std=c99", "-Wall", "-Wextra", "-Wpedantic", "-Werror"
    source = CHECKOUT / "tests" / "cpp" / "c_interface.c"
    command = [
        "gcc",
        *warnings,
        *sanitizers,
        f"-I{tmp_path / 'include'}",
        "-c",
        source,
        "-o",
        tmp_path / "c.o",
    ]
    subprocess.run(command, check=True, timeout=300)
    objects = tmp_path / "c.o", tmp_path / made.source, LOADER
    compile_cpp(*sanitizers, *objects, "-o", tmp_path / "program", "-ldl", "-pthread")
    done = run_under_driver(tmp_path / "program", fake_driver)
    grid, index, variable, of_no_kernel, load = done.output
    assert grid.startswith("0 0 block: expected at least 1 and at most (1024, 1024, 64), found (0, 1, 1)|")
    assert index.startswith(
        "1 0 sample.kernels has no kernel or symbol 'a kernel of this index'; it has: axpy"
    )
    assert variable == "36 bytes"
    assert "'a variable of this index'" in of_no_kernel
    assert load.startswith("9 0 sample.kernels: of device/later.cu only PTX (compute_80) fits this GPU")
    assert [launch.partition(" device=0 ")[2] for launch in done.launches] == [
        "05000000 00000040 0000000000000000 2000000000000000",
        "0000803f 4000000000000000",
        "dependent=1 cluster=2,1,1",
    ]
    # Nothing of it is visible in a shared object.
    compile_cpp("-O1", "-fPIC", "-shared", *objects[1:], "-o", tmp_path / "lib.so", "-ldl")
    shown = subprocess.run(
        ["nm", "-D", "--defined-only", tmp_path / "lib.so"], capture_output=True, text=True, check=True
    )
    assert "sample_kernels" not in shown.stdout


@pytest.mark.slow  # the program in C declares and calls the same
@pytest.mark.skipif(shutil.which("rustc") is None, reason="takes rustc")
@pytest.mark.skipif(shutil.which("ninja") is None, reason="takes Ninja")
def test_the_example_in_rust_launches(tmp_path: Path, fake_driver: Path) -> None:
    project = shutil.copytree(CHECKOUT / "examples" / "rust_application", tmp_path / "project")
    listed = project / "CMakeLists.txt"
    # The fake driver reads no compressed fatbins.
    listed.write_text(listed.read_text(encoding="utf-8").replace("C_INTERFACE)", "C_INTERFACE EMIT cubin)"))
    where = f"-DCMAKE_PREFIX_PATH={CHECKOUT / 'cmake'}", f"-DCudaExt_PYTHON_EXECUTABLE={sys.executable}"
    environment = {**os.environ, "CUDAARCHS": "90-real"}
    for command in (
        ["-B", project / "build", "-S", project, "-G", "Ninja", *where],
        ["--build", project / "build"],
    ):
        done = subprocess.run(
            ["cmake", *command], env=environment, capture_output=True, text=True, timeout=300, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
    done = run_under_driver(project / "build" / "application", fake_driver)
    assert done.output == ["launched"]
    assert re.fullmatch(
        r"cuLaunchKernel \w+ grid=1,1,1 block=256,1,1 .* 00000000 00000040 0{16} 0{16}", done.launches[0]
    )
    # The declarations are those of the header.
    header = (project / "build/cuda_ext/app_kernels/include/app/kernels/c.h").read_text(encoding="utf-8")
    assert "app_kernels_axpy_float = 1," in header
