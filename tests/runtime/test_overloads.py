"""Overload resolution, and kernels in Python's introspection tools."""

from __future__ import annotations

import inspect
import pydoc
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from cuda_ext.errors import ArgumentError
from cuda_ext.facts.kernels import Kernel
from cuda_ext.runtime import kernel as kernels
from cuda_ext.runtime.loaded_library import Library
from cuda_ext.runtime.overloads import OverloadIndex
from tests.fixtures.device_arrays import Array
from tests.fixtures.loader import AXPY, AXPY_DOUBLE, SAMPLE, run_script, signature, write_package
from tests.fixtures.messages import Messages

LIBRARY = Library(ModuleType("sample"), SAMPLE, lambda _: b"")


def kernel(expression: str, *parameters: str) -> kernels.Kernel:
    return kernels.Kernel.of(LIBRARY, Kernel(expression, expression, 0, signature(*parameters)))


def choose(candidates: Sequence[kernels.Kernel], arguments: Sequence[Any], keywords: dict[str, Any]) -> Any:
    """The candidate that an index of all of them chooses."""
    chosen = OverloadIndex([each._kernel for each in candidates]).choose(arguments, keywords)
    return next(each for each in candidates if each._kernel is chosen)


INT, LONG = kernel("k(int)", "integer 4 int n"), kernel("k(long long)", "integer 8 long long n")
FLOAT, DOUBLE = kernel("k(float)", "float 4 float x"), kernel("k(double)", "float 8 double x")
BOOL = kernel("k(bool)", "bool 1 bool b")
FLOATS, CONST_INTS = kernel("k(float*)", "pointer 8 float* p"), kernel("k(int*)", "pointer 8 const int* p")
VOID = kernel("k(void*)", "pointer 8 void* p")
HALF = kernel("k(__half)", "struct 2 __half h")


@pytest.mark.parametrize(
    ("candidates", "argument", "chosen"),
    [
        ([INT, FLOAT], 1, INT),
        ([INT, FLOAT], 1.0, FLOAT),
        ([INT, BOOL], True, BOOL),
        ([INT, BOOL], 1, INT),
        ([INT, LONG], np.int32(1), INT),
        ([INT, LONG], np.int64(1), LONG),
        ([FLOAT, DOUBLE], np.float32(1), FLOAT),
        ([FLOAT, DOUBLE], np.float64(1), DOUBLE),
        ([FLOAT], 1, FLOAT),
        ([FLOATS, CONST_INTS], Array(np.zeros(3, "f4")), FLOATS),
        ([FLOATS, CONST_INTS], Array(np.zeros(3, "i4")), CONST_INTS),
        ([FLOATS, CONST_INTS], np.zeros(3, "i4"), CONST_INTS),
        ([FLOATS, VOID], Array(np.zeros(3, "f4")), FLOATS),
        ([FLOATS, VOID], Array(np.zeros(3, "f8")), VOID),
        ([FLOATS, INT], Array(np.zeros(3, "f4")), FLOATS),
        ([FLOAT, HALF], 1.0, FLOAT),
    ],
)
def test_the_types_of_the_arguments_choose(candidates: Any, argument: Any, chosen: Any) -> None:
    assert choose(candidates, (argument,), {"grid": 1, "block": 1}) is chosen
    assert choose(candidates[::-1], (argument,), {"grid": 1, "block": 1}) is chosen


def test_the_number_and_the_names_of_arguments_choose_too() -> None:
    both = kernel("k(int, int)", "integer 4 int n", "integer 4 int m")
    assert choose([INT, both], (1, 2), {}) is both
    assert choose([INT, both], (1,), {}) is INT
    assert choose([INT, both], (1,), {"m": 2, "threads": 5}) is both


def test_every_exact_fit_counts() -> None:
    one = kernel("one", "integer 4 int n", "float 8 double x")
    other = kernel("other", "integer 8 long long n", "float 4 float x")
    with pytest.raises(ArgumentError, match="fits several kernels"):
        choose([one, other], (np.int32(1), np.float32(1)), {})
    assert choose([one, other], (np.int32(1), 1.0), {}) is one


class OnCpu:
    """A tensor of PyTorch in host memory."""

    is_cuda, device, dtype = False, "cpu", "torch.float32"

    def data_ptr(self) -> int:
        raise AssertionError


