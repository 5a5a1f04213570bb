"""The generated package: its stubs check calls against the kernels' signatures and are readable."""

from __future__ import annotations

import ast
import json
import os
import re
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from cuda_ext.builder.package.generate import Package, generate, render_init
from cuda_ext.builder.package.stubs import write_stub
from cuda_ext.facts import manifest as manifest_file
from cuda_ext.facts.launches import FixedLaunch
from tests.fixtures.device_code import module, unit

# One process knows the standard library from its first run of mypy.
pytestmark = pytest.mark.xdist_group("types")

ROOT = Path(__file__).parents[3]
# pyright takes seconds each time: in CI it reads the stubs of all kinds of kernels and of arguments.
with_each_tool = pytest.mark.parametrize("tool", ["mypy", "pyright"])
with_mypy_first = pytest.mark.parametrize("tool", ["mypy", pytest.param("pyright", marks=pytest.mark.slow)])

SOURCE = r"""
#include <cuda_fp16.h>
struct Pair { float x, y; };
enum class Mode : unsigned char { A, B };
extern "C" __global__ void histogram(const unsigned char* data, unsigned long long n, unsigned* bins) {}
template <class T> __global__ void axpy(int n, T a, const T* x, T* y) {}
__global__ void mixed(bool flag, Mode mode, double d, __half h, Pair pair, int) {}
__global__ void nothing() {}
__global__ void overloaded(int* p) {}
__global__ void overloaded(float* p) {}
__constant__ float weights[9];
namespace ns {
__device__ int counter;
__global__ void plain(int n) {}
namespace inner { template <class T, int N> __global__ void reduce(const T* x, T* y) {} }
}
"""
INSTANTIATE = (
    "axpy<float>",
    "axpy<__half>",
    "ns::inner::reduce<double, 256>",
    "ns::inner::reduce<float, 128>",
)

# Names that a stub, a module or Python itself has a use for.
AWKWARD = r"""
__global__ void Kernel(int self, int grid, int lambda, int, int* from, int block) {}
__global__ void lambda(int n) {}
__global__ void None(int n) {}
__global__ void match(int n) {}
__global__ void __init__(int n) {}
__global__ void __getattr__(int n) {}
__global__ void Literal(int n) {}
__global__ void overload(int n) {}
__global__ void object(int n) {}
__global__ void str(int n) {}
__global__ void tuple(int n) {}
__global__ void Any(int n) {}
__global__ void _axpy(int n) {}
__global__ void _axpy_float(int n) {}
__global__ void _ns(int n) {}
__global__ void ns_plain(int n) {}
template <class... T> __global__ void pack(T*... x) {}
template <class T> __global__ void axpy(T* x) {}
template <char C> __global__ void character() {}
namespace ns { __global__ void plain(int n) {} __global__ void Dim(int n) {} __device__ int Pointer; }
namespace pass { __global__ void hidden(int n) {} }
__constant__ float Symbol[3];
"""
AWKWARD_INSTANTIATE = (
    *("pack<int, float>", "axpy<float>", "axpy<double>"),
    *("character<'\\''>", "character<'\"'>", "character<'\\n'>", "character<(char)1>"),
)


@pytest.fixture(scope="module")
def package() -> Package:
    return generate(module(unit(SOURCE, *INSTANTIATE)))


@pytest.fixture(scope="module")
def awkward() -> Package:
    return generate(module(unit(AWKWARD, *AWKWARD_INSTANTIATE)))


def stub(package: Package) -> str:
    return package.files["__init__.pyi"].decode()


def attributes(package: Package) -> set[str]:
    """Return the names that the stub declares for the module."""
    body = ast.parse(stub(package)).body
    return {
        node.target.id
        for node in body
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)
    }


# ------------------------------------------------------------------------------------------- the files


def test_a_package_holds_all_that_it_needs(package):
    assert set(package.files) == {
        *("__init__.py", "__init__.pyi", "manifest.json"),
        *("unit.fatbin", "sources/device/unit.cu"),
    }


