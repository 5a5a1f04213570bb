"""Numbers of 8 bits with scales: rows in int8, and a product of them."""

import torch
import triton
import triton.language as tl

from ..utils import reciprocal


@triton.jit
def quantize_rows(q, scales, x, stride, n_cols, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    at = tl.arange(0, BLOCK)
    values = tl.load(x + row * stride + at, mask=at < n_cols, other=0.0).to(tl.float32)
    scale = tl.maximum(tl.max(tl.abs(values), 0) / 127.0, 1e-12)
    rounded = tl.extra.cuda.libdevice.rint(values * reciprocal(scale))
    tl.store(q + row * n_cols + at, rounded.to(tl.int8), mask=at < n_cols)
    tl.store(scales + row, scale)


@triton.jit
def matmul_int8(c, a, b, a_scales, b_scales, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    total = tl.zeros((BM, BN), tl.int32)
    for first in range(0, K, BK):
        k = first + tl.arange(0, BK)
        left = tl.load(a + m[:, None] * K + k[None, :], mask=(m < M)[:, None] & (k < K)[None, :], other=0)
        right = tl.load(b + n[None, :] * K + k[:, None], mask=(n < N)[None, :] & (k < K)[:, None], other=0)
        total = tl.dot(left, right, total, out_dtype=tl.int32)
    a_scale = tl.load(a_scales + m, mask=m < M, other=0.0)
    b_scale = tl.load(b_scales + n, mask=n < N, other=0.0)
    out = total.to(tl.float32) * a_scale[:, None] * b_scale[None, :]
    tl.store(c + m[:, None] * N + n[None, :], out, mask=(m < M)[:, None] & (n < N)[None, :])


def rows_to_int8(x):
    """Return the rows of `x` in int8 and their scales."""
    q, scales = torch.empty_like(x, dtype=torch.int8), x.new_empty(x.shape[0], dtype=torch.float32)
    block = triton.next_power_of_2(x.shape[1])
    quantize_rows[(x.shape[0],)](q, scales, x, x.stride(0), x.shape[1], BLOCK=block, num_warps=4)
    return q, scales


def int8_matmul(a, a_scales, b, b_scales):
    """Return the product of quantized `a` and of quantized `b` transposed, in float16."""
    (m, k), n = a.shape, b.shape[0]
    c = torch.empty(m, n, dtype=torch.float16, device=a.device)
    grid = (triton.cdiv(m, 64), triton.cdiv(n, 64))
    matmul_int8[grid](c, a, b, a_scales, b_scales, m, n, k, BM=64, BN=64, BK=64)
    return c
