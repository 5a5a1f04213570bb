"""Functions of Triton: what was not built is compiled at its first call, once for all processes."""

from __future__ import annotations

import importlib
import itertools
import re
import textwrap
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from cuda_ext.compiler.front_ends.instantiation import parse_instantiation
from cuda_ext.facts.sources import Source
from cuda_ext.runtime.inferred_calls import infer_call
from cuda_ext.runtime.jit.python_sources import PythonSource
from tests.fixtures.device_arrays import Tensor
from tests.fixtures.loader import Run, run_script
from tests.fixtures.projects import build, write_importable, write_project

pytest.importorskip("triton", reason="Triton runs under Linux only")
pytestmark = [pytest.mark.host_compiler, pytest.mark.xdist_group("python_on_demand")]

SCALE = """
import triton
import triton.language as tl
from .common import twice

@triton.jit
def scale(out, x, n, factor, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, twice(tl.load(x + at, mask=at < n)) * factor, mask=at < n)

@triton.jit
def ranged(out, n, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.store(out + at, at, mask=at < n)

@triton.jit
def never(out, x, n, BLOCK: tl.constexpr = 64):
    at = tl.arange(0, BLOCK)
    if x is not None:
        tl.store(out + at, tl.load(x + at, mask=at < n), mask=at < n)
"""
COMMON = """
import triton

@triton.jit
def twice(x):
    return x * 2
"""
TABLE = """
[tool.cuda_ext.modules."p.kernels"]
sources = ["device/scale.py"]
architectures = ["sm_{architecture}"]
emit = "cubin"
[[tool.cuda_ext.modules."p.kernels".overrides]]
sources = ["device/scale.py"]
instantiate = [
  "scale(out: *fp32:16, x: *kfp32:16, n: i32, factor: fp32, BLOCK=128, num_warps=1)",
  {{ kernel = "ranged(out: *fp32, n: i32, BLOCK={{next_power_of_2(n)}})", BLOCK = [64, 128] }},
]
"""
FILES = {"device/scale.py": SCALE, "device/common.py": COMMON, "p/__init__.py": ""}
# Print the log of compilations.
PRELUDE = """
import logging
logging.basicConfig(stream=sys.stdout, format="%(message)s", level=logging.INFO)
from p import kernels
from cuda_ext.runtime.kernel import Kernel
import numpy as np
from tests.fixtures.device_arrays import Tensor, import_torch

import_torch()
def at(address, dtype="float32"):
    return Tensor(np.zeros(64, dtype), address=address)
f4, odd = (at(4096), at(8192)), (at(4100), at(8192))
f8 = at(4096, "float64"), at(8192, "float64")

def launch_all(calls):
    for call in calls:
        eval(f"kernels.{call}", globals())
"""


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A package with one kernel, in two images."""
    directory = tmp_path_factory.mktemp("on_demand")
    root = write_project(directory / "project", TABLE.format(architecture=90), FILES)
    write_importable(build(root)["p.kernels"], directory)
    return directory


@pytest.fixture
def on_gpu(fake_driver: Path, project: Path, empty_cache: Path) -> Callable[..., Run]:
    def run(script: str, **variables: str) -> Run:
        return run_script(
            PRELUDE + textwrap.dedent(script), project, LD_LIBRARY_PATH=str(fake_driver), **variables
        )

    return run


def compilations(done: Run) -> list[str]:
    found = (
        re.fullmatch(r"p\.kernels: compiled (.*) for sm_[0-9]+a? in [0-9.]+ s", line) for line in done.output
    )
    return [match[1] for match in found if match]


# Calls one after the other, and what each compiles.
N = "if n != 1 and n % 16 != 0"
F4, F8 = (f"out: *{type_}:16, x: *k{type_}:16, " for type_ in ("fp32", "fp64"))
REST = "factor: fp32, BLOCK={}, num_warps={}"
CALLS = {
    "scale(*f4, 60, 2.0, grid=3)": "",
    "scale(*f4, 60, 2.0, BLOCK=128, num_warps=1, grid=3)": "",
    "scale(*f4, 60, 2.0, BLOCK=256, grid=3)": f"scale({F4}n: i32, {REST.format(256, 1)}) {N}",
    "scale(*f4, 64, 2.0, BLOCK=256, grid=3)": f"scale({F4}n: i32:16, {REST.format(256, 1)}) if n != 1",
    "scale(*f4, 1, 2.0, BLOCK=256, grid=3)": f"scale({F4}factor: fp32, n=1, BLOCK=256, num_warps=1)",
    "scale(*odd, 64, 2.0, BLOCK=256, grid=3)": "scale(out: *fp32, x: *kfp32:16, n: i32:16, "
    f"{REST.format(256, 1)}) if out % 16 != 0 and n != 1",
    "scale(*f8, 60, 2.0, 128, grid=3)": f"scale({F8}n: i32, {REST.format(128, 1)}) {N}",
    "scale[3](*f4, 60, 2.0, num_warps=2)": f"scale({F4}n: i32, {REST.format(128, 2)}) {N}",
    "ranged(f4[0], 60, grid=1)": "",
    "ranged(f4[0], 300, BLOCK=512, grid=1)": f"ranged(out: *fp32:16, n: i32, BLOCK=512) {N}",
    "never[1](f4[0], None, 3)": f"never(out: *fp32:16, n: i32, x=None) {N}",
}


def test_each_call_compiles_what_it_needs_once(on_gpu: Callable[..., Run]) -> None:
    script = f"""
    calls = {[*CALLS]}
    launch_all(calls)
    launch_all(calls)
    del Kernel.__launch_carefully__, type(kernels.scale).__launch_carefully__  # the rest is launched in C
    launch_all(calls)
    print("triton" in sys.modules)
    """
    first, second = on_gpu(script), on_gpu(script)
    wanted = [text for text in CALLS.values() if text]
    assert compilations(first) == wanted
    assert compilations(second) == []
    assert first.output[-1] == second.output[-1] == "False"
    assert first.launches == second.launches
    count = len(CALLS)
    assert first.launches[:count] == first.launches[count : 2 * count] == first.launches[2 * count :]
    assert [" ".join(call.split()[1:4]) for call in first.launches[:count]] == [
        *["scale grid=3,1,1 block=32,1,1"] * 7,
        "scale grid=3,1,1 block=64,1,1",
        *["ranged grid=1,1,1 block=128,1,1"] * 2,
        "never grid=1,1,1 block=128,1,1",
    ]


def test_a_gpu_without_an_image_gets_one(project: Path, on_gpu: Callable[..., Run]) -> None:
    script = """
    for _ in range(2):
        kernels.scale(*f4, 60, 2.0, grid=3)
    """
    done = on_gpu(script, FAKE_CUDA_CAPABILITY="80")
    aligned = f"scale({F4}n: i32, {REST.format(128, 1)})"
    assert compilations(done) == [aligned]
    assert len(done.launches) == 2


# Calls that fail, and the beginnings and ends of their errors.
ERRORS = {
    "scale(*f4, 60, 2.0, BLOCK=100, grid=3)": (
        f"CompilationError: device/scale.py: scale({F4}n: i32, {REST.format(100, 1)}) {N}: at "
        "device/scale.py:8:37: def scale(out, x, n, factor, BLOCK: tl.constexpr):",
        "arange's range must be a power of 2 (compiling device/scale.py for sm_90a)",
    ),
    "scale(*f8, 60, 2.0)": ("ArgumentError: expected grid; the image fixes the rest", "int n, float factor)"),
    "scale(*f4, 60, 2.0, BLOK=256, grid=3)": (
        "ArgumentError: no parameter is called 'BLOK'",
        "int n, float factor)",
    ),
    "scale(*f4, 'n', 2.0, BLOCK=256, grid=3)": (
        "ArgumentError: no kernel was built for BLOCK=256; nearest: scale<fp32, BLOCK=128>; add ",
        'BLOCK=256, num_warps=1)" to `instantiate` and build again',
    ),
    "never(f4[0], f4[1], grid=1)": ("ArgumentError: never: none was built ahead", ""),
}


def test_what_cannot_be_compiled_is_answered(on_gpu: Callable[..., Run]) -> None:
    script = f"""
    for call in {[*ERRORS]}:
        caught(lambda: eval(f"kernels.{{call}}", globals()))
    """
    answers = [line for line in on_gpu(script).output if "compiled scale" not in line]
    for answer, (beginning, end) in zip(answers, ERRORS.values(), strict=True):
        assert answer.startswith(beginning)
        assert answer.endswith(end)


def test_without_triton_the_error_says_what_was_built(project: Path, fake_driver: Path) -> None:
    script = """
    from p import kernels

    class Array:
        dtype = "<f8"
        __cuda_array_interface__ = {"data": (4096, False), "version": 3, "typestr": "<f8", "shape": (64,)}

    caught(kernels.scale, Array(), Array(), 60, 2.0, grid=3)
    caught(kernels.scale, 4096, 4100, 60, 2.0, BLOCK=256, grid=3)
    """
    done = run_script(script, project, "-S", LD_LIBRARY_PATH=str(fake_driver))
    missing = 'jit: Triton is not installed; install "cuda-ext[triton]"; add '
    four = F4.replace("x: *kfp32:16", "x: *kfp32")
    assert done.output == [
        f"ArgumentError: argument 'out': expected float32 (float), found float64; {missing}"
        f'"scale({F8}n: i32, {REST.format(128, 1)})" to `instantiate` and build again',
        f"ArgumentError: no kernel was built for BLOCK=256; nearest: scale<fp32, BLOCK=128>; {missing}"
        f'"scale({four}n: i32, {REST.format(256, 1)})" to `instantiate` and build again',
    ]


SPECIAL = """
import triton
import triton.language as tl

