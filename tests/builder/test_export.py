"""``cuda-ext export``: a directory of C++ that builds wherever it lies, without this package."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import cuda_ext
from tests.fixtures.cmake_projects import FILL, CMakeProject
from tests.fixtures.environments import CHECKOUT, run

pytestmark = [
    pytest.mark.xdist_group("export"),
    pytest.mark.host_compiler,
    pytest.mark.skipif(shutil.which("g++") is None, reason="takes g++"),
]

PYPROJECT = """[project]
name = "my-kernels"
version = "1.2"
[tool.cuda_ext]
architectures = ["sm_90"]
[tool.cuda_ext.modules."app.kernels"]
sources = ["device/scale.cu"]
instantiate = ["scale<float>"]
[tool.cuda_ext.modules."app.others"]
sources = ["device/fill.cu"]
headers = ["device/*.cuh"]
"""
SCALE = "template <class T> __global__ void scale(T a, T* x) { x[threadIdx.x] *= a; }\n"
FILES = {
    "pyproject.toml": PYPROJECT,
    "device/scale.cu": SCALE,
    "device/fill.cu": FILL,
    "device/math.cuh": "#define ONE 1\n",
}
# A program of the library's users, with a launch of each module.
MAIN = """#include <app/kernels.h>
#include <app/others.h>
#include <cstdio>
int main() {
  for (const auto& kernel : app::kernels::cuda_ext_module.kernels) std::puts(kernel.expression);
  auto launched = app::others::fill.try_launch({1, 32}, nullptr, 1.0f);
  std::puts(launched ? "launched" : "not launched");
}
"""


def export(root: Path, directory: Path, *options: str | Path, status: int = 0) -> str:
    return run(
        *(sys.executable, "-m", "cuda_ext", "export", directory, "--from", root, *options), status=status
    )


def contents(directory: Path) -> dict[str, bytes]:
    files = (path for path in directory.rglob("*") if path.is_file())
    return {file.relative_to(directory).as_posix(): file.read_bytes() for file in files}


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("project")
    CMakeProject(root).write(FILES)
    return root


@pytest.fixture(scope="module")
def moved(project: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The exported modules, in another place than that where they were written."""
    place = tmp_path_factory.mktemp("places")
    printed = export(project, place / "first")
    assert printed.splitlines()[-3:] == [
        f"{place}/first: library my_kernels 1.2",
        "  #include <app/kernels.h>",
        "  #include <app/others.h>",
    ]
    return (place / "first").rename(place / "a place")


def check_program(program: Path) -> None:
    printed = run(program).splitlines()
    assert printed[0] == "scale<float>"
    assert printed[1] in ("launched", "not launched")


def test_an_export_is_the_same_every_time_and_names_no_place(project: Path, moved: Path) -> None:
    files = contents(moved)
    export(project, moved)
    assert contents(moved) == files
    places = [
        str(place).encode() for place in (project, moved.parent, CHECKOUT, Path(cuda_ext.__file__).parent)
    ]
    naming = [name for name, content in files.items() if any(place in content for place in places)]
    assert naming == []


def test_it_builds_with_a_compiler_alone(moved: Path, tmp_path: Path) -> None:
    (tmp_path / "main.cpp").write_text(MAIN)
    include = [f"-I{directory}" for directory in moved.glob("*/include")]
    run(
        "g++",
        "-std=c++17",
        "-O0",
        *include,
        *moved.rglob("*.cpp"),
        tmp_path / "main.cpp",
        "-ldl",
        "-o",
        tmp_path / "main",
    )
    check_program(tmp_path / "main")


def test_modules_without_compilation_on_demand_have_all_files(tmp_path: Path) -> None:
    plain = PYPROJECT.replace('headers = ["device/*.cuh"]\n', "")
    CMakeProject(tmp_path / "project").write({**FILES, "pyproject.toml": plain})
    export(tmp_path / "project", tmp_path / "out")
    sources = sorted((tmp_path / "out").rglob("*.cpp"))
    assert [source.name for source in sources] == ["kernels.cpp", "others.cpp", "loader.cpp"]
    run("g++", "-std=c++17", "-fsyntax-only", *sources)


CONSUMER = """cmake_minimum_required(VERSION 3.15...4.0)
project(consumer LANGUAGES CXX)
find_package(my_kernels 1.2 REQUIRED)
add_executable(main main.cpp)
target_link_libraries(main PRIVATE my_kernels::my_kernels)
"""


@pytest.mark.slow
def test_it_is_installed_and_found_by_cmake_and_pkg_config(moved: Path, tmp_path: Path) -> None:
    library = CMakeProject(moved, cache={"CMAKE_INSTALL_LIBDIR": "lib/here"})
    nothing = {"CMAKE_PREFIX_PATH": "", "CudaExt_PYTHON_EXECUTABLE": ""}
    library.cache |= nothing
    library.configure()
    library.build()
    prefix = tmp_path / "prefix"
    library.run("cmake", "--install", library.tree, "--prefix", prefix)
    prefix = prefix.rename(tmp_path / "moved prefix")
    found = prefix / "lib/here/cmake/my_kernels"
    consumer = CMakeProject(tmp_path / "consumer", cache={**nothing, "my_kernels_DIR": str(found)})
    consumer.write({"CMakeLists.txt": CONSUMER, "main.cpp": MAIN})
    consumer.configure()
    consumer.build()
    check_program(consumer.tree / "main")
    if shutil.which("pkg-config") is None:
        pytest.skip("takes pkg-config")
    flags = f'PKG_CONFIG_PATH="{prefix}/lib/here/pkgconfig" pkg-config --cflags --libs my_kernels'
    run("bash", "-c", f"eval g++ -std=c++17 main.cpp $({flags}) -o main", cwd=consumer.root)
    check_program(consumer.root / "main")


