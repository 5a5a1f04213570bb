"""``example_project`` from source to wheel to use: what the README promises, on the package that it shows."""

from __future__ import annotations

import json
import shutil
import zipfile
from pathlib import Path

import pytest

from cuda_ext.compiler.fatbin import read_fatbin
from tests.packages_fixtures import CHECKOUT, EPOCH, Environment

EVERYWHERE = {"sm_75", "sm_80", "sm_90", "sm_100", "sm_110", "sm_120", "compute_120"}


def copied(to: Path) -> Path:
    ignored = shutil.ignore_patterns("build", "dist", "*.egg-info", "__pycache__", ".*")
    return Path(shutil.copytree(CHECKOUT / "example_project", to, ignore=ignored))


@pytest.fixture(scope="module")
def wheel(current_environment: Environment, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return current_environment.build(copied(tmp_path_factory.mktemp("example") / "example"), "wheel")


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    site = tmp_path_factory.mktemp("site")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(site)
    return site


def test_one_wheel_serves_every_python_and_system(wheel: Path) -> None:
    assert wheel.name == "example_project-0.1.0-py3-none-any.whl"


def test_the_fatbins_hold_every_architecture_of_their_unit(installed: Path) -> None:
    found = {
        fatbin.stem: {entry.architecture for entry in read_fatbin(fatbin.read_bytes())}
        for fatbin in installed.rglob("*.fatbin")
    }
    units = ("axpy", "clamp", "gemm", "histogram", "reduce", "scan", "softmax", "stencil")
    assert found == {**dict.fromkeys(units, EVERYWHERE), "gemm_hopper": {"sm_90a"}}


def test_the_demonstration_passes(installed: Path, current_environment: Environment) -> None:
    printed = current_environment.run("-m", "example_project", PYTHONPATH=str(installed))
    assert "blockwise::reduce<float, 256>(long long n, const float* x, float* partial)" in printed
    assert "weights  float[9]  36 bytes" in printed
    assert "No GPU here: 15 kernels in 57 images" in printed or "against numpy" in printed


def test_importing_it_loads_nothing_heavy(installed: Path, current_environment: Environment) -> None:
    program = "import sys; before = set(sys.modules); from example_project import kernels; import json; "
    program += "print(json.dumps(sorted(set(sys.modules) - before)))"
    loaded = json.loads(current_environment.run("-c", program, PYTHONPATH=str(installed)))
    ours = [name for name in loaded if name.partition(".")[0] in ("cuda_ext", "example_project")]
    assert ours == [
        "cuda_ext",
        "cuda_ext.runtime",
        "cuda_ext.runtime.module",
        "example_project",
        "example_project.kernels",
    ]
    assert not any(name.partition(".")[0] in ("cuda", "numpy", "dataclasses") for name in loaded)


def test_two_directories_give_the_same_wheel(current_environment: Environment, tmp_path: Path) -> None:
    wheels = [
        current_environment.build(
            copied(tmp_path / place), "wheel", SOURCE_DATE_EPOCH=EPOCH, CUDAARCHS="80;90a-real"
        )
        for place in ("here", "elsewhere/ünd da")
    ]
    assert wheels[0].read_bytes() == wheels[1].read_bytes()
