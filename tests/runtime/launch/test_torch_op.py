"""Operators of PyTorch: their launches under the fake driver, and their registration, on the CPU."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import cuda_ext
from cuda_ext.errors import ArgumentError
from cuda_ext.facts.kernels import Kernel
from tests.fixtures import device_arrays
from tests.fixtures.device_arrays import Tensor
from tests.fixtures.loader import AXPY, Run, signature, write_module
from tests.fixtures.under_driver import launches

kernels: Any = None  # in the process of a test, the module
NAMES = ("launch", "a0", "grid")  # names of parameters that the function behind an operator uses, too
ODD = Kernel(
    "odd", "odd", 0, signature(*(f"integer 4 int {name}" for name in NAMES), "pointer 8 int* lambda_")
)
TAKES_STRUCT = Kernel("wide", "wide", 0, signature("struct 8 Wide w"))
# A launch of 1000 threads, of which one block has 256.
LAUNCHES = {
    "threads": ({"threads": "n", "block": 256}, 4),
    "constant": ({"grid": 5, "block": (256, 1)}, 5),
    "computed": ({"block": 256, "grid": lambda n, a, x, y: n // 500}, 2),
}


@pytest.mark.host_compiler
@pytest.mark.under_driver
@pytest.mark.usefixtures("with_driver")
@pytest.mark.parametrize("options", LAUNCHES)
@pytest.mark.parametrize("in_c", [True, False])
def test_launches_of_an_operator(options: str, in_c: bool) -> None:
    device_arrays.import_torch({})
    torch: Any = sys.modules["torch"]
    launch, blocks = LAUNCHES[options]
    operator = kernels["axpy<float>"].torch_op("tests::axpy", **launch)
    assert operator.schema == "(int n, float a, Tensor? x, Tensor(a3!)? y) -> ()"
    assert operator.fake(1, 2.0, None, None) is None
    x, y = (Tensor(np.zeros(1000, "f4")) for _ in range(2))
    for arguments in ((x, y), (x, y), (None, y), (x, None)):
        torch.versions.clear()
        assert operator.cuda(1000, 2.0, *arguments) is None
        assert torch.versions == [each for each in arguments[1:] if each is not None]
        address = 0 if arguments[1] is None else y.data_ptr()
        assert f"grid={blocks},1,1 block=256,1,1" in launches()[-1]
        assert address.to_bytes(8, "little").hex() in launches()[-1]
    assert len(launches()) == 4
    torch.versions.clear()
    with pytest.raises(ArgumentError, match="float32"):
        operator.cuda(1000, 2.0, x, Tensor(np.zeros(1000)))
    assert torch.versions == []


@pytest.mark.host_compiler
@pytest.mark.under_driver(kernels="odd.kernels")
@pytest.mark.usefixtures("odd")
def test_names_of_parameters_are_free() -> None:
    device_arrays.import_torch({})
    operator = kernels.odd.torch_op(
        "tests::odd", grid="grid", block="a0", shared=lambda *arguments: arguments[0]
    )
    assert operator.schema == "(int launch, int a0, int grid, Tensor(a3!)? lambda_) -> ()"
    operator.cuda(16, 32, 2, None)
    assert "grid=2,1,1 block=32,1,1 shared=16" in launches()[0]


@pytest.fixture
def odd(with_driver: Callable[..., Run], tmp_path: Path) -> None:
    write_module(tmp_path, "odd.kernels", [ODD])


@pytest.fixture
def torch(monkeypatch: pytest.MonkeyPatch) -> Any:
    """PyTorch, which calls operators of GPU tensors for those on the CPU, too."""
    module = pytest.importorskip("torch")
    register = module.library.impl

    def for_the_cpu(name: Any, key: str, *more: Any, **options: Any) -> Any:
        return register(name, "cpu" if key == "cuda" else key, *more, **options)

    monkeypatch.setattr(module.library, "impl", for_the_cpu)
    return module


@pytest.fixture
def axpy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A kernel whose launches add on the CPU."""
    write_module(tmp_path, "operators.kernels", [AXPY, TAKES_STRUCT])
    monkeypatch.syspath_prepend(tmp_path)
    module = importlib.import_module("operators.kernels")

    def launch(kernel: Any, n: int, a: float, x: Any, y: Any, **_: Any) -> None:
        if x is not None and y is not None:
            y += a * x

    monkeypatch.setattr(type(module["axpy<float>"]), "__launch_carefully__", launch)
    return module["axpy<float>"]


