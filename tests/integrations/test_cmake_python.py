"""Which CMake package and which Python ``find_package(CudaExt)`` and ``cuda_ext_add_module`` use."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from packaging.version import Version

import cuda_ext
from tests.fixtures.cmake_projects import CMAKE, FILES, MODULE, PACKAGE, PYTHON_LISTS, CMakeProject


@pytest.fixture
def project(tmp_path: Path) -> CMakeProject:
    return CMakeProject(tmp_path / "a project").write({**FILES, "CMakeLists.txt": PYTHON_LISTS + MODULE})


def finding(project: CMakeProject, *options: str) -> dict[str, bool]:
    """Whether find_package finds the package with each of `options`."""
    start = PYTHON_LISTS.replace("find_package(CudaExt REQUIRED)\n", "")
    calls = "".join(
        f'find_package(CudaExt {each} QUIET)\nmessage(STATUS "{each}: ${{CudaExt_FOUND}}")\n'
        for each in options
    )
    (project.root / "CMakeLists.txt").write_text(start + calls)
    return {name: value == "1" for name, value in re.findall(r"^-- (.*): ([01])$", project.configure(), re.M)}


def test_a_python_without_the_package_is_refused(project: CMakeProject, tmp_path: Path) -> None:
    other = tmp_path / "other"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", other], check=True)
    project.cache["CudaExt_PYTHON_EXECUTABLE"] = str(other / "bin/python")
    message = project.refused(PYTHONPATH="")
    assert (
        f"{other}/bin/python has no cuda-ext for Python 3.11 or newer; set CudaExt_PYTHON_EXECUTABLE"
        in message
    )


@pytest.mark.parametrize(
    ("python", "problem"),
    [
        *((python, "cannot be run (") for python in ("/nowhere/python3", "/bin/false", "/bin/true")),
        ("old", "has no cuda-ext for Python 3.11 or newer"),
    ],
)
def test_a_python_that_cannot_be_used_is_refused(
    project: CMakeProject, tmp_path: Path, python: str, problem: str
) -> None:
    old = tmp_path / "old"
    old.write_text("#!/bin/sh\necho 'unknown option -P' >&2; exit 2\n")
    old.chmod(0o755)
    python = str(tmp_path / python)  # an absolute path stays
    project.cache["CudaExt_PYTHON_EXECUTABLE"] = python
    assert f"Reason given by package: {python} {problem}" in project.refused()


def test_a_machine_without_python_is_refused(project: CMakeProject) -> None:
    # Without Python on PATH, and with this checkout outside any environment.
    nowhere = (
        "set(CMAKE_PROGRAM_PATH)\nset(CMAKE_FIND_USE_SYSTEM_ENVIRONMENT_PATH OFF)\n"
        "set(CMAKE_FIND_USE_CMAKE_SYSTEM_PATH OFF)\n"
    )
    lists = PYTHON_LISTS.replace("find_package", f"{nowhere}find_package")
    (project.root / "CMakeLists.txt").write_text(lists + MODULE)
    project.cache["CudaExt_PYTHON_EXECUTABLE"] = ""
    assert "there is no Python; set CudaExt_PYTHON_EXECUTABLE to one in which" in project.refused()


def test_another_version_in_python_is_refused(project: CMakeProject, tmp_path: Path) -> None:
    shutil.copytree(CMAKE, tmp_path / "cmake")
    shutil.copytree(PACKAGE / "include", tmp_path / "include")
    version = tmp_path / "cmake" / "CudaExtConfigVersion.cmake"
    version.write_text(version.read_text().replace(cuda_ext.__version__, "99.0"))
    project.cache["CMAKE_PREFIX_PATH"] = str(tmp_path / "cmake")
    message = project.refused()
    assert f"{sys.executable} has cuda-ext {cuda_ext.__version__}, and CMake found CudaExt 99.0;" in message
    assert "set CudaExt_PYTHON_EXECUTABLE and CMAKE_PREFIX_PATH to the same environment" in message


def test_a_python_whose_package_is_broken_is_refused(project: CMakeProject, tmp_path: Path) -> None:
    (tmp_path / "cuda_ext.py").write_text("import broken\n")
    message = project.refused(PYTHONPATH=str(tmp_path))
    assert (
        f"{sys.executable} cannot import cuda_ext: ModuleNotFoundError: No module named 'broken'" in message
    )


def test_a_python_may_print_warnings(project: CMakeProject, tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text("import sys\nprint('a warning', file=sys.stderr)\n")
    paths = [str(tmp_path), *os.environ.get("PYTHONPATH", "").split(os.pathsep)]
    printed = project.configure(PYTHONPATH=os.pathsep.join(filter(None, paths)))
    assert re.search(r"CMake Warning at [^\n]*:\n  a warning\n", printed)


def test_a_project_may_look_again(project: CMakeProject) -> None:
    python = "set(CudaExt_PYTHON_EXECUTABLE {})\nfind_package(CudaExt)\n"
    again = python.format("/nowhere/python3") + python.format(sys.executable)
    (project.root / "CMakeLists.txt").write_text(
        PYTHON_LISTS.replace("find_package(CudaExt REQUIRED)\n", again) + MODULE
    )
    project.configure()


@pytest.mark.parametrize(
    ("variable", "entry"),
    [
        ("CudaExt_PYTHON_EXECUTABLE", "find_package(CudaExt REQUIRED)"),
        ("Python_EXECUTABLE", "include(CudaExt)"),
        pytest.param("CudaExt_PYTHON_EXECUTABLE", "include(CudaExt)", marks=pytest.mark.slow),
        pytest.param("Python_EXECUTABLE", "find_package(CudaExt REQUIRED)", marks=pytest.mark.slow),
    ],
)
def test_python_may_be_chosen_before_the_package_is_found_or_after(
    project: CMakeProject, tmp_path: Path, entry: str, variable: str
) -> None:
    # The Python on PATH does not have the package; in a checkout there is none around it.
    (tmp_path / "bin").mkdir()
    without = tmp_path / "bin/python3"
    without.write_text("#!/bin/sh\necho \"No module named 'cuda_ext'\" >&2; exit 1\n")
    without.chmod(0o755)
    project.cache = {
        "CMAKE_PREFIX_PATH": str(CMAKE),
        "CMAKE_MODULE_PATH": str(CMAKE),
        "CMAKE_PROGRAM_PATH": str(without.parent),
        "CudaExt_PYTHON_EXECUTABLE": "",
    }
    start, choice = (
        PYTHON_LISTS.replace("find_package(CudaExt REQUIRED)\n", ""),
        f"set({variable} {sys.executable})",
    )
    for lines in ([choice, entry], [entry, choice]):
        (project.root / "CMakeLists.txt").write_text("\n".join([start, *lines, MODULE]))
        project.configure()
        assert f"{sys.executable} -P -m cuda_ext" in (project.tree / "build.ninja").read_text()
    if entry == "include(CudaExt)":
        assert project.steps()[-1] == "Compiling app.kernels"
    (project.root / "CMakeLists.txt").write_text("\n".join([start, entry, MODULE]))
    assert (
        f"cuda_ext_add_module(app_kernels): {without} has no cuda-ext for Python 3.11 or newer; "
        "set CudaExt_PYTHON_EXECUTABLE to one in which"
    ) in project.refused()


def test_modules_may_be_compiled_by_different_pythons(project: CMakeProject, tmp_path: Path) -> None:
    other = tmp_path / "other python"
    other.write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
    other.chmod(0o755)
    second = MODULE.replace("app_kernels NAME app.kernels", "more_kernels NAME app.more")
    (project.root / "CMakeLists.txt").write_text(
        f'{PYTHON_LISTS}{MODULE}set(CudaExt_PYTHON_EXECUTABLE "{other}")\n{second}'
    )
    project.configure()
    commands = (project.tree / "build.ninja").read_text().replace("\\ ", " ").replace('"', "")
    assert f"{sys.executable} -P -m cuda_ext" in commands
    assert f"{other} -P -m cuda_ext" in commands


def test_a_project_may_do_without(project: CMakeProject) -> None:
    project.cache["CudaExt_PYTHON_EXECUTABLE"] = "/nowhere/python3"
    assert finding(project, "") == {"": False}


def test_python_is_that_of_the_environment_around_the_package(tmp_path: Path) -> None:
    prefix = tmp_path / "prefix"
    package = prefix / "lib/python3.12/site-packages/cuda_ext"
    shutil.copytree(CMAKE, package / "cmake")
    shutil.copytree(PACKAGE / "include", package / "include")
    (prefix / "bin").mkdir()
    python = prefix / "bin/python3.12"
    python.write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
    python.chmod(0o755)
    project = CMakeProject(tmp_path / "app").write()
    project.cache = {"CMAKE_PREFIX_PATH": str(package / "cmake"), "CudaExt_PYTHON_EXECUTABLE": ""}
    project.configure()
    assert f"{python} -P -m cuda_ext" in (project.tree / "build.ninja").read_text()


def test_versions_are_those_of_a_minor_version_or_a_range(project: CMakeProject) -> None:
    release = Version(cuda_ext.__version__)
    major, minor = release.major, release.minor
    compatible = {
        "": True,
        f"{major}.{minor}": True,
        cuda_ext.__version__: True,
        f"{cuda_ext.__version__} EXACT": True,
        f"{major}.{minor}...<99": True,
        f"0.0.1...{major}.{minor}": True,
        f"0.0.1...<{major}.{minor}": False,
        f"{major}.{minor}.99": False,
        f"{major}.{minor + 1}": False,
        f"{major + 1}": False,
        "0.0.9": False,
        "99": False,
        "OPTIONAL_COMPONENTS nvrtc": True,
        "COMPONENTS nvrtc": False,
    }
    assert finding(project, *compatible) == compatible


def test_components_are_refused(project: CMakeProject) -> None:
    lists = PYTHON_LISTS.replace("CudaExt REQUIRED", "CudaExt REQUIRED COMPONENTS nvrtc")
    (project.root / "CMakeLists.txt").write_text(lists)
    assert "CudaExt has no components, and COMPONENTS has nvrtc; leave out COMPONENTS" in project.refused()


def test_it_is_found_where_packages_are_searched_in_a_root_path_alone(project: CMakeProject) -> None:
    project.cache |= {
        "CMAKE_PREFIX_PATH": "",
        "CMAKE_FIND_ROOT_PATH": "/nowhere",
        "CMAKE_FIND_ROOT_PATH_MODE_PACKAGE": "ONLY",
    }
    assert finding(project, "") == {"": False}
    project.cache["CudaExt_DIR"] = str(CMAKE)
    assert finding(project, "") == {"": True}
