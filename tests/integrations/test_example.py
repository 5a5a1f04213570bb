"""``example_project`` from source to wheel to use, as the README documents it.

The same project is built with NVRTC and, where there is a host compiler, with nvcc.
"""

from __future__ import annotations

import json
import shutil
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from cuda_ext.formats.fatbin import read_fatbin
from tests.fixtures.environments import CHECKOUT, EPOCH, NO_CACHE, SETUPTOOLS, Environment

pytestmark = pytest.mark.xdist_group("environments")

PROJECTS = {
    "nvrtc": CHECKOUT / "example_project",
    "nvcc": CHECKOUT / "tests" / "packages" / "example_with_nvcc",
}
EVERYWHERE = {
    "nvrtc": {"sm_80", "compute_80"},  # of CUDAARCHS; those that the table means take many seconds
    "nvrtc everywhere": {"sm_75", "sm_80", "sm_90", "sm_100", "sm_110", "sm_120", "compute_120"},
    "nvcc": {"sm_120", "compute_120"},
}
UNITS = ("axpy", "clamp", "gemm", "histogram", "reduce", "scan", "softmax", "stencil")


def copied(project: Path, to: Path) -> Path:
    ignored = shutil.ignore_patterns("build", "dist", "*.egg-info", "__pycache__", ".*")
    return Path(shutil.copytree(project, to, ignore=ignored))


@pytest.fixture(
    scope="module",
    params=[
        "nvrtc",
        pytest.param("nvrtc everywhere", marks=pytest.mark.slow),
        pytest.param("nvcc", marks=[pytest.mark.host_compiler, pytest.mark.slow]),
    ],
)
def compiler(request: pytest.FixtureRequest) -> str:
    if request.param == "nvcc" and not any(map(shutil.which, ("g++", "clang++", "cl"))):
        pytest.skip("nvcc needs a host compiler, and none is on PATH")
    return str(request.param)


@pytest.fixture(scope="module")
def builder(compiler: str, environment_with: Callable[..., Environment]) -> Environment:
    return environment_with(SETUPTOOLS["current"], "nvcc-cu13" if compiler == "nvcc" else "cu13")


@pytest.fixture(scope="module")
def wheel(compiler: str, builder: Environment, tmp_path_factory: pytest.TempPathFactory) -> Path:
    source = PROJECTS[compiler.partition(" ")[0]]
    project = copied(source, tmp_path_factory.mktemp("example") / "example")
    architectures = {"CUDAARCHS": "80"} if compiler == "nvrtc" else {}
    # Another nvcc that this machine may have does not count.
    return builder.build(project, "wheel", CUDA_PATH="", CUDA_HOME="", **architectures)


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    site = tmp_path_factory.mktemp("site")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(site)
    return site


def test_one_wheel_serves_every_python_and_system(wheel: Path) -> None:
    assert wheel.name == "example_project-0.1.0-py3-none-any.whl"


def test_the_fatbins_hold_every_architecture_of_their_unit(installed: Path, compiler: str) -> None:
    found = {
        fatbin.stem: {entry.architecture for entry in read_fatbin(fatbin.read_bytes())}
        for fatbin in installed.rglob("*.fatbin")
    }
    assert found == {**dict.fromkeys(UNITS, EVERYWHERE[compiler]), "gemm_hopper": {"sm_90a"}}


def test_the_manifest_names_the_compiler(installed: Path, compiler: str) -> None:
    manifests = [json.loads(file.read_bytes()) for file in installed.rglob("manifest.json")]
    expected = {(compiler.partition(" ")[0], "13")}
    assert {(m["compiler"], m["version"].partition(".")[0]) for m in manifests} == expected


def test_the_demonstration_passes(installed: Path, compiler: str, builder: Environment) -> None:
    images = len(UNITS) * len(EVERYWHERE[compiler]) + 1  # of gemm_hopper
    printed = builder.run("-m", "example_project", PYTHONPATH=str(installed))
    assert "blockwise::reduce<float, 256>(long long n, const float* x, float* partial)" in printed
    assert "weights  float[9]  36 bytes" in printed
    assert f"No GPU here: 15 kernels in {images} images" in printed or "against numpy" in printed


def test_importing_it_loads_no_large_module(installed: Path, builder: Environment) -> None:
    program = (
        "import sys; before = set(sys.modules); from example_project import kernels; "
        "loaded = set(sys.modules) - before; import json; print(json.dumps(sorted(loaded)))"
    )
    loaded = json.loads(builder.run("-c", program, PYTHONPATH=str(installed)))
    ours = [name for name in loaded if name.partition(".")[0] in ("cuda_ext", "example_project")]
    assert ours == [
        "cuda_ext",
        "cuda_ext.runtime",
        "cuda_ext.runtime.module",
        "example_project",
        "example_project.kernels",
        "example_project.scan",
    ]
    assert not {"cuda", "dataclasses", "json", "numpy"}.intersection(loaded)


@pytest.mark.slow
def test_two_directories_give_the_same_wheel(
    environment_with: Callable[..., Environment], tmp_path: Path
) -> None:
    few = {"SOURCE_DATE_EPOCH": EPOCH, "CUDAARCHS": "90a-real", **NO_CACHE}
    builder = environment_with(SETUPTOOLS["current"])
    wheels = [
        builder.build(copied(PROJECTS["nvrtc"], tmp_path / place), "wheel", **few)
        for place in ("here", "elsewhere/ünd da")
    ]
    assert wheels[0].read_bytes() == wheels[1].read_bytes()
