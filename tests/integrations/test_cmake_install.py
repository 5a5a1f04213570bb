"""Modules in targets that are installed and exported, and in several libraries of one program."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from tests.fixtures.cmake_projects import PACKAGE, CMakeProject

pytestmark = [
    pytest.mark.xdist_group("cmake_install"),
    pytest.mark.host_compiler,
    pytest.mark.skipif(shutil.which("c++") is None, reason="takes a C++ compiler"),
]

PROJECTS = Path(__file__).parents[1] / "cmake"
NO_DRIVER = (
    r"there is no CUDA driver on this machine \(.*\); launching kernels requires an NVIDIA GPU and its driver"
)


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> CMakeProject:
    """A project with two modules in two libraries, built and installed into ``prefix``."""
    root = tmp_path_factory.mktemp("library") / "filters"
    shutil.copytree(PROJECTS / "library", root)
    project = CMakeProject(root)
    project.configure("-DCMAKE_INSTALL_LIBDIR=lib")
    project.build()
    project.run(project.cmake, "--install", project.tree, "--prefix", root.with_name("prefix"))
    return project


@pytest.fixture(scope="module")
def prefix(library: CMakeProject) -> Path:
    return library.root.with_name("prefix")


def outcomes(printed: str) -> dict[str, str]:
    """The result of launching each kernel."""
    return dict(line.split(": ", 1) for line in printed.splitlines())


def check_launches(printed: str) -> None:
    found = outcomes(printed)
    assert list(found) == ["window", "smooth"]
    for outcome in found.values():
        assert outcome == "launched" or re.fullmatch(NO_DRIVER, outcome) or "finds no GPU" in outcome


def test_two_libraries_of_a_program_may_each_have_a_module(library: CMakeProject) -> None:
    check_launches(library.run(library.tree / "both"))


def test_installed_files_do_not_need_cuda_ext(prefix: Path, tmp_path: Path) -> None:
    moved = Path(shutil.copytree(prefix, tmp_path / "moved"))
    root = Path(shutil.copytree(PROJECTS / "consumer", tmp_path / "consumer"))
    consumer = CMakeProject(
        root,
        cache={
            "CMAKE_PREFIX_PATH": str(moved),
            "CudaExt_PYTHON_EXECUTABLE": "",
            "CMAKE_DISABLE_FIND_PACKAGE_CudaExt": "ON",
        },
    )
    consumer.configure()
    consumer.build()
    check_launches(consumer.run(consumer.tree / "consumer"))


def test_no_installed_file_names_the_build(library: CMakeProject, prefix: Path) -> None:
    places = [str(place).encode() for place in (library.root, library.tree, PACKAGE)]
    naming = [
        file.relative_to(prefix).as_posix()
        for file in prefix.rglob("*")
        if file.is_file() and any(place in file.read_bytes() for place in places)
    ]
    assert naming == []


def test_headers_are_installed_each_once(prefix: Path) -> None:
    include = prefix / "include"
    found = {file.relative_to(include).as_posix() for file in include.rglob("*") if file.is_file()}
    modules = {
        f"filters/{module}{end}" for module in ("smoothing", "windowing") for end in (".h", "/cuda_ext.hpp")
    }
    assert found == {"filters/filters.h", *modules}


def test_the_python_package_is_installed_as_it_was_built(library: CMakeProject, prefix: Path) -> None:
    built = library.tree / "cuda_ext/smoothing/python/filters/smoothing"
    installed = prefix / "python/filters/smoothing"
    assert contents(installed) == contents(built)
    assert {"__init__.py", "manifest.json", "smooth.fatbin"} <= contents(installed).keys()
    # The other module has no destination for Python.
    assert [path.name for path in (prefix / "python/filters").iterdir()] == ["smoothing"]


def contents(directory: Path) -> dict[str, bytes]:
    files = (path for path in directory.rglob("*") if path.is_file())
    return {file.relative_to(directory).as_posix(): file.read_bytes() for file in files}
