"""Functions of torch tensors that launch the kernels."""

from __future__ import annotations

from typing import Any

from front_ends import kernels

__all__ = ["attention", "layer_norm", "matmul", "matmul_tma", "softmax"]


def softmax(x: Any, scale: float = 1.0) -> Any:
    """The softmax of ``scale * x`` along the last of two axes, of up to 4096 elements."""
    out = x.new_empty(x.shape)
    block = 1024 if x.shape[1] <= 1024 else 4096
    kernels.softmax(out, x, x.stride(0), x.shape[1], scale, BLOCK=block, grid=x.shape[0])
    return out


def layer_norm(x: Any, weight: Any, bias: Any = None, eps: float = 1e-5) -> Any:
    """The normalised rows of `x`, of up to 4096 elements."""
    out = x.new_empty(x.shape)
    kernels.layer_norm(out, x, weight, x.stride(0), x.shape[1], eps, bias=bias, grid=x.shape[0])
    return out


def matmul(a: Any, b: Any) -> Any:
    """The product of two contiguous matrices."""
    (m, k), n = a.shape, b.shape[1]
    out = a.new_empty((m, n))
    kernels.matmul(a, b, out, m, n, k, grid=lambda given: -(-m // given["BM"]) * -(-n // given["BN"]))
    return out


def matmul_tma(a: Any, b: Any) -> Any:
    """The product of two matrices of float16 whose rows begin at multiples of 16 bytes, on Hopper."""
    out = a.new_empty((a.shape[0], b.shape[1]))
    grid = -(-a.shape[0] // 128), -(-b.shape[1] // 128)
    kernels.matmul_tma(a, b, out, a.shape[1], grid=grid)
    return out


def attention(q: Any, k: Any, v: Any, causal: bool = False) -> Any:
    """Attention of contiguous arrays with the axes batch, head, row and 64 columns."""
    batch, heads, rows, columns = q.shape
    out = q.new_empty(q.shape)
    grid = -(-rows // 64), batch * heads
    kernels.attention(out, q, k, v, rows, columns**-0.5, CAUSAL=causal, HEAD=columns, grid=grid)
    return out
