"""Kernels are chosen by the names of template parameters, with values of Python."""

from __future__ import annotations

import enum
import itertools
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cuda_ext.facts.kernels import Kernel
from cuda_ext.facts.manifest import Unit
from cuda_ext.facts.sources import Source
from tests.fixtures.device_arrays import ArrayAt
from tests.fixtures.loader import SAMPLE, Run, described, signature, single_image, write_package
from tests.fixtures.under_driver import failure, launches
from tests.runtime.test_large_modules import counting

pytestmark = [
    pytest.mark.host_compiler,
    pytest.mark.usefixtures("chosen"),
    pytest.mark.under_driver(kernels="chosen.kernels"),
]

kernels: Any = None  # in the process of a test, the module
one: Any = {"grid": 1, "block": 1}
TYPES = {"float": "f", "__half": "6__half", "long long": "x"}
MEANINGS = {"Mode::slow": "(Mode)0", "Mode::fast": "(Mode)1", "Mode::exact": "(Mode)2", "half": "__half"}


class Mode(enum.Enum):
    SLOW = 0
    FAST = 1


class IntMode(enum.IntEnum):
    FAST = 1


class DType:
    """A dtype as that of PyTorch."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __repr__(self) -> str:
        return f"torch.{self._name}"


float16, bfloat16 = DType("float16"), DType("bfloat16")


def fwd(type_: str, code: str, width: int, bias: bool, mode: int) -> Kernel:
    """One of the kernels ``ns::fwd``: the expression leaves out the default of the last parameter."""
    bias_text = "true" if bias else "false"
    enumerators = {number: name for name, number in MEANINGS.items() if name.startswith("Mode")}
    name = f"ns::fwd<{width}, {bias_text}, {enumerators[f'(Mode){mode}']}, {type_}>"
    lowered = f"_ZN2ns3fwdILi{width}ELb{bias:d}EL4Mode{mode}E{code}Li1EEEvPT2_i"
    constants = {
        "kWidth": str(width),
        "kHasBias": str(bias),
        "mode": f"(Mode){mode}",
        "T": type_,
        "block": "1",
    }
    taken = signature(f"pointer 8 {type_}* x", "integer 4 int n")
    return Kernel(name, lowered, 0, taken, constants=constants)


NUMBER = signature("integer 4 int n")
KERNELS = [
    *(
        fwd(*type_, width, bias, mode)
        for type_, width, bias, mode in itertools.product(TYPES.items(), (2, 4), (True, False), (0, 1))
    ),
    # The first parameter has no name.
    *(
        Kernel(f"unnamed<{t}, {n}>", f"_Z7unnamedI{c}Li{n}EEvi", 0, NUMBER, constants={"N": str(n)})
        for t, c, n in (("float", "f", 3), ("int", "i", 3), ("int", "i", 4))
    ),
    Kernel("single<3>", "_Z6singleILi3EEvi", 0, NUMBER, constants={"N": "3"}),
    Kernel("over<1>(int)", "_Z4overILi1EEvi", 0, signature("integer 4 int n"), constants={"A": "1"}),
    Kernel("over<1>(float)", "_Z4overILi1EEvf", 0, signature("float 4 float x"), constants={"B": "1"}),
]


@pytest.fixture
def chosen(with_driver: Callable[..., Run], tmp_path: Path) -> None:
    text = "".join(described(kernel) for kernel in KERNELS)
    image = single_image(text, "sm_90", "all.sm_90.cubin")
    unit = Unit((Source("device/all.cu"),), (image,), meanings=MEANINGS)
    module = SAMPLE._replace(module="chosen.kernels", units=(unit,), kernels=tuple(KERNELS), symbols=())
    write_package(tmp_path, module, {image.file: text.encode()})


WAYS: dict[str, list[Any]] = {
    "kWidth": [4, "4", np.int64(4)],
    "kHasBias": [True, "true", "True", 1, np.bool_(True)],
    "mode": [1, Mode.FAST, IntMode.FAST, np.int8(1), "Mode::fast", "fast", "(Mode)1", "Mode(1)"],
    "T": [float16, np.float16, np.dtype("float16"), "float16", "torch.float16", "__half", "half"],
}


@pytest.mark.parametrize("in_c", [True, False])
def test_values_of_python_mean_template_arguments(in_c: bool) -> None:
    choose = kernels.ns.fwd.choose
    first = {name: ways[0] for name, ways in WAYS.items()}
    kernel = choose(**first)
    assert kernel is kernels.ns.fwd["4, true, Mode::fast, __half"]
    for name, ways in WAYS.items():
        for value in ways:
            for _ in range(2):
                assert choose(**{**first, name: value}) is kernel
                kernels.ns.fwd(8, 1, **{**first, name: value}, grid=1, block=1)
    assert {each.split()[1] for each in launches()} == {kernel._kernel.lowered}
    assert choose(**{**first, "kHasBias": False}).expression == "ns::fwd<4, false, Mode::fast, __half>"
    assert choose(**first, block=1) is kernel  # a template parameter, which is an option in a launch
    if in_c:
        calls = [
            lambda: kernels.ns.fwd.choose(kWidth=4, kHasBias=True, mode=1, T=float16)(8, 1, **one),
            lambda: kernels.ns.fwd.choose(kWidth=4, kHasBias=True, mode="fast", T=np.float16)(8, 1, **one),
            lambda: kernels.ns.fwd(8, 1, kWidth=4, kHasBias=True, mode=1, T=float16, **one),
        ]
        assert [(call(), counting(call))[1] for call in calls] == [0, 0, 0]


@pytest.mark.parametrize("in_c", [True, False])
def test_a_partial_choice_leaves_the_rest_to_a_call_or_another_choice(in_c: bool) -> None:
    some = kernels.ns.fwd.choose(kWidth=2, kHasBias=False)
    assert not in_c or some is kernels.ns.fwd.choose(kWidth=2, kHasBias=False)
    assert len(some.__kernels__) == 6
    fast = some.choose(mode=Mode.FAST)
    fast(ArrayAt(4096, dtype="<f2"), 1, **one)
    some(ArrayAt(4096), 1, mode=0, **one)
    some(0, 1, mode=0, T="float", **one)
    again = pickle.loads(pickle.dumps(fast))
    again.choose(T=np.int64)(0, 1, **one)
    assert repr(again) == repr(fast)
    kernels.over.choose(A=1)(1, **one)
    for _ in range(2):
        kernels.single.choose(N=3)(1, **one)
        kernels.single(1, N=3, **one)
        kernels.single(n=1, **one)
        kernels.single(1, **one)
    launched = [each.split()[1] for each in launches()]
    assert launched == [
        "_ZN2ns3fwdILi2ELb0EL4Mode1E6__halfLi1EEEvPT2_i",
        *["_ZN2ns3fwdILi2ELb0EL4Mode0EfLi1EEEvPT2_i"] * 2,
        "_ZN2ns3fwdILi2ELb0EL4Mode1ExLi1EEEvPT2_i",
        "_Z4overILi1EEvi",
        *["_Z6singleILi3EEvi"] * 8,
    ]


def test_as_many_names_as_a_launch_may_have_are_refused() -> None:
    choose = kernels.ns.fwd.choose
    choose(kWidth=4)
    # Each has three keys: its name, its type and its dtype.
    unknown = {f"n{number}": np.zeros(1) for number in range(128)}
    assert "no kernel has a template parameter 'n0'" in failure(lambda: choose(**unknown))


@pytest.mark.usefixtures("messages")
def test_what_was_not_built_names_the_nearest_and_the_line_to_add() -> None:
    fwd = kernels.ns.fwd
    for call in (
        lambda: fwd.choose(kWidth=8, kHasBias=True, mode=Mode.SLOW, T=float16),
        lambda: fwd.choose(kWidth=4, mode="exact", T=bfloat16),
        lambda: fwd.choose(kWidth=4, kHasBias=2),
        lambda: fwd.choose(block=2),
        lambda: fwd.choose(mode=7, T="Custom<3>"),
        lambda: fwd.choose(kWidth=[4]),
        lambda: fwd.choose(kWidth=4).choose(kWidth=2),
        lambda: fwd.choose(kWidht=4),
        lambda: fwd(0, 1, kWidth=8, T=float16, **one),
        lambda: fwd(ArrayAt(4096, dtype="<i8"), 1, kWidth=8, kHasBias=True, mode=0, **one),
        lambda: fwd["4, true, Mode::fast, __half"](0, 1, T="float", **one),
        lambda: kernels.unnamed.choose(N=5),
        lambda: kernels.single(1, N=5, **one),
        lambda: kernels.over.choose(A=1, B=1),
    ):
        print(failure(call))
    try:
        fwd.choose(4)
    except TypeError as error:
        print(error)
    assert launches() == []