# Rules that Bazel of the registry would load from elsewhere.
STAND_INS = {
    "cc": "cc_library cc_binary cc_test cc_import cc_toolchain cc_toolchain_suite fdo_profile objc_library",
    "java": "java_binary java_import java_library java_test java_plugin java_runtime java_toolchain",
    "proto": "proto_lang_toolchain proto_library",
}


@pytest.mark.network
@pytest.mark.slow
def test_bazel_builds_it(project: Path, tmp_path: Path) -> None:
    if shutil.which("npm") is None or not sys.platform.startswith("linux"):
        pytest.skip("takes npm and Linux")
    run("npm", "install", "--prefix", tmp_path / "npm", "@bazel/bazel-linux_x64@2.1.0")
    (bazel,) = (tmp_path / "npm").glob("node_modules/@bazel/*/bazel-2.1.0-linux-x86_64")
    root = tmp_path / "workspace"
    export(project, root / "third_party/kernels", "--jit")
    workspace = ""
    for name, rules in STAND_INS.items():
        place = root / "rules" / name / name
        place.mkdir(parents=True)
        for file in (place.parent / "WORKSPACE", place.parent / "BUILD", place / "BUILD"):
            file.touch()
        (place / "defs.bzl").write_text("".join(f"{rule} = native.{rule}\n" for rule in rules.split()))
        workspace += f'local_repository(name = "rules_{name}", path = "rules/{name}")\n'
    library = "//third_party/kernels:my_kernels"
    CMakeProject(root).write(
        {
            "WORKSPACE": workspace,
            "BUILD": 'cc_binary(name = "main", srcs = ["main.cpp"], copts = ["-std=c++17"],\n'
            f'          deps = ["{library}"])\n',
            "main.cpp": MAIN,
        }
    )
    start = (bazel, f"--output_user_root={tmp_path / 'bazel'}")
    try:
        run(*start, "build", "//:main", cwd=root)
        check_program(root / "bazel-bin/main")
    finally:
        subprocess.run([*start, "shutdown"], cwd=root, check=False)
        for directory, _, _ in os.walk(tmp_path / "bazel"):
            Path(directory).chmod(0o755)  # so that it can be removed


def test_a_module_of_cmake_is_exported(tmp_path: Path) -> None:
    lists = (
        "cmake_minimum_required(VERSION 3.24)\nproject(app LANGUAGES NONE)\nfind_package(CudaExt REQUIRED)\n"
        "configure_file(device/fill.cu.in fill.cu)\n"
        'cuda_ext_add_module(app_kernels NAME app.kernels SOURCES "${CMAKE_CURRENT_BINARY_DIR}/fill.cu"\n'
        "  ARCHITECTURES sm_90 JIT)\n"
    )
    project = CMakeProject(tmp_path / "app").write({"CMakeLists.txt": lists, "device/fill.cu.in": FILL})
    project.configure()
    export(project.module, tmp_path / "out", "--package-version", "3", "--c-interface")
    files = contents(tmp_path / "out")
    assert {"app_kernels.pc", "cuda_ext/on_demand/on_demand.cpp", "app.kernels/kernels.cpp"} <= files.keys()
    assert "app.kernels/include/app/kernels/c.h" in files
    assert b"Version: 3\n" in files["app_kernels.pc"]
    assert not any(str(tmp_path).encode() in content for content in files.values())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--name", "a b"], "--name: 'a b' is not a name for a library; use letters, digits and underscores"),
        (["--package-version", "1.2rc1"], "write up to four numbers, as in 1.2.3"),
        (["--from", "nowhere"], "nowhere/pyproject.toml: there is no such file"),
    ],
)
def test_a_wrong_option(project: Path, tmp_path: Path, options: list[str], message: str) -> None:
    printed = export(project, tmp_path / "out", *options, status=1)
    assert message in printed
    assert len(printed.splitlines()) <= 20
    assert not (tmp_path / "out").exists()


def test_files_of_others_stay(project: Path, moved: Path, tmp_path: Path) -> None:
    place = Path(shutil.copytree(moved, tmp_path / "vendored"))
    (place / "conanfile.py").write_text("mine\n")
    printed = export(project, place, status=1)
    assert f"{place}/conanfile.py: is not a file of an export; move it, or name another directory" in printed
    (place / "conanfile.py").unlink()
    (place / "BUILD.bazel").write_text("mine\n")
    assert "BUILD.bazel: was changed after it was exported; move it, or remove it" in export(
        project, place, status=1
    )
    (place / "BUILD.bazel").unlink()
    export(project, place)
    assert contents(place) == contents(moved)