def test_pytorch_accepts_the_operator_of_a_kernel(torch: Any, axpy: Any) -> None:
    operator = axpy.torch_op("cuda_ext_tests::axpy", threads="n")
    assert str(operator._schema) == "cuda_ext_tests::axpy(int n, float a, Tensor? x, Tensor(a3!)? y) -> ()"

    def step(x: Any, y: Any) -> Any:
        z = y * 2
        operator(x.numel(), 3.0, x, z)
        operator(x.numel(), 3.0, None, z)
        return z + 1

    x = torch.ones(8)
    for arguments in ((8, 2.0, x, x * 1), (8, 2.0, None, x * 1), (8, 2.0, x, None)):
        torch.library.opcheck(operator, arguments)
    compiled = torch.compile(step, fullgraph=True, backend="aot_eager")
    exported = torch.export.export(_module(torch, step), (x, x)).module()
    for each in (step, compiled, exported):
        assert torch.equal(each(x, x), torch.full_like(x, 6.0))


def _module(torch: Any, function: Callable[..., Any]) -> Any:
    module = torch.nn.Module()
    module.forward = function
    return module


def test_an_operator_of_a_function_that_mutates(torch: Any) -> None:
    def add(x: Any, y: Any, a: float, z: Any = None) -> None:
        for each in (y, z):
            if each is not None and x is not None:
                each.add_(x, alpha=a)

    tensor = torch.Tensor
    add.__annotations__ = {"x": tensor | None, "y": tensor, "a": float, "z": tensor | None, "return": None}
    operator = cuda_ext.torch_op("cuda_ext_tests::add", add, mutates_args=["y", "z"])
    x = torch.ones(8)
    for arguments in ((x, x * 1, 2.0), (None, x * 1, 2.0), (x, x * 1, 2.0, x * 1)):
        torch.library.opcheck(operator, arguments)
    y, z = x * 1, x * 1
    versions = y._version, z._version
    operator(x, y, 2.0)
    operator(x, y, 2.0, z)
    assert torch.equal(y, 5 * x)
    assert torch.equal(z, 3 * x)
    assert y._version >= versions[0] + 2
    assert z._version > versions[1]
    saved = (leaf := torch.ones(8, requires_grad=True)) * 1
    product = saved * saved
    operator(leaf.detach(), saved, 1.0)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        product.sum().backward()


def test_an_operator_of_a_function_that_returns(torch: Any) -> None:
    @cuda_ext.torch_op("cuda_ext_tests::cube", schema="(Tensor x) -> Tensor", fake=torch.empty_like)
    def cube(x: Any) -> Any:
        y = x**3
        assert not y.requires_grad
        return y

    x = torch.arange(4.0, requires_grad=True)
    assert torch.equal(cube(x), x**3)
    torch.library.register_autograd(
        cube,
        lambda ctx, gradient: gradient * 3 * ctx.saved_tensors[0] ** 2,
        setup_context=lambda ctx, inputs, output: ctx.save_for_backward(*inputs),
    )
    torch.library.opcheck(cube, (x,))
    for each in (cube, torch.compile(cube, fullgraph=True, backend="aot_eager")):
        (gradient,) = torch.autograd.grad(each(x).sum(), x)
        assert torch.equal(gradient, 3 * x**2)


REFUSED = {
    "annotations": (lambda x: None, {}, "the operator tests::refused: PyTorch finds no schema: .*annotate"),
    "twice": (len, {"schema": "(Tensor x) -> ()", "mutates_args": ["x"]}, "mutates_args: `schema` says"),
    "fake": (len, {"schema": "(Tensor x) -> (Tensor, Tensor)"}, "fake: the operator .* returns values"),
}


@pytest.mark.parametrize("what", REFUSED)
@pytest.mark.usefixtures("torch")
def test_refused_functions(what: str) -> None:
    function, keywords, message = REFUSED[what]
    with pytest.raises(ArgumentError, match=f"(?s){message}"):
        cuda_ext.torch_op("tests::refused", function, **keywords)


@pytest.mark.usefixtures("torch")
def test_refused_kernels(axpy: Any) -> None:
    wide = axpy._library.module.wide
    with pytest.raises(ArgumentError, match=r"(?s)w: PyTorch's operators take .*cuda_ext.torch_op"):
        wide.torch_op("tests::wide", grid=1, block=1)
    with pytest.raises(ArgumentError, match=r"threads: expected the name of a parameter of .*, found 'm'"):
        axpy.torch_op("tests::misspelled", threads="m")
