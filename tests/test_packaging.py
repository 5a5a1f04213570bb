"""The contents of this package's distributions, and an editable install."""

from __future__ import annotations

import re
import shutil
import sys
import tarfile
import tomllib
from pathlib import Path
from zipfile import ZipFile

import pytest

import cuda_ext
from cuda_ext.errors import _ONLY_TO_BUILD
from tests.fixtures.environments import CHECKOUT, Environment, run, uv

PACKAGE = CHECKOUT / "cuda_ext"
CMAKE = CHECKOUT / "cmake" / "CudaExt"


def test_the_list_of_packages_is_complete() -> None:
    with (CHECKOUT / "pyproject.toml").open("rb") as file:
        listed = tomllib.load(file)["tool"]["setuptools"]["packages"]
    folders = {path.parent for path in PACKAGE.rglob("*.py") if "templates" not in path.parts}
    packages = [".".join(folder.relative_to(CHECKOUT).parts) for folder in folders]
    assert listed == sorted([*packages, "cuda_ext.cmake"])
    assert [folder for folder in folders if not (folder / "__init__.py").is_file()] == []


def test_cmake_has_the_version_of_the_package() -> None:
    text = (CMAKE / "CudaExtConfigVersion.cmake").read_text(encoding="utf-8")
    assert re.findall(r"^set\(PACKAGE_VERSION (.*)\)", text, re.MULTILINE) == [cuda_ext.__version__]
    headers = Path(cuda_ext.__file__).parent / "include" / "cuda_ext"
    versions = {
        version
        for name in ("interface.hpp", "compile.hpp")
        for version in re.findall(r"\bv(\d+_\w+)", (headers / name).read_text(encoding="utf-8"))
    }
    assert versions == {re.sub(r"\W", "_", cuda_ext.__version__)}


def test_the_checkout_does_not_shadow_the_cmake_of_the_registry() -> None:
    for first in ({"PYTHONPATH": str(CHECKOUT)}, {}):
        printed = run(sys.executable, "-m", "cmake", "--version", cwd=CHECKOUT, **first)
        assert printed.startswith("cmake version")
    code = "import cmake; print(cmake.CMAKE_BIN_DIR)"  # as scikit-build-core asks for it
    printed = run(sys.executable, "-c", code, cwd=CHECKOUT, PYTHONPATH=str(CHECKOUT))
    assert not Path(printed.strip()).is_relative_to(CHECKOUT / "cmake")


def shipped() -> set[str]:
    """The files of this checkout that an installation must have."""

    def files(folder: Path) -> set[str]:
        ignored = ("__pycache__", ".so", ".pyd")
        found = (path for path in folder.rglob("*") if path.is_file() and path.parent.name != "native")
        return {path.relative_to(folder).as_posix() for path in found if not str(path).endswith(ignored)} - {
            path.relative_to(folder).as_posix() for path in folder.rglob("__pycache__/*")
        }

    return {f"cuda_ext/{name}" for name in files(PACKAGE)} | {f"cuda_ext/cmake/{n}" for n in files(CMAKE)}


def test_a_wheel_has_every_file(cuda_ext_wheel: Path) -> None:
    names = set(ZipFile(cuda_ext_wheel).namelist())
    assert {n for n in names if ".dist-info/" not in n and not n.endswith((".so", ".pyd"))} == shipped()


def test_a_source_distribution_gives_the_same_wheel(cuda_ext_wheel: Path, tmp_path: Path) -> None:
    copy = tmp_path / "checkout"
    ignored = shutil.ignore_patterns(".*", "__pycache__", "build", "tests", "*.egg-info")
    shutil.copytree(CHECKOUT, copy, ignore=ignored)
    uv("build", "--sdist", "--out-dir", tmp_path, copy)
    (sdist,) = tmp_path.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        archive.extractall(tmp_path, filter="data")
    uv("build", "--wheel", "--out-dir", tmp_path, tmp_path / sdist.name.removesuffix(".tar.gz"))
    (wheel,) = tmp_path.glob("*.whl")
    assert sorted(ZipFile(wheel).namelist()) == sorted(ZipFile(cuda_ext_wheel).namelist())


def test_a_pure_wheel_lacks_the_modules_in_c_alone(
    cuda_ext_wheel: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy = tmp_path / "checkout"
    ignored = shutil.ignore_patterns(".*", "__pycache__", "build", "tests", "*.egg-info", "*.so")
    shutil.copytree(CHECKOUT, copy, ignore=ignored)
    monkeypatch.setenv("PURE_PYTHON", "1")
    uv("build", "--wheel", "--out-dir", tmp_path, copy)
    (wheel,) = tmp_path.glob("*-py3-none-any.whl")
    lacking = set(ZipFile(cuda_ext_wheel).namelist()) - set(ZipFile(wheel).namelist())
    assert {name.partition(".")[0] for name in lacking} <= {
        "cuda_ext/runtime/driver/_calls",
        "cuda_ext/runtime/launch/_launch",
    }


def test_an_editable_install_finds_the_files_of_cmake(tmp_path: Path) -> None:
    copy = tmp_path / "checkout"
    ignored = shutil.ignore_patterns(".*", "__pycache__", "build", "tests", "docs", "*.egg-info")
    shutil.copytree(CHECKOUT, copy, ignore=ignored)
    environment = Environment.make(tmp_path / "environment", "--no-deps", "--editable", str(copy))
    assert (
        environment.run("-m", "cuda_ext", "cmake-dir", cwd=tmp_path).strip()
        == (copy / "cmake" / "CudaExt").as_posix()
    )
    # As scikit-build-core looks for it.
    script = (
        "from importlib.metadata import entry_points\nfrom importlib.resources import files\n"
        "for group in ('cmake.module', 'cmake.root'):\n"
        "    (found,) = entry_points(group=group, name='CudaExt')\n"
        "    print(files(found.load()))"
    )
    assert environment.run("-c", script, cwd=tmp_path).split("\n") == [
        str(copy / "cmake" / "CudaExt")
    ] * 2 + [""]


def test_what_only_building_needs_is_told_by_the_name_of_its_extra() -> None:
    extras = tomllib.loads((CHECKOUT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    names = sorted(re.split(r"[-<>=;]", requirement)[0] for requirement in extras["build"])
    assert sorted(_ONLY_TO_BUILD) == names