@pytest.mark.parametrize("editable", [False, True])
def test_without_cuda_ext_the_module_says_what_to_install(
    package: Package, editable: bool, tmp_path: Path
) -> None:
    package = replace(package, files={**package.files, "__init__.py": render_init(package.name, editable)})
    package.write(tmp_path / Path(*package.name.split(".")))
    command = [sys.executable, "-IS", "-c", f"import sys; sys.path.append('.'); import {package.name}"]
    error = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True).stderr.splitlines()
    assert error[-1] == (
        f"ModuleNotFoundError: {package.name} needs cuda-ext, which is not installed; pip install cuda-ext "
        f"({package.name.partition('.')[0]} should require it)"
    )
    assert "During handling" not in " ".join(error)


def test_the_manifest_names_the_files(package):
    manifest = manifest_file.loads(package.files["manifest.json"], "manifest.json")
    named = {image.file for u in manifest.units for image in u.images}
    assert manifest.embedded is not None
    assert named | {f"sources/{name}" for name in manifest.embedded} <= set(package.files)


def test_the_same_module_gives_the_same_bytes(package):
    assert (
        generate(module(unit(SOURCE, *reversed(INSTANTIATE)))).files["__init__.pyi"]
        == package.files["__init__.pyi"]
    )
    assert generate(module(unit(SOURCE, *INSTANTIATE))) == package


# ------------------------------------------------------------------------------------------- the stubs


EXPORT = """
from pkg.kernels import __kernels__ as kernels

__all__ = ["kernels"]
"""


CHECKED = """\
# mypy: disable-error-code="assignment, misc, overload-cannot-match, overload-overlap, override"
# pyright: reportIncompatibleMethodOverride=false, reportOverlappingOverload=false
"""


def check(tool: str, package: Package, directory: Path, *users: str) -> list[tuple[str, int]]:
    """Type-check `users`, which import ``kernels``; return the files and lines with errors."""
    if not (directory / "pkg").exists():
        package.write(directory / "pkg/kernels")
        (directory / "pkg/__init__.py").write_text(EXPORT)
        (directory / "pkg/py.typed").touch()
        # The stub itself is checked, too, but for overloads and overrides, which are less strict on purpose.
        path = directory / "pkg/kernels/__init__.pyi"
        _, _, text = path.read_text().split("\n", 2)
        path.write_text(f"{CHECKED}{text}")
    names = [f"user{number}.py" for number in range(len(users))]
    for name, text in zip(names, users, strict=True):
        (directory / name).write_text(text)
    if tool == "mypy":
        command = ["mypy", f"--config-file={ROOT / 'pyproject.toml'}", *names, "pkg"]
        environment = {"MYPYPATH": str(ROOT)}
    else:
        settings = {"typeCheckingMode": "strict", "extraPaths": [str(ROOT)], "include": [*names, "pkg"]}
        (directory / "pyrightconfig.json").write_text(json.dumps(settings))
        command = ["pyright", "--pythonpath", sys.executable]
        environment = {}
    run = subprocess.run(
        [sys.executable, "-m", *command],
        cwd=directory,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
    )
    assert not run.stderr
    found = re.findall(r"^\s*(\S+?):(\d+)(?::\d+)?(?: -|:) error", run.stdout, re.MULTILINE)
    assert bool(found) == bool(run.returncode), run.stdout
    return [(Path(file).name, int(line)) for file, line in found]


