"""Operators of PyTorch on a real GPU: kernels, and functions that launch them."""

from __future__ import annotations

from typing import Any

import pytest

import cuda_ext
from cuda_ext.errors import ArgumentError

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not cuda_ext.gpu_available(), reason="there is no GPU that can be used"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning"),
]

SOURCE = r"""
template <class T> __global__ void axpy(int n, T a, const T* x, T* y) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n && x) y[i] += a * x[i];
}

struct Line { int n; float slope; const float* x; float* y; };
__global__ void evaluate(Line line) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < line.n) line.y[i] = line.slope * line.x[i];
}
__global__ void square(int n, const float* x, float* y) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = x[i] * x[i];
}
"""


@pytest.fixture(scope="module")
def kernels() -> Any:
    return cuda_ext.compile(SOURCE, instantiate=["axpy<float>"], architectures=["native"])


@pytest.fixture(scope="module")
def torch() -> Any:
    return pytest.importorskip("torch")


def test_an_operator_of_a_kernel(kernels: Any, torch: Any) -> None:
    op = kernels.axpy["float"].torch_op("cuda_ext_tests::axpy", threads="n")
    x, y = (torch.ones(1000, device="cuda") for _ in range(2))
    op(1000, 2.0, x, y)
    assert torch.equal(y, 3 * x)
    schema = str(op._schema)
    assert schema == "cuda_ext_tests::axpy(int n, float a, Tensor? x, Tensor(a3!)? y) -> ()"
    for arguments in ((x, y), (None, y)):
        torch.library.opcheck(op, (1000, 2.0, *arguments))

    @torch.compile(fullgraph=True)  # type: ignore[untyped-decorator]
    def compiled(x: Any, y: Any) -> Any:
        z = y * 2
        op(1000, 3.0, x, z)
        op(1000, 3.0, None, z)
        return z + 1

    assert torch.equal(compiled(x, y), torch.full_like(x, 10.0))

    constant = kernels.axpy["float"].torch_op("cuda_ext_tests::constant_axpy", grid=4, block=256)
    computed = kernels.axpy["float"].torch_op(
        "cuda_ext_tests::computed_axpy", block=256, grid=lambda n, *_: n // 250
    )
    for each in (op, constant, computed):
        z = torch.ones(1000, device="cuda", requires_grad=True)
        y = z * 1
        saved, version = y * y, y._version
        each(1000, 2.0, x, y)
        assert torch.equal(y, 3 * x)
        assert y._version == version + 1
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            saved.sum().backward()
        with torch.inference_mode():
            each(1000, 2.0, x, torch.ones(1000, device="cuda"))
    with pytest.raises(ArgumentError, match="operators take tensors, integers, bools and floats only"):
        kernels.evaluate.torch_op("cuda_ext_tests::evaluate", grid=1, block=1)


def test_an_operator_of_a_function_with_a_gradient(kernels: Any, torch: Any) -> None:
    def result(x: Any, *_: Any) -> Any:
        return x.new_empty(x.shape)

    # A structure holds the arrays, so they decide on the stream; then a second kernel.
    @cuda_ext.torch_op("cuda_ext_tests::scaled_square", schema="(Tensor x, float a) -> Tensor", fake=result)
    def scaled_square(x: Any, a: float) -> Any:
        squares, y, n = result(x), result(x), x.numel()
        kernels.square(n, x.contiguous(), squares, threads=n)
        kernels.evaluate(kernels.Line(n=n, slope=a, x=squares, y=y), threads=n)
        return y

    def backward(ctx: Any, gradient: Any) -> Any:
        (x,) = ctx.saved_tensors
        return gradient * 2 * ctx.a * x, None

    def save(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.save_for_backward(inputs[0])
        ctx.a = inputs[1]

    torch.library.register_autograd(scaled_square, backward, setup_context=save)
    x = torch.arange(1000, dtype=torch.float32, device="cuda", requires_grad=True)
    torch.library.opcheck(scaled_square, (x, 3.0))
    for each in (scaled_square, torch.compile(scaled_square, fullgraph=True)):
        y = each(x, 3.0)
        assert torch.equal(y, 3 * x.detach() ** 2)
        assert torch.equal(torch.autograd.grad(y.sum(), x)[0], 6 * x.detach())


def test_an_operator_of_a_function_that_mutates(kernels: Any, torch: Any) -> None:
    @cuda_ext.torch_op("cuda_ext_tests::twice", schema="(Tensor? x, Tensor(a!) y) -> ()")
    def twice(x: Any, y: Any) -> None:
        for factor in (1.0, 2.0):
            kernels.axpy(y.numel(), factor, x, y, threads=y.numel())  # the dtype of y chooses

    x, y = (torch.ones(1000, device="cuda") for _ in range(2))
    for first in (x, None):
        torch.library.opcheck(twice, (first, y))
    version = y._version
    twice(x, y)
    twice(None, y)
    assert torch.equal(y, 4 * x)
    assert y._version == version + 2
