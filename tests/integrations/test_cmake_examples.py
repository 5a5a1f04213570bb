"""The examples for CMake, by the commands in their READMEs, in new environments."""

from __future__ import annotations

import re
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
from uv import find_uv_bin

import cuda_ext
from tests.fixtures.cmake_projects import CMAKE, CMakeProject
from tests.fixtures.environments import CHECKOUT, Environment, run, uv

pytestmark = [
    pytest.mark.xdist_group("examples"),
    pytest.mark.host_compiler,
    pytest.mark.skipif(shutil.which("g++") is None, reason="takes g++"),
]

# All of the machine that a build of the extension may use; CMake, Ninja and Make are not among it.
TOOLS = ("ar", "as", "bash", "c++", "cc", "g++", "gcc", "ld", "nm", "ranlib", "sh", "strip", "uname")
# Less is compiled, and faster.
QUICKLY = {
    "CUDAARCHS": "90-real",
    "SKBUILD_CMAKE_BUILD_TYPE": "None",
    "CMAKE_ARGS": "-DCMAKE_UNITY_BUILD=ON",
    "CFLAGS": "-O0",
}
NO_GPU = "There is no GPU here: nothing was launched."
NO_DRIVER = (
    r"RuntimeError: there is no CUDA driver on this machine \(libcuda\.so\.1: .*\); "
    r"launching kernels requires an NVIDIA GPU and its driver"
)
# A launch on memory that is not there.
ON_NOTHING = """
from example_extension import _core
class Nothing:
    def __dlpack__(self, **_):
        return _core.dlpack(4096, 8, 64, self)
    def __dlpack_device__(self):
        return 2, 0
_core.axpy(2.0, Nothing(), Nothing())
"""
KERNELS = [
    *("axpy<double>", "axpy<float>"),
    *(f"blockwise::reduce<{dtype}, {block}>" for dtype in ("double", "float") for block in (128, 256)),
]

needs_gpu = pytest.mark.skipif(not cuda_ext.gpu_available(), reason="there is no GPU that can be used")