RIGHT = """
from typing import Any

from cuda_ext import out
from pkg import kernels


def use(x: Any, raw: memoryview) -> None:
    launch = {"grid": 1}
    kernels.histogram(x, 10, None, grid=1, block=128)
    kernels.histogram(x, 10, 0, grid=(1, 2), block=(8, 8, 8), stream=x, shared=1024, cooperative=True)
    kernels.histogram(data=x, n=10, bins=x, grid=1, block=128)
    kernels.histogram(x, 10, out(x), threads=10, wait=False, dependent=True, stream=None)
    kernels.histogram(x, 10, x, threads=10, block=32, cluster=(2, 1))
    kernels.histogram.bind(grid=1, block=1, stream=3)(x, 10, x)
    kernels.axpy(10, 2.0, x, x, threads=10)
    kernels.axpy["float"](10, 2.0, x, x, grid=1, block=128)
    kernels.axpy["float"](10, 2, x, x, grid=1, block=128)
    kernels.axpy["__half"](10, 2.0, x, y=x, grid=1, block=128)
    kernels.axpy["double"](10, 2.0, x, x, grid=1, block=128)
    kernels.axpy(n=10, a=2, x=x, y=None, grid=1, block=(1, 2, 3))
    kernels.axpy[7]
    kernels.axpy["int"](1, 2, x, x, 1, grid=1, block=1)
    kernels["axpy<float>"](10, 2.0, x, y=x, grid=1, block=1)
    kernels["axpy"]["float"](10, 2.0, x, y=x, grid=1, block=1)
    kernels["axpy<int>"](1, 2, x, x, 1, grid=1, block=1)
    kernels["overloaded(float*)"](x, grid=1, block=1)
    kernels["ns::inner::reduce<double, 256>"](x, x, grid=1, block=256)
    kernels["ns"].plain(3, grid=1, block=1)
    kernels.ns["inner::reduce<double, 256>"](x, y=x, threads=256)
    kernels["ns::counter"].copy_from(3)
    kernels[str(x)](x, threads=1)
    kernels.overloaded(p=x, threads=1)
    kernels.mixed(True, 1, 2.0, 3.0, raw, 4, grid=1, block=128)
    kernels.nothing(grid=1, block=1)
    kernels.overloaded["(int*)"](x, grid=1, block=1)
    kernels.ns.plain(3, grid=1, block=1)
    kernels.ns.inner.reduce["double, 256"](x, x, grid=1, block=256)
    kernels.ns.inner.reduce["double", 256](x, x, grid=1, block=256)
    kernels.axpy["float"].bind(grid=1, block=1)(10, 2.0, x, x)
    kernels.axpy.prepare(["__half", "double"])
    kernels.weights.copy_from(1.5 if x else raw, stream=x)
    print(kernels.weights.numpy().shape, kernels.weights.element, kernels.axpy["float"].occupancy(256))
    print(kernels.weights, kernels.ns.counter, kernels.histogram.signature, launch)
"""
# Each line is wrong. They follow RIGHT.
WRONG = """

def misuse(x: Any) -> None:
    kernels.histogran(x, 10, x, grid=1, block=128)
    kernels.histogram(x, 10, grid=1, block=128)
    kernels.histogram(x, 10, x, x, grid=1, block=128)
    kernels.histogram(x, 1.5, x, grid=1, block=128)
    kernels.histogram(x, "10", x, grid=1, block=128)
    kernels.histogram(1.5, 10, x, grid=1, block=128)
    kernels.histogram(x, 10, x, grid=1.5, block=128)
    kernels.histogram(x, 10, x, grid=1, block=128, blocks=1)
    kernels.histogram(x, count=10, bins=x, grid=1, block=128)
    kernels.axpy["float"](10, "2.0", x, x, grid=1, block=128)
    kernels.axpy["float"](2.0, 10, x, x, grid=1, block=128)
    kernels.axpy[1.5](10, 2.0, x, x, grid=1, block=128)
    kernels.mixed(1, 1, 2.0, 3.0, b"", 4, grid=1, block=128)
    kernels.mixed(True, 1, 2.0, 3.0, "", 4, grid=1, block=128)
    kernels.ns.plane(3, grid=1, block=1)
    kernels.ns.inner.reduce["double, 256"](x, grid=1, block=256)
    kernels.weights(3)
    kernels.weights.copy_from()
    kernels.weights.shapes
    kernels.ns(3, grid=1, block=1)
    kernels.histogram(x, 10, x, threads="10")
    kernels.histogram(x, 10, x, threads=10, stream="default")
    kernels.histogram.bind(grids=1, block=1)
    kernels.axpy["float"](10, 2.0, x, grid=1, block=128)
    kernels.axpy["float", 1.5]
    kernels.axpy(1, "a", x, x, threads=3)
    kernels.axpy(1, 2.0, x, threads=3)
    kernels.axpy(1.5, 2.0, x, x, threads=3)
    kernels.axpy(1, 2.0, "x", x, threads=3)
    kernels.axpy(1, 2.0, x, x, 3, threads=3)
    kernels.axpy(1, 2.0, x, x, threads=3.5)
    kernels.axpy(1, 2.0, x, z=x, threads=3)
    kernels.overloaded(1.5, threads=1)
    kernels.axpy["int"](1, 2, x, x, grid=1.5, block=1)
    kernels.ns.inner.reduce["double", 256](x, grid=1, block=256)
    kernels.ns.inner.reduce["float", 128](x, 1.5, grid=1, block=256)
    kernels["axpy<float>"](10, "2.0", x, x, grid=1, block=1)
    kernels["axpy<float>"](10, 2.0, x, grid=1, block=1)
    kernels["axpy<float>"].bind(grid=1, block=1)(10, "2.0", x, x)
    kernels["axpy"](10, 2.0, x, "x", threads=1)
    kernels["ns::plain"](3.5, grid=1, block=1)
    kernels["ns::inner::reduce<double, 256>"](x, x, x, grid=1, block=256)
    kernels["axpy<int>"](1, x, stream="default", threads=1)
    kernels["weights"].copy_form(x)
    kernels.ns["plain"](3.5, grid=1, block=1)
    kernels[3]
    kernels.axpy["float"].bind(grid=1, block=1)(10, 2.0, x)
    kernels.axpy["float"].bind(grid=1, block=1)(m=10, a=2.0, x=x, y=x)
    kernels.axpy["float"].occupancy()
    kernels.histogram(out(x), 10, x, grid=1, block=128)
    kernels.overloaded["(int*)"](x, x, grid=1, block=1)
"""


