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

pytestmark = pytest.mark.xdist_group("environments")

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


@pytest.fixture(scope="module")
def source_distribution(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The sdist of this checkout."""
    out = tmp_path_factory.mktemp("sdist")
    copy = out / "checkout"
    ignored = shutil.ignore_patterns(".*", "__pycache__", "build", "*.egg-info", "*.so")
    shutil.copytree(CHECKOUT, copy, ignore=ignored)
    uv("build", "--sdist", "--out-dir", out, copy)
    (sdist,) = out.glob("*.tar.gz")
    return sdist


def test_a_source_distribution_has_what_a_build_needs(source_distribution: Path) -> None:
    with tarfile.open(source_distribution) as archive:
        names = {each.name.partition("/")[2] for each in archive if each.isfile()}
    native = {path.relative_to(CHECKOUT).as_posix() for path in PACKAGE.glob("runtime/*/native/*")}
    sources = {name.replace("cuda_ext/cmake/", "cmake/CudaExt/") for name in shipped()} | native
    top = {"CHANGELOG.md", "LICENSE", "MANIFEST.in", "README.md", "pyproject.toml", "setup.py"}
    written = {"PKG-INFO", "setup.cfg"}  # by setuptools
    assert {name for name in names if "egg-info" not in name} == sources | top | written


def test_a_source_distribution_gives_the_same_wheel(
    source_distribution: Path, cuda_ext_wheel: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same but for the modules in C, which a pure wheel lacks."""
    with tarfile.open(source_distribution) as archive:
        archive.extractall(tmp_path, filter="data")
    monkeypatch.setenv("PURE_PYTHON", "1")
    (tree,) = tmp_path.iterdir()
    uv("build", "--wheel", "--out-dir", tmp_path, tree)
    (wheel,) = tmp_path.glob("*-py3-none-any.whl")
    pure, compiled = ({n: z.read(n) for n in z.namelist()} for z in map(ZipFile, (wheel, cuda_ext_wheel)))
    assert {name.partition(".")[0] for name in compiled.keys() - pure.keys()} <= {
        "cuda_ext/runtime/driver/_calls",
        "cuda_ext/runtime/launch/_launch",
    }
    assert {n for n in pure if pure[n] != compiled[n]} == {
        n for n in pure if n.endswith(("/RECORD", "/WHEEL"))
    }


def test_the_registry_accepts_what_is_uploaded(source_distribution: Path, cuda_ext_wheel: Path) -> None:
    run(sys.executable, "-m", "twine", "check", "--strict", source_distribution, cuda_ext_wheel)
    with ZipFile(cuda_ext_wheel) as wheel:
        (name,) = (name for name in wheel.namelist() if name.endswith("/METADATA"))
        _, _, page = wheel.read(name).decode().partition("\n\n")
    readme = (CHECKOUT / "README.md").read_text(encoding="utf-8")
    targets, absolute = (re.findall(r"(?<!\w)\[[^]\[]*\]\(([^)\s]+)\)", text) for text in (readme, page))
    assert [link for link in absolute if not link.startswith(("https://", "#"))] == []
    assert all(map(str.endswith, absolute, targets))


def test_an_editable_install_finds_the_files_of_cmake(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy = tmp_path / "checkout"
    ignored = shutil.ignore_patterns(".*", "__pycache__", "build", "tests", "docs", "*.egg-info")
    shutil.copytree(CHECKOUT, copy, ignore=ignored)
    monkeypatch.setenv("PURE_PYTHON", "1")
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
