"""``cuda_ext_add_module`` under real CMake: builds, rebuilds and errors."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import cuda_ext
from cuda_ext import manifest
from tests.fixtures.cmake_projects import (
    APPLICATION,
    AXPY,
    CMAKE,
    FILES,
    INDEX,
    LISTS,
    MODULE,
    PACKAGE,
    CMakeProject,
)
from tests.fixtures.environments import Environment

pytestmark = [
    pytest.mark.host_compiler,
    pytest.mark.skipif(shutil.which("c++") is None, reason="takes a C++ compiler"),
]

OBJECTS = [
    "Building CXX object app.dir/main.cpp.o",
    "Building CXX object app_kernels.dir/cuda_ext/app_kernels/kernels.cpp.o",
]
ALL = [
    *OBJECTS,
    "Compiling CUDA source device/axpy.cu",
    "Compiling CUDA source device/fill.cu",
    "Generating app.kernels",
]

ONLY = ("--target", "app_kernels_generate")  # no C++


@pytest.fixture
def project(tmp_path: Path) -> CMakeProject:
    return CMakeProject(tmp_path / "a project").write()


def steps_of(project: CMakeProject, *options: str) -> list[str]:
    """Build; return the steps without linking, in any configuration."""
    steps = [re.sub(r"(\.dir)/Release", r"\1", step) for step in project.steps(*options)]
    return [step for step in steps if not step.startswith("Linking")]


@pytest.mark.parametrize("generator", ["Ninja", "Unix Makefiles"])
def test_only_dependents_of_an_edit_are_compiled_again(project: CMakeProject, generator: str) -> None:
    project.generator = generator

    def steps() -> list[str]:
        return steps_of(project)

    project.configure()
    assert steps() == ALL
    assert steps() == []
    (project.root / "device/index.cuh").write_text(INDEX.replace("blockIdx.x * blockDim.x + ", ""))
    assert steps() == [OBJECTS[1], "Compiling CUDA source device/axpy.cu", "Generating app.kernels"]
    (project.root / "device/fill.cu").write_text(
        (project.root / "device/fill.cu").read_text() + "\n// the same code\n",
    )
    assert "Compiling CUDA source device/axpy.cu" not in steps()
    assert steps() == []


def test_sources_that_come_and_go_are_noticed_when_building(project: CMakeProject) -> None:
    project.configure()
    project.build(*ONLY)
    (project.root / "device/scale.cu").write_text(FILES["device/fill.cu"].replace("fill", "scale"))
    assert "Compiling CUDA source device/scale.cu" in project.steps(*ONLY)
    (project.root / "device/fill.cu").unlink()
    project.build(*ONLY)
    assert [unit.title for unit in shipped(project).units] == ["device/axpy.cu", "device/scale.cu"]
    assert project.steps(*ONLY) == []


def shipped(project: CMakeProject) -> manifest.Manifest:
    """The manifest of the Python package in the build tree."""
    file = project.module / "python/app/kernels" / manifest.FILE_NAME
    return manifest.loads(file.read_bytes(), str(file))


def architectures(project: CMakeProject) -> list[list[str]]:
    return [[image.architecture for image in unit.images] for unit in shipped(project).units]


@pytest.mark.parametrize(
    ("words", "cache", "environment", "found"),
    [
        ("ARCHITECTURES sm_80 90-virtual", "75-real", "", ["sm_80", "compute_90"]),
        ("", "80;90a-real", "", ["sm_80", "compute_80", "sm_90a"]),
        ("ARCHITECTURES sm_80", "75", "86-real", ["sm_86"]),
    ],
)
def test_architectures_come_from_the_nearest_place(
    tmp_path: Path, words: str, cache: str, environment: str, found: list[str]
) -> None:
    module = f"cuda_ext_add_module(app_kernels NAME app.kernels SOURCES device/fill.cu {words})\n"
    project = CMakeProject(tmp_path / "app", cache={"CMAKE_CUDA_ARCHITECTURES": cache})
    project.write({**FILES, "CMakeLists.txt": LISTS + module})
    project.configure(CUDAARCHS=environment)
    # What decides is known when the project is configured.
    project.build(*ONLY, CUDAARCHS="100")
    assert architectures(project) == [found]


PYPROJECT = """[project]
name = "app"
version = "1"
[tool.cuda_ext.modules."app.kernels"]
sources = ["device/axpy.cu"]
architectures = ["sm_90"]
instantiate = ["axpy<float>"]
[tool.cuda_ext.modules."app.others"]
sources = ["device/fill.cu"]
"""


def test_the_keys_may_stand_in_pyproject(tmp_path: Path) -> None:
    lists = LISTS + "cuda_ext_add_module(app_kernels FROM_PYPROJECT NAME app.kernels)\n" + APPLICATION
    project = CMakeProject(tmp_path / "app").write(
        {**FILES, "CMakeLists.txt": lists, "pyproject.toml": PYPROJECT}
    )
    project.configure()
    project.build(*ONLY)
    assert architectures(project) == [["sm_90"]]
    (project.root / "pyproject.toml").write_text(PYPROJECT.replace('"sm_90"', '"sm_80", "sm_90"'))
    project.build(*ONLY)
    assert architectures(project) == [["sm_80", "sm_90"]]


def test_a_module_is_the_same_whichever_tool_builds_it(tmp_path: Path) -> None:
    from tests.fixtures.projects import build

    lists = LISTS + "cuda_ext_add_module(app_kernels FROM_PYPROJECT NAME app.kernels)\n"
    project = CMakeProject(tmp_path / "app").write(
        {**FILES, "CMakeLists.txt": lists, "pyproject.toml": PYPROJECT}
    )
    project.configure()
    project.build(*ONLY)
    package = build(project.root)["app.kernels"]
    place = project.module / "python/app/kernels"
    files = {p.relative_to(place).as_posix(): p.read_bytes() for p in place.rglob("*") if p.is_file()}
    assert files == dict(package.files)


def test_units_that_are_linked_are_compiled_one_by_one_before(tmp_path: Path) -> None:
    caller = "__device__ float twice(float x);\n__global__ void caller(float* x) { *x = twice(*x); }\n"
    files = {
        "CMakeLists.txt": LISTS
        + "cuda_ext_add_module(app_kernels NAME app.kernels SOURCES device/*.cu ARCHITECTURES sm_90 LINK)\n",
        "device/caller.cu": caller,
        "device/twice.cu": "__device__ float twice(float x) { return 2 * x; }\n",
    }
    project = CMakeProject(tmp_path / "app").write(files)
    project.configure()
    assert project.steps(*ONLY) == [
        "Compiling CUDA source device/caller.cu",
        "Compiling CUDA source device/twice.cu",
        "Generating app.kernels",
    ]
    (unit,) = shipped(project).units
    assert unit.title == "device/caller.cu, device/twice.cu"


def test_headers_that_come_are_noticed_too(tmp_path: Path) -> None:
    module = "cuda_ext_add_module(app_kernels NAME app.kernels ARCHITECTURES sm_90 HEADERS device/*.cuh)\n"
    files = {"CMakeLists.txt": LISTS + module, "device/fill.cu": FILES["device/fill.cu"], "device/a.cuh": ""}
    project = CMakeProject(tmp_path / "app").write(files)
    project.configure()
    project.build(*ONLY)
    (project.root / "device/b.cuh").write_text("// new\n")
    project.build(*ONLY)
    assert sorted(shipped(project).embedded or ()) == ["device/a.cuh", "device/b.cuh", "device/fill.cu"]


def test_a_project_is_found_through_a_link(tmp_path: Path) -> None:
    module = """cuda_ext_add_module(app_kernels NAME app.kernels ARCHITECTURES sm_90 INSTANTIATE axpy<float>
      SOURCES ${CMAKE_CURRENT_SOURCE_DIR}/**/*.cu INCLUDE_DIRECTORIES ${PROJECT_SOURCE_DIR}/device)
    """
    CMakeProject(tmp_path / "app").write({**FILES, "CMakeLists.txt": LISTS + module})
    (tmp_path / "link").symlink_to("app")
    project = CMakeProject(tmp_path / "link")
    project.configure("-B", str(tmp_path / "link/build"))
    # The build tree is in the project: the second build finds embedded files, and checks again.
    for _ in range(3):
        built = project.run(project.cmake, "--build", tmp_path / "link/build", *ONLY)
    assert "Re-running CMake" not in built
    assert "no work to do" in built


def test_the_loader_can_be_used_by_itself(tmp_path: Path) -> None:
    lists = LISTS + "add_executable(app main.cpp)\ntarget_link_libraries(app PRIVATE CudaExt::loader)\n"
    main = "#include <cuda_ext/loader.hpp>\nint main() { return cuda_ext::gpu_available() ? 0 : 0; }\n"
    project = CMakeProject(tmp_path / "app").write({"CMakeLists.txt": lists, "main.cpp": main})
    project.configure()
    project.build()
    project.run(project.executable)


def test_a_renamed_module_leaves_no_files(project: CMakeProject) -> None:
    project.configure()
    project.build(*ONLY)
    lists = LISTS + MODULE.replace("app.kernels", "app.sub.others")
    (project.root / "CMakeLists.txt").write_text(lists)
    project.build(*ONLY)
    headers = [path.relative_to(project.module).as_posix() for path in project.module.rglob("*.h")]
    manifests = [
        path.parent.relative_to(project.module).as_posix() for path in project.module.rglob("manifest.json")
    ]
    assert headers == ["include/app/sub/others.h"]
    assert manifests == ["python/app/sub/others"]


def test_without_a_cache_nothing_is_compiled_twice(project: CMakeProject) -> None:
    variables = {"CUDA_EXT_CACHE_SIZE": "0K", "CUDA_EXT_TRACE": str(project.root / "trace.json")}
    project.configure()
    project.build(*ONLY, **variables)
    events = json.loads((project.root / "trace.json").read_bytes())["traceEvents"]
    # The trace is of the last step, which found everything.
    outcomes = {event["args"]["outcome"] for event in events if "outcome" in event.get("args", {})}
    assert outcomes == {"cached"}


def test_compile_commands_have_the_device_sources(project: CMakeProject) -> None:
    database = project.module / "compile_commands.json"
    project.configure()
    assert not database.exists()
    project.configure("-DCMAKE_EXPORT_COMPILE_COMMANDS=2")  # as true as ON, to CMake
    entries = {
        Path(each["directory"], each["file"]): each["arguments"] for each in json.loads(database.read_text())
    }
    assert entries.keys() == {project.root / "device" / "axpy.cu", project.root / "device" / "fill.cu"}
    assert all("--cuda-gpu-arch=sm_90" in arguments for arguments in entries.values())


def test_a_mistake_in_a_kernel_is_the_compilers_message(project: CMakeProject) -> None:
    (project.root / "device/axpy.cu").write_text(AXPY.replace("index()", "indes()"))
    project.configure()
    output = project.build(status=None)
    assert 'device/axpy.cu(3): error: identifier "indes" is undefined' in output
    assert "Traceback" not in output


@pytest.mark.parametrize("generator", ["Ninja", "Unix Makefiles"])
def test_sources_may_have_unusual_names(tmp_path: Path, generator: str) -> None:
    names = ["a/b", "a.b", "am&p", "h#x", "100%", "with space", "größe", "d$x"]
    files = {
        f"{name}.cu": FILES["device/fill.cu"].replace("fill", f"fill_{i}") for i, name in enumerate(names)
    }
    module = "cuda_ext_add_module(app_kernels NAME app.kernels SOURCES *.cu a/*.cu ARCHITECTURES sm_90)\n"
    project = CMakeProject(tmp_path / "app", generator).write({**files, "CMakeLists.txt": LISTS + module})
    project.configure()
    project.build(*ONLY)
    assert len(shipped(project).units) == len(names)
    assert project.steps(*ONLY) == []


def test_headers_that_the_build_makes_come_first(tmp_path: Path) -> None:
    lists = (
        LISTS
        + """set(made "${CMAKE_CURRENT_BINARY_DIR}/made")
    add_custom_command(OUTPUT "${made}/value.cuh"
      COMMAND "${CMAKE_COMMAND}" -E sleep 0.5
      COMMAND "${CMAKE_COMMAND}" -E copy "${PROJECT_SOURCE_DIR}/value.in" "${made}/value.cuh"
      DEPENDS value.in)
    add_custom_target(header DEPENDS "${made}/value.cuh")
    cuda_ext_add_module(app_kernels NAME app.kernels ARCHITECTURES sm_90 OPTIONS "-I${made}" DEPENDS header)
    """
    )
    kernel = '#include "value.cuh"\n__global__ void fill(int* x) { *x = VALUE; }\n'
    files = {"CMakeLists.txt": lists, "device/fill.cu": kernel, "value.in": "#define VALUE 1\n"}
    project = CMakeProject(tmp_path / "app").write(files)
    project.configure()
    project.build(*ONLY)
    first = (project.module / "python/app/kernels/fill.fatbin").read_bytes()
    (project.root / "value.in").write_text("#define VALUE 2\n")
    project.build(*ONLY)
    assert (project.module / "python/app/kernels/fill.fatbin").read_bytes() != first


def test_values_arrive_as_they_were_written(tmp_path: Path) -> None:
    module = """cuda_ext_add_module(app_kernels NAME app.kernels ARCHITECTURES "80-real;90-real"
      SOURCES "device/fill.cu;device/other.cu" DEFINE "TEXT=\\"a;b\\"")
    """
    other = "__global__ void other(char* to) { to[0] = TEXT[1]; }\n"
    files = {
        "CMakeLists.txt": LISTS + module,
        "device/fill.cu": FILES["device/fill.cu"],
        "device/other.cu": other,
    }
    project = CMakeProject(tmp_path / "app").write(files)
    project.configure()
    project.build(*ONLY)
    assert architectures(project) == [["sm_80", "sm_90"]] * 2


# What is refused when the project is configured.


@pytest.mark.parametrize(
    ("module", "answer"),
    [
        (
            "cuda_ext_add_module(k SOURCES device/*.cu)",
            "cuda_ext_add_module(k): has no NAME; add the name by which",
        ),
        ("cuda_ext_add_module(k NAME kernels)", "cuda_ext_add_module(k): a module lives inside a package;"),
        (
            "cuda_ext_add_module(k NAME a.k SOURCE device/*.cu)",
            "cuda_ext_add_module(k): unknown keyword 'SOURCE'; did you",
        ),
        (
            "cuda_ext_add_module(k NAME a.k SOURCES dev/*.cu)",
            "cuda_ext_add_module(k): SOURCES: nothing matches 'dev/*.cu'",
        ),
        (
            "cuda_ext_add_module(k NAME a.k INCLUDE_DIRECTORIES inc)",
            "cuda_ext_add_module(k): INCLUDE_DIRECTORIES: 'inc' is",
        ),
        (
            "cuda_ext_add_module(k NAME a.k HEADERS a.h)",
            "cuda_ext_add_module(k): HEADERS: nothing matches 'a.h'",
        ),
        (
            "cuda_ext_add_module(k NAME a.k OVERRIDE SOURCES x.cu STD c++20)",
            "cuda_ext_add_module(k): OVERRIDE[0] SOURCES: 'x",
        ),
        (
            "cuda_ext_add_module(k FROM_PYPROJECT)",
            "cuda_ext_add_module(k): [tool.cuda_ext] has several modules; choose one",
        ),
        (
            "cuda_ext_add_module(k FROM_PYPROJECT NAME a.b)",
            "cuda_ext_add_module(k): [tool.cuda_ext] has no module 'a.b';",
        ),
        (
            "add_library(k INTERFACE)\ncuda_ext_add_module(k NAME a.k)",
            "cuda_ext_add_module(k): a target of that name exists already; choose",
        ),
        ("cuda_ext_add_module()", "cuda_ext_add_module Function invoked with incorrect arguments"),
        (
            "cuda_ext_add_module(a::k NAME a.k)",
            "cuda_ext_add_module(a::k): invalid target name; use letters",
        ),
        ('cuda_ext_add_module("" NAME a.k)', "cuda_ext_add_module(): invalid target name; use letters"),
        (
            "cuda_ext_add_module(k NAME a.k ARCHITECTURES sm_9O)",
            "cuda_ext_add_module(k): ARCHITECTURES: unknown architecture 'sm_9O'; spell it as in sm_90",
        ),
        (
            "cuda_ext_add_module(k NAME a.k)\ncuda_ext_add_module(other NAME a.k)",
            "cuda_ext_add_module(other): k is the module a.k already; choose another NAME",
        ),
    ],
)
def test_a_wrong_call_is_refused(tmp_path: Path, module: str, answer: str) -> None:
    project = CMakeProject(tmp_path / "app")
    project.write({**FILES, "CMakeLists.txt": LISTS + module, "pyproject.toml": PYPROJECT})
    assert project.refused().startswith(answer)


def test_a_project_without_the_table_is_refused(project: CMakeProject) -> None:
    (project.root / "CMakeLists.txt").write_text(LISTS + "cuda_ext_add_module(k FROM_PYPROJECT)")
    (project.root / "pyproject.toml").write_text("[project]\nname = 'a'\n")
    assert "pyproject.toml has no [tool.cuda_ext] table" in project.refused()


def test_a_project_without_cxx_is_refused(project: CMakeProject) -> None:
    (project.root / "CMakeLists.txt").write_text(LISTS.replace("LANGUAGES CXX", "LANGUAGES NONE") + MODULE)
    assert "the language CXX is not enabled; write project(app LANGUAGES CXX)" in project.refused()


def test_a_python_without_the_package_is_refused(project: CMakeProject, tmp_path: Path) -> None:
    other = tmp_path / "other"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", other], check=True)
    project.cache["CudaExt_PYTHON_EXECUTABLE"] = str(other / "bin/python")
    message = project.refused(PYTHONPATH="")
    assert (
        f"{other}/bin/python has no cuda-ext for Python 3.11 or newer; set CudaExt_PYTHON_EXECUTABLE"
        in message
    )


@pytest.mark.parametrize("python", ["/nowhere/python3", "/bin/false", "/bin/true"])
def test_a_python_that_cannot_be_run_is_refused(project: CMakeProject, python: str) -> None:
    project.cache["CudaExt_PYTHON_EXECUTABLE"] = python
    assert f"Reason given by package: {python} cannot be run (" in project.refused()


def test_an_old_python_is_refused(project: CMakeProject, tmp_path: Path) -> None:
    old = tmp_path / "python3.9"
    old.write_text("#!/bin/sh\necho 'unknown option -P' >&2; exit 2\n")
    old.chmod(0o755)
    project.cache["CudaExt_PYTHON_EXECUTABLE"] = str(old)
    assert "python3.9 has no cuda-ext for Python 3.11 or newer" in project.refused()


def test_a_machine_without_python_is_refused(project: CMakeProject) -> None:
    # Without Python on PATH, and with this checkout outside any environment.
    nowhere = (
        "set(CMAKE_PROGRAM_PATH)\nset(CMAKE_FIND_USE_SYSTEM_ENVIRONMENT_PATH OFF)\n"
        "set(CMAKE_FIND_USE_CMAKE_SYSTEM_PATH OFF)\n"
    )
    lists = LISTS.replace("find_package", f"{nowhere}find_package")
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
        LISTS.replace("find_package(CudaExt REQUIRED)\n", again) + MODULE
    )
    project.configure()


@pytest.mark.parametrize("entry", ["find_package(CudaExt REQUIRED)", "include(CudaExt)"])
@pytest.mark.parametrize("variable", ["CudaExt_PYTHON_EXECUTABLE", "Python_EXECUTABLE"])
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
    start, choice = LISTS.replace("find_package(CudaExt REQUIRED)\n", ""), f"set({variable} {sys.executable})"
    for lines in ([choice, entry], [entry, choice]):
        (project.root / "CMakeLists.txt").write_text("\n".join([start, *lines, MODULE]))
        project.configure()
        assert f"{sys.executable} -P -m cuda_ext" in (project.tree / "build.ninja").read_text()
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
        f'{LISTS}{MODULE}set(CudaExt_PYTHON_EXECUTABLE "{other}")\n{second}'
    )
    project.configure()
    commands = (project.tree / "build.ninja").read_text().replace("\\ ", " ").replace('"', "")
    assert f"{sys.executable} -P -m cuda_ext" in commands
    assert f"{other} -P -m cuda_ext" in commands


def test_a_module_that_is_included_is_built(project: CMakeProject) -> None:
    lists = LISTS.replace("find_package(CudaExt REQUIRED)", "include(CudaExt)")
    (project.root / "CMakeLists.txt").write_text(lists + MODULE + APPLICATION)
    project.cache["CMAKE_MODULE_PATH"] = str(CMAKE)
    project.configure()
    assert steps_of(project) == ALL


def test_a_project_may_do_without(project: CMakeProject) -> None:
    lists = LISTS.replace("CudaExt REQUIRED", "CudaExt") + 'message(STATUS "found: ${CudaExt_FOUND}")\n'
    (project.root / "CMakeLists.txt").write_text(lists)
    assert "found: 1" in project.configure()
    project.cache["CudaExt_PYTHON_EXECUTABLE"] = "/nowhere/python3"
    assert "found: 0" in project.configure()


# Where things are found.


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


def test_the_version_is_that_of_the_package(project: CMakeProject) -> None:
    for version, status in {"0.1": 0, "99": 1, "0.1...<99": 0, "0.0.1...<0.1": 1}.items():
        lists = LISTS.replace("CudaExt REQUIRED", f"CudaExt {version} REQUIRED")
        (project.root / "CMakeLists.txt").write_text(lists + MODULE)
        project.configure(status=status)


def test_cmake_dir_prints_the_directory_of_the_package(project: CMakeProject) -> None:
    directory = project.run(sys.executable, "-m", "cuda_ext", "cmake-dir").strip()
    assert Path(directory, "CudaExtConfig.cmake").is_file()


# Other versions of CMake than the one that the tests bring.


def cmake_of(version: str, place: Path) -> str:
    """Install CMake in that version; return its program."""
    environment = Environment.make(place / f"cmake {version}", f"cmake=={version}.*")
    (cmake,) = environment.prefix.glob("lib/python*/site-packages/cmake/data/bin/cmake")
    return str(cmake)


@pytest.mark.network
@pytest.mark.slow
def test_the_oldest_cmake_builds_all_the_same(project: CMakeProject, tmp_path: Path) -> None:
    project.cmake, project.generator = cmake_of("3.24", tmp_path), "Ninja Multi-Config"
    release = ("--config", "Release")
    project.configure()
    assert steps_of(project, *release) == ALL
    assert steps_of(project, *release) == []
    assert project.run(project.tree / "Release/app")


@pytest.mark.network
def test_an_older_cmake_is_refused(project: CMakeProject, tmp_path: Path) -> None:
    project.cmake = cmake_of("3.23", tmp_path)
    (project.root / "CMakeLists.txt").write_text(LISTS.replace("3.24", "3.23") + MODULE)
    assert "CudaExt needs CMake 3.24 or newer, and this is 3.23" in " ".join(
        project.configure(status=1).split()
    )


def test_what_nvcc_alone_compiles_is_not_embedded(tmp_path: Path) -> None:
    host = "#include <vector>\n__global__ void host(float* x) { *x = 1; }\n"
    module = MODULE.replace("JIT FALSE", "JIT COMPILER nvcc")
    files = {**FILES, "CMakeLists.txt": LISTS + module + APPLICATION, "device/host.cu": host}
    project = CMakeProject(tmp_path / "project").write(files)
    project.configure()
    output = project.build()
    assert (
        output.count("app.kernels: not embedded, and not compiled on demand:\n  device/host.cu: NVRTC does")
        == 1
    )
    assert list(shipped(project).embedded or ()) == ["device/axpy.cu", "device/fill.cu", "device/index.cuh"]
    assert project.executable.is_file()