def assert_misuses_are_reported(
    tool: str, package: Package, directory: Path, *users: tuple[str, str]
) -> None:
    """Have nothing reported in the first text of each user, and each line of the function in the other."""
    expected = [
        (f"user{user}.py", number)
        for user, (right, wrong) in enumerate(users)
        for number, line in enumerate(wrong.splitlines(), right.count("\n") + 1)
        if line.startswith("    ")
    ]
    assert sorted(set(check(tool, package, directory, *map("".join, users)))) == expected


@with_each_tool
def test_correct_uses_are_accepted_and_wrong_ones_are_reported(package, tool, tmp_path):
    def imported(text: str) -> str:
        """A module that is not exported lacks brackets only."""
        lines = text.replace("from pkg import kernels", "import pkg.kernels as kernels").splitlines()
        return "\n".join("" if line.strip().startswith("kernels[") else line for line in lines) + "\n"

    assert_misuses_are_reported(tool, package, tmp_path, (RIGHT, WRONG), (imported(RIGHT), imported(WRONG)))


KINDS = """
#include <cuda_bf16.h>
struct CUtensorMap { unsigned long long opaque[16]; };
struct Pair { float x, y; };
__global__ void kinds(signed char integer, unsigned number, double real, bool flag, __nv_bfloat16 half,
                      float2 z, Pair pair, CUtensorMap map, const float* source, float* result) {}
"""
VALUES = """
import ctypes
from typing import Any

import numpy as np
import numpy.typing as npt
from cuda_ext import describe, out
from pkg import kernels


class Pair(ctypes.Structure): ...


class Map:
    def getPtr(self) -> int:
        return 0


class Tensor:
    def data_ptr(self) -> int:
        return 0


class Buffer:
    def __dlpack_device__(self) -> tuple[int, int]:
        return 2, 0


class Stream:
    def __cuda_stream__(self) -> tuple[int, int]:
        return 0, 7


def use(x: Any, array: npt.NDArray[np.float32]) -> None:
    describe(kernels)
"""
# Right and wrong arguments of each parameter and keyword.
ARGUMENTS = {
    "integer": ("-1, True, np.int8(3)", "1.5, '1', None, 1j"),
    "number": ("7, np.uint32(3)", "1.5, '1', None, b''"),
    "real": ("1, 2.5, np.float32(1)", "'1', None, 1j, b''"),
    "flag": ("True", "1.5, 'true', None"),
    "half": ("1, 2.5, b'ab'", "'1', None, 1j"),
    "z": ("1, 2.5, 1j, b'abcdefgh'", "'1', None"),
    "pair": ("Pair(), b'abcdefgh', memoryview(b'')", "1, 2.5, 'ab', None"),
    "map": ("Map(), bytes(128)", "1, 'ab', None, Tensor()"),
    "source": ("0, None, array, Tensor(), Buffer()", "1.5, 'x', [1.0], b'', out(array), Map()"),
    "result": ("0, None, array, out(array), Tensor(), Buffer()", "1.5, 'x', [1.0], b'', Map()"),
    "grid": ("1, (1,), (1, 2), (1, 2, 3), np.int64(7)", "1.5, '1', None, [1], (1, 2, 3, 4), (1.5,)"),
    "block": ("1, (1, 2, 3), None", "1.5, '1', (1, 2, 3, 4)"),
    "shared": ("1", "1.5, '1', None"),
    "cluster": ("1, (2, 1), None", "1.5, '1'"),
    "cooperative": ("True", "'yes', 1.5"),
    "dependent": ("True", "'yes', 1.5"),
    "stream": ("1, Stream(), None", "'default', 1.5, Tensor()"),
    "wait": ("True", "'no', 1.5"),
}


