"""Modules with hundreds of kernels: a launch costs what it costs in a small one."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest

from cuda_ext.facts.kernels import Kernel
from cuda_ext.facts.manifest import Unit
from cuda_ext.facts.sources import Source
from tests.fixtures.loader import SAMPLE, described, signature, single_image, write_package

pytestmark = pytest.mark.host_compiler

# Names and sizes of types, all of which numpy has.
TYPES = {"float": 4, "double": 8, "int": 4, "long long": 8, "short": 2, "signed char": 1, "unsigned int": 4}
PRELUDE = """
import numpy as np
from large import kernels
from cuda_ext.runtime.module import library_of

def counting(call):
    "The calls of Python functions until `call` returns."
    count = 0
    def profile(frame, event, argument):
        nonlocal count
        count += event == "call"
    sys.setprofile(profile)
    try:
        call()
    finally:
        sys.setprofile(None)
    return count - 1  # without `call`

numbers = [np.float32, np.float64, np.int32, np.int64, np.int16, np.int8, np.uint32]
"""


def parameters(first: str, second: str) -> tuple[str, ...]:
    kinds = {"f": "float", "d": "float", "u": "unsigned"}
    declared = [
        f"{kinds.get(type_[0], 'integer')} {TYPES[type_]} {type_} {name}"
        for type_, name in ((first, "a"), (second, "b"))
    ]
    return ("integer 4 int n", *declared, "pointer 8 float* x")


def typed_kernels() -> list[Kernel]:
    """``typed<T, U>`` for each pair of types."""
    return [
        Kernel(f"typed<{one}, {other}>", f"typed_{i}", 0, signature(*parameters(one, other)))
        for i, (one, other) in enumerate(itertools.product(TYPES, TYPES))
    ]


def constant_kernels(count: int) -> list[Kernel]:
    """``many<BLOCK, MODE>`` for `count` pairs of constants, as of a function ``many(n, BLOCK, x, MODE)``."""
    modes = ("None", "True", "'relu'", "0.5")
    taken = signature("integer 4 int n", "pointer 8 float* x")
    return [
        Kernel(
            f"ns::many<BLOCK={block}, MODE={mode}>",
            f"many_{block}_{modes.index(mode)}",
            0,
            taken,
            constants={"BLOCK": str(block), "MODE": mode},
            order=("n", "BLOCK", "x", "MODE"),
        )
        for block, mode in ((i // 4 + 1, modes[i % 4]) for i in range(count))
    ]


def write_large(directory: Path, *kernels: Kernel) -> None:
    text = "".join(described(kernel) for kernel in kernels)
    image = single_image(text, "sm_90", "all.sm_90.cubin")
    units = (Unit((Source("device/all.cu"),), (image,)),)
    module = SAMPLE._replace(module="large.kernels", units=units, kernels=kernels, symbols=())
    write_package(directory, module, {image.file: text.encode()})


def test_a_launch_runs_no_python_however_it_names_its_kernel(with_driver: Any, tmp_path: Path) -> None:
    write_large(tmp_path, *typed_kernels(), *constant_kernels(400))
    run = with_driver(
        PRELUDE
        + """
def by_dtype(): kernels.typed(1, np.float32(2), np.int16(3), 16, grid=1, block=1)
def by_keyword(): kernels.typed(1, b=np.int8(3), a=np.float64(2), x=16, grid=1, block=1)
def by_name(): kernels.ns.many(1, 16, BLOCK=64, MODE="relu", grid=1, block=1)
def by_names(): kernels.ns.many(n=1, x=16, BLOCK=65, MODE=None, grid=1, block=1)
def by_position(): kernels.ns.many(1, 66, 16, True, grid=1, block=1)
def by_both(): kernels.ns.many(1, 67, 16, MODE=0.5, grid=1, block=1)
def in_brackets(): kernels.typed["float, int"](1, 2.0, 3, 16, grid=1, block=1)
def in_brackets_by_position(): kernels.ns.many["BLOCK=68, MODE=True"](1, 68, 16, True, grid=1, block=1)
calls = [by_dtype, by_keyword, by_name, by_names, by_position, by_both]
brackets = [in_brackets, in_brackets_by_position]
for call in (*calls, *brackets):
    call(); call()