@triton.jit(do_not_specialize=["plain", 1], do_not_specialize_on_alignment=["unaligned"])
def special(x, plain_too, a, b, plain, unaligned, y: tl.const, wide: tl.int64, f, c: tl.constexpr = 3):
    pass
"""
# Values of a, which others have in part, and of b.
NUMBERS = [0, 1, 2, 16, -1, -16, 1 << 31, -(1 << 31), 1 << 40, 1 << 63, True, False, 1.0, None]


def test_calls_are_specialised_as_by_triton(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The types, hints and constants of a call are those that Triton's JIT finds."""
    from triton.backends.compiler import BaseBackend
    from triton.runtime.jit import create_function_from_signature

    (tmp_path / "special_kernels.py").write_text(SPECIAL)
    monkeypatch.syspath_prepend(tmp_path)
    function = importlib.import_module("special_kernels").special
    bind = create_function_from_signature(function.signature, function.params, BaseBackend)
    source = PythonSource("special.py", SPECIAL.encode(), {0: Source("special.py")})
    for number, other in itertools.product(NUMBERS, [1, 16]):
        arrays = [Tensor(np.zeros(4, dtype), address=a) for dtype, a in (("float16", 4096), ("int8", 4100))]
        integer = number if type(number) is int else 1
        call = arrays[0], integer, number, other, integer, integer, arrays[1], min(integer, 1 << 40), 2.5
        _, expected, _ = bind(*call)
        inferred = infer_call(source, "special", call, {})
        assert inferred
        each = parse_instantiation(inferred.text)
        found = {p.name: (p.type, "D" if p.divisor == 16 else "") for p in each.parameters}
        found |= {name: ("constexpr", text) for name, text in each.constants.items()}
        names = {"u1": "i1"}
        assert {
            name: (names.get(type_, type_), str(key) if type_ == "constexpr" else "D" * (key == "D"))
            for name, (type_, key) in zip(function.arg_names[:9], expected, strict=False)
        } == found


def test_constants_are_spelled_as_in_instantiations(tmp_path: Path) -> None:
    """Dtypes and functions are names, and strings are in quotes."""
    import triton.language as tl

    source = PythonSource("special.py", SPECIAL.encode(), {0: Source("special.py")})
    call = Tensor(np.zeros(4, "float16")), 2, 2, 2, 2, 2, None, 2, 2.5
    texts = {
        tl.float16: "fp16",
        np.dtype("float32"): "fp32",
        tl.constexpr("relu"): "'relu'",
        (1, "a"): "(1, 'a')",
    }
    for constant, text in (*texts.items(), (tmp_path.exists, "exists"), ([tl.int8], "(i8,)"), (None, "None")):
        inferred = infer_call(source, "special", (*call, constant), {})
        assert inferred
        assert parse_instantiation(inferred.text).constants["c"] == text