AXPYS = [kernels.Kernel.of(LIBRARY, each) for each in (AXPY, AXPY_DOUBLE)]
SINGLE = Array(np.zeros(3, "f4"))
REFUSED: list[tuple[list[kernels.Kernel], tuple[Any, ...], dict[str, Any]]] = [
    *(([INT, LONG], (number,), {}) for number in (1, 1.5)),
    ([FLOAT, DOUBLE], (1.5,), {}),
    *(([FLOATS, CONST_INTS], (each,), {}) for each in (16, None, np.zeros(3), "x", [1.0], OnCpu())),
    ([FLOATS, VOID], (OnCpu(),), {}),
    ([INT, kernel("k(int, int)", "integer 4 int n", "integer 4 int m")], (1,), {"k": 2}),
    ([INT, kernel("k(int, int)", "integer 4 int n", "integer 4 int m")], (1,), {"m": 2, "thread": 5}),
    (AXPYS, (2.5, 2.0, SINGLE, SINGLE), {}),
    (AXPYS, (2, 2.0), {"x": "x", "y": SINGLE}),
    (AXPYS, (2, 2.0, SINGLE, SINGLE, 1), {}),
    (AXPYS, (2, 2.0, SINGLE, Array(np.zeros(3, "f8"))), {}),
    (AXPYS, (2, 2.0, SINGLE), {"y": SINGLE, "z": 3}),
    (AXPYS, (2, 2.0, OnCpu(), OnCpu()), {}),
]


def test_calls_that_fit_no_kernel_or_several_say_why(messages: Messages) -> None:
    for candidates, arguments, keywords in REFUSED:
        with pytest.raises(ArgumentError) as raised:
            choose(candidates, arguments, keywords)
        messages(raised.value)


def test_messages_about_hundreds_of_kernels_are_short() -> None:
    kernels = [
        Kernel(
            f"k<{i}>", f"k{i}", 0, signature("integer 4 int n", "pointer 8 float* x"), constants={"B": f"{i}"}
        )
        for i in range(300)
    ]
    index = OverloadIndex(kernels)
    for arguments, keywords in (
        ((1, 16), {}),
        ((1, 16), {"B": 500}),
        ((1,), {}),
        ((1, "x"), {}),
        ((1, 16, 2), {"C": 1}),
    ):
        with pytest.raises(ArgumentError) as raised:
            index.choose(arguments, keywords)
        assert len(str(raised.value).splitlines()) <= 12
        assert len(str(raised.value)) < 600


@pytest.mark.host_compiler
def test_an_instantiation_is_chosen_by_dtype_each_time(with_driver: Any, messages: Messages) -> None:
    run = with_driver(
        """
        from sample import kernels
        from tests.fixtures.device_arrays import ArrayAt

        single, double, integers = (ArrayAt(4096, dtype=dtype) for dtype in ("<f4", "<f8", "<i4"))
        for each in (single, double, single, double):
            kernels.axpy(3, 2.0, each, each, threads=3)
        caught(kernels.axpy, 3, 2.0, single, double, threads=3)
        caught(kernels.axpy, 3, 2.0, integers, integers, threads=3)
        kernels.axpy(3, 2.0, x=double, y=None, grid=1, block=1)
        """
    )
    lowered = [launch.split()[1] for launch in run.launches]
    assert lowered == [*([AXPY.lowered, AXPY_DOUBLE.lowered] * 2), AXPY_DOUBLE.lowered]
    assert run.output[0].startswith(
        "ArgumentError: (int, float, ArrayAt of <f4, ArrayAt of <f8) fits no kernel: each argument"
    )
    messages(run.output[1])


def test_help_describes_the_kernel() -> None:
    text = pydoc.plain(pydoc.render_doc(FLOATS))
    assert "CUDA kernel k(float*)(float* p)" in text
    assert "number of blocks and `block` the number of threads" in " ".join(text.split())


def test_signatures_have_the_parameters_of_the_kernel() -> None:
    odd = kernel("odd", "integer 4 int n", "integer 4 int grid", "float 4 float lambda", "float 4 float x")
    assert list(inspect.signature(odd).parameters)[:4] == ["n", "arg1", "arg2", "x"]
    assert str(inspect.signature(INT)).startswith("(n: 'int', *, grid: ")
    inspect.signature(INT).bind(1, threads=5)
    with pytest.raises(TypeError):
        inspect.signature(INT).bind(1, 2)


def test_introspection_needs_no_driver(tmp_path: Path) -> None:
    write_package(tmp_path)
    output = run_script(
        """
        from sample import kernels
        axpy = kernels.axpy["float"]
        print(axpy, axpy.signature, len(axpy.parameters), axpy.expression)
        print(kernels.axpy["float"] is axpy, kernels["axpy<float>"] is axpy)
        print("cuda.bindings" in sys.modules)
        """,
        tmp_path,
    ).output
    assert output == [
        f"<kernel {AXPY.signature}> {AXPY.signature} 4 axpy<float>",
        "True True",
        "False",
    ]