print([counting(call) for call in calls], [counting(call) < 5 for call in brackets])
caught(lambda: kernels.ns.many(1, 16, BLOCK=64, grid=1, block=1))
caught(lambda: kernels.ns.many(1, 16, BLOCK=1000, MODE=True, grid=1, block=1))
caught(lambda: kernels.ns.many["BLOCK=68, MODE=True"](1, 69, 16, True, grid=1, block=1))
caught(lambda: kernels.ns.many(1, BLOCK=68, grid=1, block=1))
""",
    )
    assert run.output[0] == f"{[0] * 6} {[True] * 2}"
    lowered = [
        "typed_4",
        "typed_12",
        "many_64_2",
        "many_65_0",
        "many_66_1",
        "many_67_3",
        "typed_2",
        "many_68_1",
    ]
    lowered = [f"typed_{4 + 0}", f"typed_{7 + 5}", *lowered[2:]]
    launched = [launch.split()[1] for launch in run.launches]
    assert launched == [*(name for name in lowered for _ in range(2)), *lowered]
    assert run.output[1].startswith("ArgumentError: (int, int, BLOCK=int) fits several kernels; choose one")
    assert """kernels["ns::many<BLOCK=64, MODE=None>"], or give MODE:""" in run.output[1]
    assert run.output[2].startswith(
        "ArgumentError: no kernel was built for BLOCK=1000, MODE=True; built: BLOCK=1, 2,"
    )
    assert "was compiled for BLOCK=68, not 69" in run.output[3]
    assert "fits no kernel: they have 2 parameters and the constants BLOCK, MODE; built:" in run.output[4]


def test_dtypes_that_are_made_anew_for_each_look_up_are_remembered(with_driver: Any, tmp_path: Path) -> None:
    write_large(tmp_path, *typed_kernels())
    run = with_driver(
        PRELUDE
        + """
from tests.fixtures.device_arrays import Exchanged

class Text(str):
    "A dtype as that of tvm_ffi."

class Array(Exchanged):
    dtype = property(lambda self: Text("float32"))

x = Array(np.zeros(1, "f4"))
def launch(): kernels.typed(1, np.float32(2), np.int16(3), x, grid=1, block=1)
launch()
print(counting(launch) < 10)
"""
    )
    assert run.output == ["True"]


def test_tuples_of_several_lengths_leave_constants_where_the_function_has_them(
    with_driver: Any, tmp_path: Path
) -> None:
    kernels = [
        Kernel(
            f"tuples<{count}, BLOCK={block}>",
            f"tuples_{count}_{block}",
            0,
            signature(*(f"pointer 8 float* {name}" for name in items), "integer 4 int n"),
            constants={"BLOCK": str(block)},
            order=(*items, "n", "BLOCK"),
        )
        for count, items in ((1, ("xs_0",)), (2, ("xs_0", "xs_1")))
        for block in (64, 128)
    ]
    write_large(tmp_path, *kernels)
    run = with_driver(
        PRELUDE
        + """
for block in (64, 128, 64):
    kernels.tuples((16,), 1, block, grid=1, block=1)
    kernels.tuples((16, 32), 1, block, grid=1, block=1)
"""
    )
    launched = [launch.split()[1] for launch in run.launches]
    assert launched == [f"tuples_{count}_{block}" for block in (64, 128, 64) for count in (1, 2)]


def test_a_thousand_combinations_are_all_remembered(with_driver: Any, tmp_path: Path) -> None:
    write_large(tmp_path, *typed_kernels(), *constant_kernels(952))
    run = with_driver(
        PRELUDE
        + """
calls = [lambda a=a, b=b: kernels.typed(1, a(2), b(3), 16, grid=1, block=1) for a in numbers for b in numbers]
modes = None, True, "relu", 0.5
calls += [lambda i=i: kernels.ns.many(1, i // 4 + 1, 16, modes[i % 4], grid=1, block=1) for i in range(952)]
first = [counting(call) for call in calls]
print(len(calls), sum(map(counting, calls)), max(first[49 + 1:]) < 200)
"""
    )
    assert run.output == ["1001 0 True"]
    assert len({launch.split()[1] for launch in run.launches}) == 1001


def test_what_nobody_calls_is_not_read(with_driver: Any, tmp_path: Path) -> None:
    def count(number: int) -> list[str]:
        directory = tmp_path / str(number)
        write_large(directory, *typed_kernels()[:4], *constant_kernels(number))
        run = with_driver(
            f"sys.path.insert(0, {str(directory)!r})"
            + PRELUDE
            + """
def look_up(): kernels.ns.many["BLOCK=3, MODE=True"](1, 16, grid=1, block=1)
def choose(): kernels.typed(1, np.float32(2), np.int32(3), 16, grid=1, block=1)
print(counting(look_up), counting(choose))
records = library_of(kernels).manifest.kernels
print(sum(isinstance(each, tuple) for each in records._items))
"""
        )
        return run.output

    small = count(20)
    assert small == count(800)
    assert small[1] == "5"  # the one in brackets, and the four among which types choose


def test_a_choice_looks_at_each_argument_once(with_driver: Any, tmp_path: Path) -> None:
    def count(number: int) -> str:
        directory = tmp_path / str(number)
        write_large(directory, *constant_kernels(number))
        run = with_driver(
            f"sys.path.insert(0, {str(directory)!r})"
            + PRELUDE
            + """
kernels.ns.many(1, 16, BLOCK=1, MODE=True, grid=1, block=1)
print(counting(lambda: kernels.ns.many(1, 16, BLOCK=2, MODE="relu", grid=1, block=1)))
"""
        )
        return str(run.output)

    assert count(8) == count(800)