@with_each_tool
def test_arguments_of_each_kind_are_checked(tool, tmp_path):
    package = generate(module(KINDS + "__constant__ float weights[9];"))
    lines = VALUES.splitlines()
    wrong = []
    for name, values in ARGUMENTS.items():
        for text, is_wrong in zip(values, (False, True), strict=True):
            for value in ast.parse(f"[{text}]", mode="eval").body.elts:
                given = {**dict.fromkeys(ARGUMENTS, "x"), name: ast.unparse(value)}
                keywords = ", ".join(f"{each}={argument}" for each, argument in given.items())
                lines.append(f"    kernels.kinds({keywords})")
                wrong += [len(lines)] if is_wrong else []
    for value in ("array", "bytes(36)", "Tensor()", "1.5"):
        lines.append(f"    kernels.weights.copy_from({value}, stream=Stream())")
    for value in ("'text'", "[1.0]", "None", "array, stream='default'"):
        lines.append(f"    kernels.weights.copy_from({value})")
        wrong.append(len(lines))
    found = check(tool, package, tmp_path, "\n".join(lines) + "\n")
    assert {lines[number - 1] for _, number in found} == {lines[number - 1] for number in wrong}


def test_kernels_with_the_same_parameters_share_their_call():
    instantiate = [f"k<{each}>" for each in range(40)]
    text = stub(generate(module(unit("template <int N> __global__ void k(float* x) {}", *instantiate))))
    assert text.count("def __call__(") == 3  # of kernels, of the template, of bound launches
    assert text.count("(float* x)") < 5 * len(instantiate)


@with_mypy_first
def test_kernels_are_chosen_by_the_names_of_template_parameters(package, tool, tmp_path):
    manifest = manifest_file.loads(package.files["manifest.json"], "manifest.json")
    reduce = next(kernel for kernel in manifest.kernels if "double, 256" in kernel.expression)
    many = [
        reduce._replace(expression=f"ns::inner::reduce<{t}, {n}>", constants={"T": t, "N": f"{n}"})
        for t in ("float", "double", "__half", "__nv_bfloat16")
        for n in range(125)
    ]
    others = tuple(each for each in manifest.kernels if "reduce" not in each.expression)
    text = write_stub(manifest._replace(kernels=(*others, *many)), {})
    assert len(text) < 100_000
    package = replace(package, files={**package.files, "__init__.pyi": text.encode()})
    right = """
from pkg import kernels
from pkg.kernels import __kernels__


def use(width: int, dtype: object) -> None:
    kernels.ns.inner.reduce.choose(N=width, T=dtype)(0, 0, grid=1, block=1)
    kernels.ns.inner.reduce.choose(N=width)(0, 0, T="float", grid=1, block=1)
    kernels.ns.inner.reduce(0, 0, N=4, T=dtype, grid=1, block=1)
    kernels.ns.inner.reduce["double", 100](0, 0, grid=1, block=1)
    __kernels__["ns::inner::reduce<float, 3>"](0, y=0, grid=1, block=1)
    kernels.axpy.choose(T="float").bind(grid=1, block=1)
"""
    wrong = """
kernels.axpy.choose(U="float")
kernels.axpy.choose("float")
kernels.ns.inner.reduce(0, 0, N="wide", T="float", grid=1, block=1)
"""
    found = check(tool, package, tmp_path, f"{right}\n{wrong}")
    first = len(right.splitlines()) + 2
    assert {line for _, line in found} == {first + 1, first + 2, first + 3}


