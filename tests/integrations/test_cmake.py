"""``cuda_ext_add_module`` under real CMake: builds and rebuilds."""

from __future__ import annotations

import json
import re
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from cuda_ext.facts import manifest
from tests.fixtures.cmake_projects import (
    APPLICATION,
    AXPY,
    CMAKE,
    FILES,
    FILL,
    INDEX,
    LISTS,
    MAIN,
    MODULE,
    PYTHON_LISTS,
    CMakeProject,
)
from tests.fixtures.environments import Environment

OBJECTS = [
    "Building CXX object app.dir/main.cpp.o",
    "Building CXX object app_kernels.dir/cuda_ext/app_kernels/kernels.cpp.o",
    "Building CXX object cuda_ext_loader.dir/loader.cpp.o",
]
COMPILED = ["Compiling app.kernels"]
ALL = [*OBJECTS, *COMPILED]

ONLY = ("--target", "app_kernels_generate")  # no C++

GENERATORS = ["Ninja", "Unix Makefiles"]
# Names with odd characters show that the step is one for Make; the longer stories are the same for both.
with_each_generator = pytest.mark.parametrize(
    "generator", [GENERATORS[0], pytest.param(GENERATORS[1], marks=pytest.mark.slow)]
)


def takes_cxx(test: Callable[..., None]) -> Callable[..., None]:
    """Mark a test that needs a C++ compiler."""
    skipping = pytest.mark.skipif(shutil.which("c++") is None, reason="takes a C++ compiler")
    return pytest.mark.host_compiler(skipping(test))


@pytest.fixture
def project(tmp_path: Path) -> CMakeProject:
    """An application in C++ that uses the module."""
    return CMakeProject(tmp_path / "a project").write()


@pytest.fixture
def module(tmp_path: Path) -> CMakeProject:
    """The module by itself, in a project without C++."""
    return CMakeProject(tmp_path / "a project").write({**FILES, "CMakeLists.txt": PYTHON_LISTS + MODULE})


def steps_of(project: CMakeProject, *options: str) -> list[str]:
    """Build; return the steps without linking, in any configuration, and the loader without its directory."""
    steps = [re.sub(r"(\.dir)/Release", r"\1", step) for step in project.steps(*options)]
    steps = [re.sub(r"(cuda_ext_loader)_\w+(\.dir/).*/", r"\1\2", step) for step in steps]
    return [step for step in steps if not step.startswith("Linking")]


def shipped(project: CMakeProject) -> manifest.Manifest:
    """The manifest of the Python package in the build tree."""
    file = project.module / "python/app/kernels" / manifest.FILE_NAME
    return manifest.loads(file.read_bytes(), str(file))


def architectures(project: CMakeProject) -> list[list[str]]:
    return [[image.architecture for image in unit.images] for unit in shipped(project).units]


