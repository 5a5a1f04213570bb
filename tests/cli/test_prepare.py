"""``cuda-ext prepare`` compiles what would be compiled on demand: with the real compiler, without a GPU."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from cuda_ext.toolchain.cuda_libraries import gpu_capabilities
from tests.fixtures.command_line import run
from tests.fixtures.disks import mounted, needs_mount
from tests.fixtures.messages import Messages
from tests.fixtures.projects import build, write_project

AXPY = """
template <class T> __global__ void axpy(int n, T a, const T* x, T* y) {
  if (threadIdx.x < n) y[threadIdx.x] += a * x[threadIdx.x];
}
extern "C" __global__ void fill(float* x, float value) { x[threadIdx.x] = value; }
"""
SCALE = "template <class T> __global__ void scale(T* x, T by) { x[threadIdx.x] *= by; }\n"
PROJECT = """
[tool.cuda_ext]
architectures = ["sm_80"]
[tool.cuda_ext.modules."p.kernels"]
instantiate = ["scale<float>"]
[[tool.cuda_ext.modules."p.kernels".overrides]]
sources = ["device/outside.cu"]
options = ["-I/opt/none"]
"""

Prepare = Callable[..., tuple[int, str, str]]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with the package ``p``, whose kernels were built for one architecture."""
    root, site = tmp_path_factory.mktemp("project"), tmp_path_factory.mktemp("site")
    (site / "p").mkdir()
    (site / "p" / "__init__.py").touch()
    (site / "p" / "broken.py").write_text("1 / 0\n")
    (site / "p" / "incomplete.py").write_text("import nobody_has_this\n")
    for package in build(
        write_project(
            root,
            PROJECT,
            {"device/axpy.cu": AXPY, "device/scale.cu": SCALE, "device/outside.cu": "__global__ void o() {}"},
        )
    ).values():
        package.write(site / "p" / "kernels")
    return site


@pytest.fixture
def prepare(site: Path, empty_cache: Path, monkeypatch: pytest.MonkeyPatch) -> Prepare:
    """Runs ``cuda-ext prepare``; all of a test's runs have one cache, in which nothing is known at first."""
    monkeypatch.setenv("PYTHONPATH", str(site))
    return lambda *arguments, **environ: run("prepare", *arguments, **environ)


def test_results_are_cached(prepare: Prepare) -> None:
    arguments = ["p.kernels", "axpy<float>", "axpy< double >", "--arch", "sm_90", "--arch", "sm_80"]
    demands = [f"axpy<{type_}> for {arch}" for arch in ("sm_90", "sm_80") for type_ in ("float", "double")]
    status, output, errors = prepare(*arguments)
    assert (status, errors) == (0, "")
    *lines, last = output.splitlines()
    assert sorted(lines) == sorted(f"compiled {demand}" for demand in demands)
    assert last.startswith("p.kernels: 4 compiled, 0 known, in ")
    *lines, last = prepare(*arguments)[1].splitlines()
    assert sorted(lines) == sorted(f"known    {demand}" for demand in demands)
    assert last.startswith("p.kernels: 0 compiled, 4 known, in ")


def test_programs_get_json(prepare: Prepare) -> None:
    _, output, errors = prepare("p.kernels", "axpy<float>", "axpy<int>", "--arch=sm_90", "--json")
    assert errors == ""
    shown = json.loads(output)
    assert (shown["module"], shown["known"]) == ("p.kernels", [])
    assert sorted(shown["compiled"]) == ["axpy<float> for sm_90", "axpy<int> for sm_90"]
    assert shown["seconds"] > 0
    run("cache", "clear")
    _, output, _ = prepare("p.kernels", "axpy<int>", "--arch=sm_90", "--json")
    assert json.loads(output)["compiled"] == ["axpy<int> for sm_90"]


def test_without_expressions_missing_images_are_compiled(prepare: Prepare, messages: Messages) -> None:
    lines = prepare("p.kernels", "--arch", "sm_90")[1].splitlines()
    assert lines[0] == "compiled device/axpy.cu for sm_90"
    messages(lines[-2])
    assert lines[-1].startswith("p.kernels: 2 compiled, 0 known, 1 skipped, in ")
    assert prepare("p.kernels", "--arch", "sm_80") == (
        0,
        "p.kernels: nothing to compile: there is an image for each of these GPUs\n",
        "",
    )


def refused(result: tuple[int, str, str]) -> str:
    """Return the message, which must be the only output."""
    status, output, errors = result
    assert (status, output) == (1, "")
    return errors.removesuffix("\n")


@pytest.mark.parametrize(
    "arguments",
    [
        ["p"],
        ["json"],
        ["p.kernel"],
        ["nobody.kernels"],
        ["p.broken"],
        ["p.incomplete"],
        ["p.kernels", "gemm<int>", "--arch=sm_90"],
        ["p.kernels", "axpy", "--arch=sm_90"],
        ["p.kernels", "scale", "--arch=sm_90"],
        ["p.kernels", "axpy<nope>", "--arch=sm_90"],
        ["p.kernels", "--arch=90"],
    ],
)
def test_errors_are_one_message(prepare: Prepare, arguments: list[str], messages: Messages) -> None:
    messages(refused(prepare(*arguments)))


@pytest.mark.parametrize("name", ["p/kernels", "p.kernels.py/", ".kernels", "p..kernels"])
def test_an_invalid_import_name_is_wrong_usage(prepare: Prepare, name: str) -> None:
    status, output, errors = prepare(name)
    assert (status, output) == (2, "")
    assert errors.endswith(f"{name!r} is not an import name; write it as in example_project.kernels\n")


@pytest.mark.skipif(bool(gpu_capabilities()), reason="there is a GPU")
def test_without_a_gpu_architectures_must_be_named(prepare: Prepare) -> None:
    assert refused(prepare("p.kernels")).startswith("architectures: there is no GPU here; name architectures")


def test_without_a_cache_nothing_is_compiled(prepare: Prepare, tmp_path: Path) -> None:
    arguments = ("p.kernels", "--arch=sm_90")
    assert refused(prepare(*arguments, CUDA_EXT_CACHE_SIZE="0")).startswith(
        "the results cannot be kept: the cache is turned off by CUDA_EXT_CACHE_SIZE=0"
    )
    (tmp_path / "file").write_text("mine")
    assert "a file is where a directory should be; move it" in refused(
        prepare(*arguments, CUDA_EXT_CACHE=tmp_path / "file")
    )


def test_disabled_compilation_is_an_error(prepare: Prepare) -> None:
    assert "CUDA_EXT_JIT=0" in refused(prepare("p.kernels", "--arch=sm_90", CUDA_EXT_JIT="0"))


@needs_mount
def test_a_full_disk_is_an_error(prepare: Prepare, empty_cache: Path, tmp_path: Path) -> None:
    with mounted(tmp_path / "disk", "-t", "tmpfs", "-o", "size=1m", "none") as disk:
        for headers in empty_cache.glob("nvrtc-headers-*"):
            (disk / headers.name).symlink_to(headers)
        subprocess.run(["dd", "if=/dev/zero", f"of={disk / 'full'}"], capture_output=True)
        message = refused(prepare("p.kernels", "--arch=sm_90", CUDA_EXT_CACHE=disk))
    assert message.startswith(f"{disk}")
    assert "No space left on device" in message