@with_mypy_first
def test_a_grid_in_brackets_is_typed(package, tool, tmp_path):
    """Where images fix launches, as those of Triton do, brackets take a grid."""
    manifest = manifest_file.loads(package.files["manifest.json"], "manifest.json")
    launches = {kernel.expression: FixedLaunch((128,)) for kernel in manifest.kernels}
    units = tuple(
        each._replace(images=tuple(image._replace(launches=launches) for image in each.images))
        for each in manifest.units
    )
    text = write_stub(manifest._replace(units=units), {})
    package = replace(package, files={**package.files, "__init__.pyi": text.encode()})
    right = """
from pkg import kernels

kernels.ns.inner.reduce[(4,)](0, 0, N=256, num_warps=4)
kernels.ns.inner.reduce[4, 2](0, y=0, T="float", maxnreg=None, stream=None)
kernels.ns.inner.reduce[lambda _: (4,)](0, 0)  # pyright: ignore[reportUnknownLambdaType]
kernels.ns.inner.reduce["double, 256"][4](0, 0)
kernels.ns.plain[4](1)
"""
    wrong = """
kernels.ns.inner.reduce[4](0, 0, N="wide")
kernels.ns.inner.reduce[4](0)
kernels.ns.inner.reduce[4](0, 0, grid=4)
kernels.ns.inner.reduce[lambda: 4](0, 0)
kernels.ns.plain["int"](1)
"""
    found = check(tool, package, tmp_path, f"{right}\n{wrong}")
    first = len(right.splitlines()) + 2
    assert {line - first for _, line in found} == {1, 2, 3, 4, 5}


@with_mypy_first
def test_unusual_names_cause_no_conflicts(awkward, tool, tmp_path):
    right = """
from typing import Any

from pkg import kernels
from pkg.kernels import __kernels__


def use(x: Any, expression: str) -> None:
    __kernels__[expression](1, grid=1, block=1)
    kernels.str(1, grid=1, block=1)
    kernels.pack["int", "float"](x, x, grid=1, block=1)
    kernels.Kernel(1, 2, 3, 4, x, 6, grid=1, block=1)
    kernels.Literal(1, grid=1, block=1)
    kernels.Any(1, grid=1, block=1)
    kernels._axpy(1, grid=1, block=1)  # pyright: ignore[reportPrivateUsage]
    kernels._ns(1, grid=1, block=1)  # pyright: ignore[reportPrivateUsage]
    kernels.axpy["float"](x, grid=1, block=1)
    kernels.character["'\\\\''"](grid=1, block=1)
    kernels.character["'\\\\n'"](grid=1, block=1)
    kernels.pack["int, float"](x, x, grid=1, block=1)
    kernels.ns.Dim(1, grid=1, block=1)
    print(kernels.Symbol, kernels.ns.Pointer)
"""
    assert check(tool, awkward, tmp_path, right) == []


def test_names_that_are_no_identifiers_need_brackets(awkward):
    assert attributes(awkward) == {
        *(
            "Kernel",
            "match",
            "Literal",
            "overload",
            "object",
            "str",
            "tuple",
            "Any",
            "_axpy",
            "_axpy_float",
            "_ns",
            "ns_plain",
        ),
        *("pack", "axpy", "character", "ns", "Symbol", "__kernels__"),
    }


def test_a_kernel_that_shares_its_name_with_a_namespace_has_both(tmp_path):
    sources = [
        unit("__global__ void a(int n) {}", name="device/one.cu"),
        unit("namespace a { __global__ void b(int n) {} }", name="device/two.cu"),
    ]
    right = "from pkg import kernels\n\nkernels.a(1, grid=1, block=1)\nkernels.a.b(1, grid=1, block=1)\n"
    assert check("mypy", generate(module(*sources)), tmp_path, right) == []


@pytest.mark.parametrize(
    "sources",
    [
        ["__global__ void kernel() {}"],
        ["__global__ void kernel(int n, float x) {} __constant__ int c;"],
        [SOURCE],
        [AWKWARD],
    ],
)
def test_stubs_are_formatted(sources: Sequence[str], tmp_path):
    path = tmp_path / "__init__.pyi"
    path.write_text(stub(generate(module(*sources))))
    command = ["ruff", "format", "--isolated", "--line-length=200", "--diff", str(path)]
    run = subprocess.run([sys.executable, "-m", *command], capture_output=True, text=True)
    assert run.stdout == ""
    assert run.returncode == 0


def test_signatures_are_shown():
    text = stub(generate(module("__global__ void scale(int n, const float* x) {}")))
    assert '"""(int n, const float* x)"""' in text
    assert '"""scale(int n, const float* x)\n' in text
