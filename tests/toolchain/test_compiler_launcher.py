"""nvcc under ccache or sccache: the same bytes, cached, and one error if a launcher does not work."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from cuda_ext.compiler.translation_unit import TranslationUnit
from cuda_ext.errors import CompilationError, ToolchainError
from cuda_ext.facts.architecture import Architecture
from cuda_ext.facts.sources import Options
from cuda_ext.toolchain.compilers import find_nvcc
from cuda_ext.toolchain.nvcc import Nvcc
from tests.fixtures.projects import KERNELS, refusal, write_project

pytestmark = pytest.mark.host_compiler

ARCHITECTURES = [Architecture.parse(name) for name in ("sm_90", "lto_90")]
SOURCE = b"""#include "device/by.cuh"
template <class T> __global__ void scale(T* x) { x[threadIdx.x] *= by() + SHIFT; }
namespace { __global__ void anonymous(char* x) { *x = NAME[1]; } }
"""
HEADER = b"__device__ inline int by() { return %d; }\n"


def unit(by: int = 2, shift: int = 3, instantiate: tuple[str, ...] = ("scale<float>",)) -> TranslationUnit:
    define = {"SHIFT": str(shift), "NAME": '"a, $b"'}
    headers = {"device/by.cuh": HEADER % by}
    return TranslationUnit("device/k.cu", SOURCE, "cu", headers, Options(define=define), instantiate)


def program(name: str) -> str:
    """The path of a launcher: on PATH, or beside this interpreter."""
    beside = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    found = shutil.which(name, path=beside)
    if found is None:
        pytest.skip(f"{name} is not installed")
    return found


def nvcc(launcher: str | None, **environ: str) -> Nvcc:
    try:
        return find_nvcc(None, {**os.environ, **environ}, launcher)
    except ToolchainError as error:
        pytest.skip(str(error))


@pytest.fixture
def ccache(tmp_path) -> Nvcc:
    return nvcc(program("ccache"), CCACHE_DIR=f"{tmp_path}/ccache")


@pytest.fixture
def sccache(tmp_path) -> Iterator[Nvcc]:
    """sccache with its own server, which ends with the test."""
    path = program("sccache")
    with tempfile.TemporaryDirectory() as short:  # as names of sockets have to be
        environ = {
            "SCCACHE_DIR": f"{tmp_path}/sccache",
            "SCCACHE_SERVER_UDS": f"{short}/socket",
            "SCCACHE_IDLE_TIMEOUT": "60",
        }
        yield nvcc(path, **environ)
        subprocess.run([path, "--stop-server"], env={**os.environ, **environ}, capture_output=True)


def outcome(compiler: Nvcc, compiled: TranslationUnit) -> list[object]:
    """Return all results of `compiler`, with traces and logs."""
    images = [compiler.compile(compiled, [architecture])[0] for architecture in ARCHITECTURES]
    return [(image, image.trace.reads) for image in images]


def hits(tmp_path: Path) -> int:
    statistics = subprocess.run(
        [program("ccache"), "--print-stats"],
        env={**os.environ, "CCACHE_DIR": f"{tmp_path}/ccache"},
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    return sum(
        int(n) for n in re.findall(r"^(?:direct|preprocessed)_cache_hit\t(\d+)", statistics, re.MULTILINE)
    )


def test_ccache_reuses_results_and_leaves_images_unchanged(ccache, tmp_path):
    expected = outcome(nvcc(None), unit())
    assert outcome(ccache, unit()) == expected
    assert hits(tmp_path) == 0
    assert outcome(ccache, unit()) == expected
    assert hits(tmp_path) == len(ARCHITECTURES) + 1


def test_an_edited_script_is_another_compiler(tmp_path):
    script = tmp_path / "launcher"
    script.write_text('#!/bin/sh\nexec "$@"\n')
    script.chmod(0o755)
    assert script in nvcc(str(script)).files()
    assert not [path for path in nvcc(program("ccache")).files() if "ccache" in path.name]


@pytest.mark.slow
def test_ccache_compiles_changed_sources_again(ccache):
    # Without a table of names ccache relies on the arguments and the files alone.
    plain = unit(instantiate=())
    (before,) = ccache.compile(plain, [ARCHITECTURES[0]])
    ccache.compile(unit(), [ARCHITECTURES[0]])
    for other in (unit(by=5), unit(shift=5)):  # another header, another macro
        assert ccache.compile(other, [ARCHITECTURES[0]]) == nvcc(None).compile(other, [ARCHITECTURES[0]])
    assert ccache.compile(plain, [ARCHITECTURES[0]]) == (before,)


def test_ccache_gives_no_time_trace_back(ccache, tmp_path):
    for _ in range(2):
        timed = Nvcc(
            ccache.executable, {**os.environ, "CCACHE_DIR": f"{tmp_path}/ccache"}, ccache.launcher, None, True
        )
        assert timed.compile(unit(), [ARCHITECTURES[0]])


def test_sccache_leaves_images_unchanged_or_cannot_run_this_nvcc(sccache):
    if tuple(map(int, sccache.version.split("."))) < (13, 3) or sccache_version(sccache) >= (0, 18):
        expected = outcome(nvcc(None), unit())
        assert [outcome(sccache, unit()) for _ in range(2)] == [expected, expected]
        return
    for _ in range(2):
        with pytest.raises(
            ToolchainError, match=r"^launcher: '\S*sccache' ended with .* wrote no output for a call"
        ):
            sccache.compile(unit(), ARCHITECTURES[:1])


def sccache_version(compiler: Nvcc) -> tuple[int, ...]:
    completed = subprocess.run(
        [str(compiler.launcher), "--version"], capture_output=True, text=True, check=True
    )
    return tuple(map(int, completed.stdout.split()[1].split(".")))


@pytest.mark.parametrize("name", ["ccache", pytest.param("sccache", marks=pytest.mark.slow)])
def test_errors_of_the_compiler_are_unchanged(name, request):
    broken = TranslationUnit("device/k.cu", b"__global__ void k() { undeclared(); }\n")
    with pytest.raises(CompilationError, match=r"device/k\.cu\(1\): error: identifier \"undeclared\""):
        nvcc(None).compile(broken, [ARCHITECTURES[0]])
    with pytest.raises((CompilationError, ToolchainError)) as caught:
        request.getfixturevalue(name).compile(broken, [ARCHITECTURES[0]])
    if name == "ccache":
        assert re.search(r"device/k\.cu\(1\): error: identifier \"undeclared\"", str(caught.value))


def test_a_launcher_that_is_not_installed_is_one_error():
    with pytest.raises(ToolchainError, match=r"launcher: 'no-such-launcher' is not on PATH; install it, or"):
        nvcc("no-such-launcher").compile(unit(), [ARCHITECTURES[0]])


def test_a_launcher_that_fails_is_one_error(tmp_path):
    (tmp_path / "file").touch()
    failing = nvcc(program("ccache"), CCACHE_DIR=f"{tmp_path}/file/ccache")
    with pytest.raises(
        ToolchainError, match=r"launcher: '\S*ccache' failed: ccache: error: .*; correct that, or"
    ):
        failing.compile(unit(), [ARCHITECTURES[0]])


def test_a_launcher_runs_nvcc_alone(tmp_path):
    message = refusal(write_project(tmp_path, f'{KERNELS}launcher = "ccache"\n'))
    assert message.startswith('tool.cuda_ext.modules."p.kernels".launcher: runs nvcc')