@pytest.fixture(scope="module")
def examples(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The examples in a copy of this checkout, like a clone."""

    copy = tmp_path_factory.mktemp("clone") / "checkout"
    built = shutil.ignore_patterns(".*", "__pycache__", "*.so")
    for name in ("cmake", "cuda_ext"):
        shutil.copytree(CHECKOUT / name, copy / name, ignore=built)
    built = shutil.ignore_patterns(".*", "__pycache__", "build", "wheels", "installed")
    shutil.copytree(CHECKOUT / "examples", copy / "examples", ignore=built)
    for name in ("LICENSE", "README.md", "pyproject.toml", "setup.py"):
        shutil.copy(CHECKOUT / name, copy)
    return copy / "examples"


def commands(project: Path) -> list[str]:
    """Return the commands in the README of `project`."""
    text = (project / "README.md").read_text(encoding="utf-8")
    (block,) = re.findall(r"```console\n(.*?)```", text, re.DOTALL)
    return [line.removeprefix("$ ") for line in block.splitlines() if line.startswith("$ ")]


@dataclass(frozen=True)
class Session:
    """A shell in the directory of `project`, with the programs of the environment and of `tools`."""

    project: Path
    environment: Environment
    tools: Path

    @classmethod
    def start(cls, project: Path, directory: Path, *tools: str) -> Session:
        """Create an environment in `directory`, with only `tools` of this machine on PATH."""
        environment = Environment(directory / "environment")
        uv("venv", "--python", sys.executable, environment.prefix)
        (directory / "bin").mkdir()
        for tool in tools:
            if found := shutil.which(tool):
                (directory / "bin" / tool).symlink_to(found)
        return cls(project, environment, directory / "bin")

    def type(self, command: str, status: int = 0, **variables: str) -> str:
        path = f"{self.environment.python.parent}:{self.tools}"
        command = self._with_uv(command)
        return run(
            "bash", "-c", command, status=status, cwd=self.project, **{"PATH": path, **QUICKLY, **variables}
        )

    def _with_uv(self, command: str) -> str:
        """Replace pip by uv in `command`, which is much faster."""
        command = re.sub(r"^pip wheel --no-deps --wheel-dir", "uv build --wheel --out-dir", command)
        command = re.sub(r"^pip (\w+)", rf"uv pip \1 --python '{self.environment.prefix}'", command)
        return re.sub(r"^uv ", f"'{find_uv_bin()}' ", command)


@dataclass(frozen=True)
class Extension:
    """The example for scikit-build-core, installed with the commands of its README."""

    session: Session
    printed: tuple[str, ...]

    @property
    def demonstration(self) -> str:
        return self.printed[-2]

    @property
    def tests(self) -> str:
        return self.printed[-1]


# CI leaves out what follows: test_init installs a new project of scikit-build-core, too, and runs its tests.


@pytest.fixture(scope="module")
def extension(examples: Path, tmp_path_factory: pytest.TempPathFactory) -> Extension:
    directory = tmp_path_factory.mktemp("extension")
    session = Session.start(examples / "scikit_build_core", directory, *TOOLS)
    for absent in ("cmake", "ninja", "make", "nvcc"):
        session.type(f"type {absent}", status=1)
    return Extension(session, tuple(map(session.type, commands(session.project))))


@pytest.mark.slow
@pytest.mark.network
def test_the_extension_lists_its_kernels(extension: Extension) -> None:
    assert (
        "blockwise::reduce<float, 256>(long long n, const float* x, float* partial)"
        in extension.demonstration
    )
    assert f"The extension module holds them too: {', '.join(KERNELS)}" in extension.demonstration
    lines = extension.demonstration.splitlines()
    assert lines[-1] == NO_GPU or len([line for line in lines if " ok " in line]) == 8


@pytest.mark.slow
@pytest.mark.network
def test_the_tests_of_the_extension_report_skips(extension: Extension) -> None:
    without_gpu = (
        "2 passed, 5 skipped" in extension.tests and "no GPU here to launch the kernels on" in extension.tests
    )
    assert without_gpu or "7 passed" in extension.tests


@pytest.mark.slow
@pytest.mark.network
def test_the_wheel_has_the_extension_and_the_package(extension: Extension) -> None:
    (record,) = extension.session.environment.prefix.glob("lib/*/site-packages/example_extension-*/RECORD")
    names = {line.partition(",")[0] for line in record.read_text().splitlines()}
    files = {re.sub(r"_core\.[^/]*\.so$", "_core.so", name) for name in names if "__pycache__" not in name}
    assert {name for name in files if ".dist-info/" not in name} == {
        *(
            f"example_extension/{name}.py"
            for name in ("__init__", "__main__", "comparison", "device_array", "launch")
        ),
        "example_extension/_core.so",
        *(f"example_extension/kernels/{name}" for name in ("__init__.py", "__init__.pyi", "manifest.json")),
        *(f"example_extension/kernels/{name}.fatbin" for name in ("axpy", "reduce")),
        *(f"example_extension/kernels/sources/device/{name}" for name in ("axpy.cu", "reduce.cu")),
        "example_extension/kernels/sources/device/detail/block_sum.cuh",
        "example_extension/py.typed",
    }


@pytest.mark.slow
@pytest.mark.network
def test_installing_the_wheel_installs_no_compiler(extension: Extension) -> None:
    found = extension.session.type("pip list --format freeze")
    assert "cuda-ext==" in found
    assert not re.search("nvrtc|nvfatbin|cmake|ninja|nanobind|scikit", found)


@pytest.mark.slow
@pytest.mark.network
def test_errors_in_cpp_are_exceptions(extension: Extension) -> None:
    if cuda_ext.gpu_available():
        pytest.skip("is about a machine without a driver")
    program = extension.session.project.with_name("on_nothing.py")
    program.write_text(ON_NOTHING)
    printed = extension.session.type(f"python '{program}'", status=1, LD_LIBRARY_PATH="")
    assert re.fullmatch(NO_DRIVER, printed.splitlines()[-1])


@pytest.mark.network
@pytest.mark.slow
def test_it_can_be_installed_editable(extension: Extension, tmp_path: Path) -> None:
    project = shutil.copytree(extension.session.project, tmp_path / "project")
    session = Session.start(project, tmp_path, *TOOLS)
    session.type("pip install --find-links wheels --editable '.[demo]'")
    (project / "src/example_extension/edited.py").write_text("from . import _core, kernels\n")
    assert f"too: {', '.join(KERNELS)}" in session.type("python -m example_extension")
    session.type("python -c 'import example_extension.edited'")


def check_application(printed: str) -> None:
    first, last = printed.splitlines()
    assert re.fullmatch(r"application\.kernels, compiled by nvrtc 13\.\d+: collatz", first)
    assert last in (NO_GPU, "Below 1000000, it takes longest from 837799 to one: 524 steps.")


def check_times(printed: str) -> None:
    head, *lines = printed.splitlines()
    if head != NO_GPU:
        assert [line.split("  ")[0] for line in lines] == ["gelu(x) * y", "x + y"]
        assert all(re.search(r"  +[\d.]+ ms +[\d.]+ ms +[\d.]+ us +\d+$", line) for line in lines)


@pytest.mark.network
@pytest.mark.slow
def test_the_application_is_built_as_its_readme_documents(examples: Path, tmp_path: Path) -> None:
    if not shutil.which("cmake") or not shutil.which("make"):
        pytest.skip("takes CMake and Make")
    session = Session.start(examples / "cmake_application", tmp_path, *TOOLS, "cmake", "make")
    *_, printed, times = map(session.type, commands(session.project))
    check_application(printed)
    check_times(times)


@pytest.mark.gpu
@needs_gpu
def test_the_application_computes_on_a_gpu(tmp_path: Path) -> None:
    if not shutil.which("cmake") or not shutil.which("ninja"):
        pytest.skip("takes CMake and Ninja")
    project = CMakeProject(tmp_path / "application")
    shutil.copytree(CHECKOUT / "examples" / "cmake_application", project.root)
    project.configure(CUDAARCHS="native")
    project.build()
    printed = project.run(project.tree / "application")
    check_application(printed)
    assert NO_GPU not in printed
    times = project.run(project.tree / "expressions", "gelu(x) * y", "x + y", VIRTUAL_ENV=sys.prefix)
    check_times(times)
    assert NO_GPU not in times


@pytest.mark.gpu
@needs_gpu
def test_the_extension_computes_on_a_gpu(tmp_path: Path) -> None:
    for module in ("nanobind", "numpy", "pip", "scikit_build_core"):
        pytest.importorskip(module)
    project = shutil.copytree(CHECKOUT / "examples" / "scikit_build_core", tmp_path / "extension")
    site = tmp_path / "site"
    run(
        *(sys.executable, "-m", "pip", "install", "--no-build-isolation", "--no-deps", "--no-index"),
        *("--target", site, project),
        CUDAARCHS="native",
        CMAKE_ARGS=f"-DCudaExt_ROOT={CMAKE} -DCudaExt_PYTHON_EXECUTABLE={sys.executable}",
    )
    printed = run(sys.executable, "-m", "pytest", project / "tests", PYTHONPATH=str(site))
    assert "7 passed" in printed
