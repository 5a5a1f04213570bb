"""Sources that the build of a CMake project generates, in the binary directory and elsewhere."""

from __future__ import annotations

from pathlib import Path

import pytest

from cuda_ext.facts import manifest
from tests.fixtures.cmake_projects import PYTHON_LISTS, CMakeProject

pytestmark = pytest.mark.xdist_group("cmake_generated")

# As in libraries that generate kernels from templates: some when CMake configures, some when it builds.
LISTS = """
set(OUT "" CACHE PATH "")
set(NAME configured)
configure_file(device/kernel.cu.in gen/configured.cu @ONLY)
configure_file(device/limit.cuh.in include/limit.cuh @ONLY)
add_subdirectory(sub)
cuda_ext_add_module(app_kernels NAME app.kernels ARCHITECTURES sm_90
  SOURCES device/plain.cu "${CMAKE_CURRENT_BINARY_DIR}/gen/*.cu" "${CMAKE_BINARY_DIR}/sub/made.cu"
    "${OUT}/outside.cu"
  INCLUDE_DIRECTORIES device "${CMAKE_CURRENT_BINARY_DIR}/include"
  DEPENDS sources INSTANTIATE "made<float>"
  OVERRIDE SOURCES "${OUT}/outside.cu" INSTANTIATE "outside<int>")
generate(outside "${OUT}/outside.cu")
"""
FILES = {
    "CMakeLists.txt": PYTHON_LISTS
    + """
function(generate name output)
  add_custom_command(OUTPUT "${output}"
    COMMAND "${CMAKE_COMMAND}" -DNAME=${name} "-DIN=${PROJECT_SOURCE_DIR}/device/kernel.cu.in"
            "-DOUT=${output}" -P "${PROJECT_SOURCE_DIR}/generate.cmake"
    DEPENDS "${PROJECT_SOURCE_DIR}/device/kernel.cu.in")
endfunction()
"""
    + LISTS,
    "sub/CMakeLists.txt": 'generate(made "${CMAKE_CURRENT_BINARY_DIR}/made.cu")\n'
    'add_custom_target(sources DEPENDS "${CMAKE_CURRENT_BINARY_DIR}/made.cu")\n',
    "generate.cmake": 'configure_file("${IN}" "${OUT}" @ONLY)\n',
    "device/kernel.cu.in": '#include "helper.cuh"\n#include "limit.cuh"\n'
    "template <class T> __global__ void @NAME@(T* x) { x[0] = helper<T>(LIMIT); }\n"
    'extern "C" __global__ void @NAME@_plain(int* x) { *x = LIMIT; }\n',
    "device/limit.cuh.in": "#define LIMIT 3\n",
    "device/helper.cuh": "template <class T> __device__ T helper(int x) { return T(x); }\n",
    "device/plain.cu": "__global__ void plain(int* x) { *x = 1; }\n",
}
KERNELS = {
    *("made<float>", "outside<int>", "plain"),
    *(f"{name}_plain" for name in ("configured", "made", "outside")),
}


def package(project: CMakeProject) -> dict[str, bytes]:
    """The files of the generated package."""
    place = project.module / "python/app/kernels"
    return {p.relative_to(place).as_posix(): p.read_bytes() for p in place.rglob("*") if p.is_file()}


def read(files: dict[str, bytes]) -> manifest.Manifest:
    return manifest.loads(files[manifest.FILE_NAME], manifest.FILE_NAME)


def test_sources_may_be_generated_anywhere(tmp_path: Path) -> None:
    built = []
    for name, generator in (("one", "Ninja"), ("two", "Unix Makefiles")):
        project = CMakeProject(tmp_path / name / "app", generator).write(FILES)
        out = tmp_path / name / "out"
        project.cache["OUT"] = str(out)
        project.configure()
        assert not out.exists()
        project.build()
        assert project.steps() == []
        built.append(package(project))
    assert built[0] == built[1], "the same in every directory, with every generator"
    found = read(built[0])
    assert {kernel.expression for kernel in found.kernels} == KERNELS
    assert set(found.embedded or ()) == {
        *("device/helper.cuh", "device/plain.cu", "GENERATED_DIR_1/outside.cu", "BINARY_DIR/sub/made.cu"),
        *("BINARY_DIR/gen/configured.cu", "BINARY_DIR/include/limit.cuh"),
    }
    # Edits of a template and of a header reach what is generated from them; also a kernel that is new there.
    template = FILES["device/kernel.cu.in"]
    project.write({"device/kernel.cu.in": template.replace("_plain", "_simple"), "device/limit.cuh.in": "\n"})
    output = project.build(status=None)
    assert f'\n{out}/outside.cu(3): error: identifier "LIMIT" is undefined' in output
    project.write({"device/limit.cuh.in": "#define LIMIT 4\n"})
    project.build()
    kernels = {kernel.expression for kernel in read(package(project)).kernels}
    assert kernels == {name.replace("_plain", "_simple") for name in KERNELS}
    assert project.steps() == []


def test_a_build_in_the_source_tree(tmp_path: Path) -> None:
    project = CMakeProject(tmp_path / "app").write(FILES)
    project.tree.symlink_to(project.root.name)
    project.cache["OUT"] = str(project.root / "out")
    project.configure("-B", str(project.root))
    project.build()
    found = read(package(project))
    assert {kernel.expression for kernel in found.kernels} == KERNELS
    assert {"gen/configured.cu", "sub/made.cu", "out/outside.cu"} < set(found.embedded or ())
    assert project.steps() == []


def test_what_a_generated_source_lacks_is_known_when_it_is_built(tmp_path: Path) -> None:
    make = 'add_custom_command(OUTPUT made.cu COMMAND "${CMAKE_COMMAND}" -E touch made.cu)'
    source = 'SOURCES "${CMAKE_CURRENT_BINARY_DIR}/made.cu" INSTANTIATE "f<int>"'
    call = f"cuda_ext_add_module(app_kernels NAME app.kernels ARCHITECTURES sm_20 {source})"
    lists = f"{PYTHON_LISTS}{make}\n{call}\n"
    project = CMakeProject(tmp_path / "app").write({"CMakeLists.txt": lists})
    assert "ARCHITECTURES: " in project.refused()
    project.write({"CMakeLists.txt": lists.replace("sm_20", "sm_90")})
    project.configure()
    assert "INSTANTIATE: 'f<int>': no source defines a kernel 'f'" in project.build(status=None)
