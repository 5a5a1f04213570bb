"""Modules with hundreds of kernels: a launch costs what it costs in a small one."""

from __future__ import annotations

import importlib
import itertools
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import pytest

import cuda_ext
from cuda_ext.facts.kernels import Kernel
from cuda_ext.facts.manifest import Unit
from cuda_ext.facts.sources import Source
from cuda_ext.runtime.module import library_of
from tests.fixtures.device_arrays import Exchanged
from tests.fixtures.loader import SAMPLE, Run, described, signature, single_image, write_package
from tests.fixtures.under_driver import failure, in_child, launches

pytestmark = [
    pytest.mark.host_compiler,
    pytest.mark.usefixtures("modules"),
    pytest.mark.under_driver(kernels="large.kernels"),
]

# Names and sizes of types, all of which numpy has.
PACKAGE = Path(cuda_ext.__file__).parent
TYPES = {"float": 4, "double": 8, "int": 4, "long long": 8, "short": 2, "signed char": 1, "unsigned int": 4}
NUMBERS = [np.float32, np.float64, np.int32, np.int64, np.int16, np.int8, np.uint32]
kernels: Any = None  # in the process of a test, the module
one: Any = {"grid": 1, "block": 1}


def counting(call: Callable[[], object]) -> int:
    """Return the number of Python functions of cuda_ext that run until `call` returns."""
    count = 0

    def profile(frame: FrameType, event: str, argument: object) -> None:
        nonlocal count
        count += event == "call" and frame.f_code.co_filename.startswith(str(PACKAGE))

    sys.setprofile(profile)
    try:
        call()
    finally:
        sys.setprofile(None)
    return count


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


def tuple_kernels() -> list[Kernel]:
    return [
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


@pytest.fixture
def modules(with_driver: Callable[..., Run], tmp_path: Path) -> None:
    """Write modules of several sizes."""
    for name, kernels in {
        "large": [*typed_kernels(), *constant_kernels(952), *tuple_kernels()],
        "some": [*typed_kernels()[:4], *constant_kernels(800)],
        "few": [*typed_kernels()[:4], *constant_kernels(20)],
    }.items():
        text = "".join(described(kernel) for kernel in kernels)
        image = single_image(text, "sm_90", "all.sm_90.cubin")
        module = SAMPLE._replace(
            module=f"{name}.kernels",
            units=(Unit((Source("device/all.cu"),), (image,)),),
            kernels=tuple(kernels),
            symbols=(),
        )
        write_package(tmp_path, module, {image.file: text.encode()})


def test_a_launch_runs_no_python_however_it_names_its_kernel() -> None:
    many = kernels.ns.many
    calls: dict[str, Callable[[], object]] = {
        "typed_4": lambda: kernels.typed(1, np.float32(2), np.int16(3), 16, **one),
        "typed_12": lambda: kernels.typed(1, b=np.int8(3), a=np.float64(2), x=16, **one),
        "many_64_2": lambda: kernels.ns.many(1, 16, BLOCK=64, MODE="relu", **one),
        "many_65_0": lambda: kernels.ns.many(n=1, x=16, BLOCK=65, MODE=None, **one),
        "many_66_1": lambda: kernels.ns.many(1, 66, 16, True, **one),
        "many_67_3": lambda: kernels.ns.many(1, 67, 16, MODE=0.5, **one),
        "typed_2": lambda: kernels.typed["float, int"](1, 2.0, 3, 16, **one),
        "many_68_1": lambda: kernels.ns.many["BLOCK=68, MODE=True"](1, 68, 16, True, **one),
    }
    for call in calls.values():
        call()
        call()
    counts = [counting(call) for call in calls.values()]
    assert counts[:6] == [0] * 6
    assert max(counts[6:]) < 5  # those in brackets
    assert [launch.split()[1] for launch in launches()] == [*(n for n in calls for _ in range(2)), *calls]
    several = failure(many, 1, 16, BLOCK=64, **one)
    assert several.startswith("ArgumentError: (int, int, BLOCK=int) fits several kernels; choose one")
    assert """kernels["ns::many<BLOCK=64, MODE=None>"], or give MODE:""" in several
    assert failure(many, 1, 16, BLOCK=1000, MODE=True, **one).startswith(
        "ArgumentError: no kernel was built for BLOCK=1000, MODE=True; nearest: ns::many<BLOCK=1, MODE=True>,"
    )
    assert "was compiled for BLOCK=68, not 69" in failure(many["BLOCK=68, MODE=True"], 1, 69, 16, True, **one)
    lacking = failure(many, 1, BLOCK=68, **one)
    assert "(int, BLOCK=int) lacks float* x; built:   ns::many<BLOCK=68, MODE=None>" in lacking


class Text(str):
    """A dtype as that of tvm_ffi."""

    __slots__ = ()


class Array(Exchanged):
    dtype = property(lambda self: Text("float32"))


def test_dtypes_that_are_made_anew_for_each_look_up_are_remembered() -> None:
    x = Array(np.zeros(1, "f4"))

    def launch() -> None:
        kernels.typed(1, np.float32(2), np.int16(3), x, **one)

    launch()
    assert counting(launch) < 10


def test_tuples_of_several_lengths_leave_constants_where_the_function_has_them() -> None:
    for block in (64, 128, 64):
        kernels.tuples((16,), 1, block, **one)
        kernels.tuples((16, 32), 1, block, **one)
    launched = [launch.split()[1] for launch in launches()]
    assert launched == [f"tuples_{count}_{block}" for block in (64, 128, 64) for count in (1, 2)]


def test_a_thousand_combinations_are_all_remembered() -> None:
    modes = None, True, "relu", 0.5
    typed, many = kernels.typed, kernels.ns.many
    calls = [lambda a=a, b=b: typed(1, a(2), b(3), 16, **one) for a in NUMBERS for b in NUMBERS]
    calls += [lambda i=i: many(1, i // 4 + 1, 16, modes[i % 4], **one) for i in range(952)]
    first = [counting(call) for call in calls]
    assert sum(map(counting, calls)) == 0
    assert max(first[49 + 1 :]) < 200
    assert len({launch.split()[1] for launch in launches()}) == 1001


def test_what_nobody_calls_is_not_read() -> None:
    def count(name: str) -> tuple[int, int, int]:
        module = importlib.import_module(f"{name}.kernels")
        looked_up = counting(lambda: module.ns.many["BLOCK=3, MODE=True"](1, 16, **one))
        chosen = counting(lambda: module.typed(1, np.float32(2), np.int32(3), 16, **one))
        records = library_of(module).manifest.kernels
        return looked_up, chosen, sum(isinstance(each, tuple) for each in records._items)  # type: ignore[attr-defined]

    small = in_child(lambda: count("few"))
    assert small == in_child(lambda: count("some"))
    assert small.endswith(", 5)")  # the one in brackets, and the four among which types choose


def test_a_choice_looks_at_each_argument_once() -> None:
    def count(name: str) -> int:
        module = importlib.import_module(f"{name}.kernels")
        module.ns.many(1, 16, BLOCK=1, MODE=True, **one)
        return counting(lambda: module.ns.many(1, 16, BLOCK=2, MODE="relu", **one))

    assert in_child(lambda: count("few")) == in_child(lambda: count("some")) != ""