@takes_cxx
@with_each_generator
def test_only_dependents_of_an_edit_are_compiled_again(
    project: CMakeProject, generator: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_EXT_CACHE", str(tmp_path / "cache"))
    project.generator = generator

    def steps() -> list[str]:
        return steps_of(project)

    project.configure()
    assert steps() == ALL
    assert steps() == []
    (project.root / "device/index.cuh").write_text(INDEX.replace("blockIdx.x * blockDim.x + ", ""))
    assert steps() == [OBJECTS[1], *COMPILED]
    (project.root / "device/fill.cu").write_text(FILES["device/fill.cu"] + "\n// the same code\n")
    output = project.build()
    assert "device/fill.cu sm_90" in output
    assert "device/axpy.cu" not in output
    assert steps() == []


@takes_cxx
@with_each_generator
def test_a_build_tree_survives(tmp_path: Path, generator: str) -> None:
    call = "cuda_ext_add_module(app_kernels NAME app.kernels ARCHITECTURES 90-real JIT FALSE)\n"
    project = CMakeProject(tmp_path / "app", generator)
    project.write({"CMakeLists.txt": LISTS + call, "device/fill.cu": FILL})

    def files() -> dict[str, bytes]:
        paths = (path for path in project.module.rglob("*") if path.is_file() and path.suffix != ".d")
        return {path.relative_to(project.module).as_posix(): path.read_bytes() for path in paths}

    project.configure()
    assert project.steps(*ONLY) == COMPILED
    first = files()
    project.build("--target", "clean")
    assert files().keys() == {"arguments.txt", "generated.txt", "module.cmake", "module.json"}
    assert project.steps(*ONLY) == COMPILED
    project.configure("--fresh")
    assert project.steps(*ONLY, "--clean-first") == COMPILED
    # One that Ninja knows, and one that it does not.
    for name in ("include/app/kernels.h", "python/app/kernels/fill.fatbin"):
        (project.module / name).unlink()
        assert project.steps(*ONLY) == COMPILED
    # The directory is ours, whatever lies there.
    (project.module / "python/app/kernels/manifest.json").write_text("damaged")
    (project.module / "python/app/kernels/other").mkdir()
    (project.module / "kernels.cpp").unlink()
    assert project.steps(*ONLY) == COMPILED
    assert project.steps(*ONLY) == []
    assert files() == first
    # A renamed module leaves no files.
    project.write({"CMakeLists.txt": LISTS + call.replace("app.kernels", "app.sub.others")})
    project.build(*ONLY)
    places = {name.rpartition("/")[0] for name in files() if name.endswith((".h", "manifest.json"))}
    assert places == {"include/app/sub", "python/app/sub/others"}


@takes_cxx
@with_each_generator
@pytest.mark.skipif(sys.platform != "linux", reason="takes objects of ELF")
def test_images_in_an_object_are_linked(tmp_path: Path, generator: str) -> None:
    project = CMakeProject(tmp_path / "app", generator)
    call = "cuda_ext_add_module(app_kernels NAME app.kernels ARCHITECTURES 90-real EMBED object)\n"
    lists = LISTS + call + "add_executable(app main.cpp)\ntarget_link_libraries(app PRIVATE app_kernels)\n"
    main = "#include <app/kernels.h>\nint main() { return &app::kernels::cuda_ext_library() == nullptr; }\n"
    project.write({"CMakeLists.txt": lists, "main.cpp": main, "device/fill.cu": FILL})
    project.configure()
    project.build()
    project.run(project.executable)
    image = project.module / "python/app/kernels/fill.fatbin"
    assert image.read_bytes() in project.executable.read_bytes()
    (project.module / "kernels.images.o").unlink()
    assert steps_of(project) == COMPILED
    assert steps_of(project) == []
    (project.root / "device/fill.cu").write_text(FILL.replace("void fill", "void fill2"))
    project.build()
    assert image.read_bytes() in project.executable.read_bytes()


@takes_cxx
def test_the_cpp_of_a_module_and_the_loader_alone(tmp_path: Path) -> None:
    lists = (
        LISTS
        + "set(CMAKE_INTERPROCEDURAL_OPTIMIZATION ON)\n"
        + MODULE.replace("JIT FALSE", "JIT FALSE CXX_NAMESPACE my::gpu")
        + APPLICATION
        + "target_compile_options(app PRIVATE -Wall -Wextra -Wconversion -Wshadow -Werror)\n"
        + "add_executable(alone alone.cpp)\ntarget_link_libraries(alone PRIVATE CudaExt::loader)\n"
    )
    files = {
        **FILES,
        "CMakeLists.txt": lists,
        "main.cpp": MAIN.replace("app::kernels::", "my::gpu::"),
        "alone.cpp": "#include <cuda_ext/interface.hpp>\n"
        "int main() { return static_cast<int>(cuda_ext::threads(1).block.x); }\n",
    }
    project = CMakeProject(tmp_path / "app").write(files)
    project.configure()
    project.build()
    assert project.run(project.executable)
    project.run(project.tree / "alone")
    # Another compiler may read the source in another place.
    assert str(tmp_path) not in (project.module / "kernels.cpp").read_text()
    # Warnings of the project's options are those about its own code.
    (includes,) = re.findall(
        r"build CMakeFiles/app\.dir/.*?INCLUDES = ([^\n]*)",
        (project.tree / "build.ninja").read_text(),
        re.DOTALL,
    )
    assert len(re.findall(r"-isystem ", includes)) == 1
    assert "-I" not in includes


@takes_cxx
def test_objects_for_other_compiler_settings_are_others(tmp_path: Path) -> None:
    lists = """
set(CMAKE_MSVC_RUNTIME_LIBRARY MultiThreaded)
foreach(name IN ITEMS first second third)
  add_library(${name} STATIC)
  _cuda_ext_add_object(${name} loader)
  set(CMAKE_MSVC_RUNTIME_LIBRARY MultiThreadedDLL)
endforeach()
get_property(targets DIRECTORY PROPERTY BUILDSYSTEM_TARGETS)
list(LENGTH targets count)
message(STATUS "${count} targets")
"""
    project = CMakeProject(tmp_path).write({"CMakeLists.txt": LISTS + lists})
    assert "5 targets" in project.configure()


def test_a_python_module_needs_no_cpp(module: CMakeProject) -> None:
    module.configure()
    assert module.steps() == COMPILED
    assert {path.name for path in module.module.iterdir() if path.is_dir()} == {"python"}
    assert architectures(module) == [["sm_90"]] * 2
    assert module.steps() == []
    # A mistake in a kernel is the compiler's message, with the full path.
    source = module.root / "device/axpy.cu"
    source.write_text(AXPY.replace("index()", "indes()"))
    output = module.build(status=None)
    assert f'\n{source}(3): error: identifier "indes" is undefined' in output
    assert "Traceback" not in output


@takes_cxx
def test_a_python_module_among_cpp_compiles_no_library(tmp_path: Path) -> None:
    lists = LISTS + MODULE.replace("JIT FALSE", "PYTHON_ONLY PYTHON_DESTINATION lib")
    project = CMakeProject(tmp_path / "app").write({**FILES, "CMakeLists.txt": lists})
    project.configure()
    assert steps_of(project) == COMPILED
    project.run(project.cmake, "--install", project.tree, "--prefix", tmp_path / "prefix")
    assert (tmp_path / "prefix/lib/app/kernels/manifest.json").is_file()


def test_files_that_come_and_go_are_noticed_when_building(tmp_path: Path) -> None:
    call = """cuda_ext_add_module(app_kernels NAME app.kernels ARCHITECTURES sm_90
      SOURCES device/*.cu EMBED_SOURCES device/*.cuh)
    """
    files = {"CMakeLists.txt": PYTHON_LISTS + call, "device/fill.cu": FILL, "device/a.cuh": ""}
    project = CMakeProject(tmp_path / "app").write(files)
    project.configure()
    project.build()
    project.write({"device/scale.cu": FILL.replace("fill", "scale"), "device/b.cuh": "// new\n"})
    (project.root / "device/fill.cu").unlink()
    project.build()
    assert [unit.title for unit in shipped(project).units] == ["device/scale.cu"]
    assert sorted(shipped(project).embedded or ()) == ["device/a.cuh", "device/b.cuh", "device/scale.cu"]
    assert project.steps() == []


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
    project.write({**FILES, "CMakeLists.txt": PYTHON_LISTS + module})
    project.configure(CUDAARCHS=environment)
    # What decides is known when the project is configured.
    project.build(CUDAARCHS="100")
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
    from tests.fixtures.projects import build

    lists = PYTHON_LISTS + "cuda_ext_add_module(app_kernels FROM_PYPROJECT NAME app.kernels)\n"
    project = CMakeProject(tmp_path / "app").write(
        {**FILES, "CMakeLists.txt": lists, "pyproject.toml": PYPROJECT}
    )
    project.configure()
    project.build()
    assert architectures(project) == [["sm_90"]]
    # The module is the same whichever tool builds it.
    package = build(project.root)["app.kernels"]
    place = project.module / "python/app/kernels"
    files = {p.relative_to(place).as_posix(): p.read_bytes() for p in place.rglob("*") if p.is_file()}
    assert files == dict(package.files)
    (project.root / "pyproject.toml").write_text(PYPROJECT.replace('"sm_90"', '"sm_80", "sm_90"'))
    project.build()
    assert architectures(project) == [["sm_80", "sm_90"]]


def test_a_project_is_found_through_a_link(tmp_path: Path) -> None:
    module = """cuda_ext_add_module(app_kernels NAME app.kernels ARCHITECTURES sm_90 INSTANTIATE axpy<float>
      SOURCES ${CMAKE_CURRENT_SOURCE_DIR}/**/*.cu INCLUDE_DIRECTORIES ${PROJECT_SOURCE_DIR}/device)
    """
    CMakeProject(tmp_path / "app").write({**FILES, "CMakeLists.txt": PYTHON_LISTS + module})
    (tmp_path / "link").symlink_to("app")
    project = CMakeProject(tmp_path / "link")
    project.configure("-B", str(tmp_path / "link/build"))
    # The build tree is in the project: the second build finds embedded files, and checks again.
    for _ in range(3):
        built = project.run(project.cmake, "--build", tmp_path / "link/build")
    assert "Re-running CMake" not in built
    assert "no work to do" in built


def test_compile_commands_have_the_device_sources(module: CMakeProject) -> None:
    database = module.module / "compile_commands.json"
    module.configure()
    assert not database.exists()
    module.configure("-DCMAKE_EXPORT_COMPILE_COMMANDS=2")  # as true as ON, to CMake
    entries = {
        Path(each["directory"], each["file"]): each["arguments"] for each in json.loads(database.read_text())
    }
    assert entries.keys() == {module.root / "device" / "axpy.cu", module.root / "device" / "fill.cu"}
    assert all("--cuda-gpu-arch=sm_90" in arguments for arguments in entries.values())


@pytest.mark.parametrize("generator", GENERATORS)
def test_names_and_values_arrive_as_they_were_written(tmp_path: Path, generator: str) -> None:
    names = ["a/b", "a.b", "am&p #100 =?", "größe d$x ${y}", "it's [a](b){c} @,~!"]
    files = {f"{name}.cu": FILL.replace("fill", f"fill_{i}") for i, name in enumerate(names)}
    files["other.cu"] = "__global__ void other(char* to) { to[0] = TEXT[1]; }\n"
    module = """cuda_ext_add_module(app_kernels NAME app.kernels SOURCES "*.cu;a/*.cu"
      ARCHITECTURES "80-real;90-real" DEFINE "TEXT=\\"a;b\\"")
    """
    project = CMakeProject(tmp_path / "app", generator)
    project.write({**files, "CMakeLists.txt": PYTHON_LISTS + module})
    project.configure()
    project.build()
    assert architectures(project) == [["sm_80", "sm_90"]] * len(files)
    assert project.steps() == []


def test_headers_that_the_build_makes_come_first(tmp_path: Path) -> None:
    lists = (
        PYTHON_LISTS
        + """set(made "${CMAKE_CURRENT_BINARY_DIR}/made")
    add_custom_command(OUTPUT "${made}/value.cuh"
      COMMAND "${CMAKE_COMMAND}" -E sleep 0.5
      COMMAND "${CMAKE_COMMAND}" -E copy "${PROJECT_SOURCE_DIR}/value.in" "${made}/value.cuh"
      DEPENDS value.in)
    cuda_ext_add_module(app_kernels NAME app.kernels ARCHITECTURES sm_90 OPTIONS "-I${made}"
      DEPENDS header "${made}/value.cuh" value.in)
    add_custom_target(header DEPENDS "${made}/value.cuh")
    """
    )
    kernel = '#include "value.cuh"\n__global__ void fill(int* x) { *x = VALUE; }\n'
    files = {"CMakeLists.txt": lists, "device/fill.cu": kernel, "value.in": "#define VALUE 1\n"}
    project = CMakeProject(tmp_path / "app").write(files)
    project.configure()
    project.build()
    first = (project.module / "python/app/kernels/fill.fatbin").read_bytes()
    (project.root / "value.in").write_text("#define VALUE 2\n")
    project.build()
    assert (project.module / "python/app/kernels/fill.fatbin").read_bytes() != first


# Other versions of CMake than the one that the tests bring.


def cmake_of(version: str, place: Path) -> str:
    """Install CMake in that version; return its program."""
    environment = Environment.make(place / f"cmake {version}", f"cmake=={version}.*")
    (cmake,) = environment.prefix.glob("lib/python*/site-packages/cmake/data/bin/cmake")
    return str(cmake)


@takes_cxx
@pytest.mark.network
@pytest.mark.slow
def test_the_oldest_cmake_builds_all_the_same(project: CMakeProject, tmp_path: Path) -> None:
    project.cmake, project.generator = cmake_of("3.24", tmp_path), "Ninja Multi-Config"
    release = ("--config", "Release")
    project.configure()
    assert steps_of(project, *release) == ALL
    assert steps_of(project, *release) == []
    assert project.run(project.tree / "Release/app")
    assert steps_of(project, *release, *ONLY, "--clean-first") == COMPILED


@pytest.mark.network
def test_an_older_cmake_is_refused(module: CMakeProject, tmp_path: Path) -> None:
    module.cmake = cmake_of("3.23", tmp_path)
    (module.root / "CMakeLists.txt").write_text(PYTHON_LISTS.replace("3.24", "3.23") + MODULE)
    assert "CudaExt needs CMake 3.24 or newer, and this is 3.23" in " ".join(
        module.configure(status=1).split()
    )


# Compilers for other machines, with toolchain files as distributions write them.

TOOLCHAIN = """set(CMAKE_SYSTEM_NAME {})
set(CMAKE_SYSTEM_PROCESSOR {})
set(CMAKE_CXX_COMPILER {})
set(CMAKE_FIND_ROOT_PATH /nowhere)
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_PACKAGE ONLY)
"""


@pytest.mark.host_compiler
@pytest.mark.slow
@pytest.mark.parametrize(
    ("system", "processor", "compiler", "executable", "begins"),
    [
        ("Linux", "aarch64", "aarch64-linux-gnu-g++", "app", b"\x7fELF"),
        ("Windows", "AMD64", "x86_64-w64-mingw32-g++-posix", "app.exe", b"MZ"),
    ],
)
def test_other_machines_are_built_for(
    project: CMakeProject, system: str, processor: str, compiler: str, executable: str, begins: bytes
) -> None:
    if not shutil.which(compiler):
        pytest.skip(f"takes {compiler}")
    lists = LISTS + MODULE.replace("JIT FALSE", "JIT") + APPLICATION
    project.write({"CMakeLists.txt": lists, "toolchain.cmake": TOOLCHAIN.format(system, processor, compiler)})
    # Package directories are searched below the root path alone; that of this package is given by name.
    project.cache = {
        "CMAKE_PREFIX_PATH": "",
        "CMAKE_TOOLCHAIN_FILE": str(project.root / "toolchain.cmake"),
        "CudaExt_DIR": str(CMAKE),
    }
    project.configure()
    project.build()
    assert (project.tree / executable).read_bytes().startswith(begins)
