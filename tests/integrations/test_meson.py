"""The example for meson-python, by the commands in its README, in a new environment."""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.fixtures.environments import CHECKOUT, Environment, run, uv
from tests.fixtures.projects import build
from tests.integrations.test_cmake_examples import QUICKLY, Session, commands, examples

__all__ = ["examples"]  # a fixture

pytestmark = [pytest.mark.xdist_group("examples"), pytest.mark.network]
PACKAGE = "example_meson"


@dataclass(frozen=True)
class Installed:
    """Install the example with the commands of its README; return their output."""

    session: Session
    demonstration: str
    tests: str


@pytest.fixture(scope="module")
def installed(examples: Path, tmp_path_factory: pytest.TempPathFactory) -> Installed:
    session = Session.start(
        examples / "meson_python", tmp_path_factory.mktemp("meson"), "bash", "sh", "uname"
    )
    for absent in ("meson", "ninja", "cc", "nvcc"):
        session.type(f"type {absent}", status=1)
    *_, demonstration, tests = map(session.type, commands(session.project))
    return Installed(session, demonstration, tests)


def test_the_example_is_built_as_its_readme_documents(installed: Installed) -> None:
    assert "axpy<float>(long long n, float a, const float* x, float* y)" in installed.demonstration
    assert "1 passed, 3 skipped" in installed.tests or "4 passed" in installed.tests


def test_the_wheel_is_pure_and_has_the_bytes_of_any_other_build(
    installed: Installed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (site,) = installed.session.environment.prefix.glob("lib/*/site-packages")
    assert "Tag: py3-none-any" in (site / f"{PACKAGE}-0.1.0.dist-info/WHEEL").read_text()
    kernels = site / PACKAGE / "kernels"
    files = [f for f in kernels.rglob("*") if f.is_file() and f.parent.name != "__pycache__"]
    monkeypatch.setenv("CUDAARCHS", QUICKLY["CUDAARCHS"])
    (package,) = build(CHECKOUT / "examples" / "meson_python").values()
    assert {f.relative_to(kernels).as_posix(): f.read_bytes() for f in files} == package.files


@pytest.mark.slow
def test_an_edited_header_and_a_new_source_are_compiled_and_nothing_else_is(
    current_environment: Environment, tmp_path: Path
) -> None:
    uv("pip", "install", "--python", current_environment.prefix, "meson", "ninja")
    project = Path(shutil.copytree(CHECKOUT / "examples" / "meson_python", tmp_path / "project"))
    programs = f"{current_environment.python.parent}{os.pathsep}{os.environ['PATH']}"

    def compiled() -> str:
        return run("ninja", "-C", project / "build", PATH=programs, **QUICKLY)

    run("meson", "setup", project / "build", project, PATH=programs)
    kernels = project / "build" / PACKAGE / "kernels"
    assert "2 images" in compiled()
    assert "no work to do" in compiled()
    with (project / "device/detail/horner.cuh").open("a") as header:
        header.write("// edited\n")
    assert "2 images" in compiled()
    assert "edited" in (kernels / "sources/device/detail/horner.cuh").read_text()
    (project / "device/fresh.cu").write_text('extern "C" __global__ void fresh(int* x) { *x = 1; }\n')
    assert "3 images" in compiled()
    assert (kernels / "fresh.fatbin").is_file()
    assert "no work to do" in compiled()
