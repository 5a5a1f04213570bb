"""Products of matrices: with an activation, split along K, and of groups with tensor descriptors."""

import torch
import triton
import triton.language as tl

from ..utils import silu


@triton.jit
def identity(x):
    return x


@triton.jit
def relu(x):
    return tl.maximum(x, 0.0)


@triton.autotune(
    [
        triton.Config({"BM": 128, "BN": 128, "BK": 32}, num_warps=8, num_stages=3),
        triton.Config({"BM": 64, "BN": 64, "BK": 32}, num_warps=4, num_stages=4),
    ],
    key=["M", "N", "K"],
)
@triton.heuristics({"EVEN_K": lambda given: given["K"] % given["BK"] == 0})
@triton.jit
def matmul_activation(
    c,
    a,
    b,
    bias,
    M,
    N,
    K,
    stride_am,
    stride_ak,
    stride_bk,
    stride_bn,
    ACTIVATION: tl.constexpr,
    EVEN_K: tl.constexpr,
    BM: tl.constexpr,
    BN: tl.constexpr,
    BK: tl.constexpr,
    GROUP_M: tl.constexpr = 8,
):
    pid, columns = tl.program_id(0), tl.cdiv(N, BN)
    row, column = tl.swizzle2d(pid // columns, pid % columns, tl.cdiv(M, BM), columns, GROUP_M)
    m, n, k = row * BM + tl.arange(0, BM), column * BN + tl.arange(0, BN), tl.arange(0, BK)
    a_at = a + (m % M)[:, None] * stride_am + k[None, :] * stride_ak
    b_at = b + k[:, None] * stride_bk + (n % N)[None, :] * stride_bn
    total = tl.zeros((BM, BN), tl.float32)
    for first in range(0, K, BK):
        if EVEN_K:
            left, right = tl.load(a_at), tl.load(b_at)
        else:
            left = tl.load(a_at, mask=k[None, :] < K - first, other=0.0)
            right = tl.load(b_at, mask=k[:, None] < K - first, other=0.0)
        total = tl.dot(left, right, total)
        a_at += BK * stride_ak
        b_at += BK * stride_bk
    if bias is not None:
        total += tl.load(bias + n, mask=n < N, other=0.0).to(tl.float32)[None, :]
    total = ACTIVATION(total)
    tl.store(c + m[:, None] * N + n[None, :], total, mask=(m < M)[:, None] & (n < N)[None, :])


@triton.jit
def matmul_split_k(
    c,
    a,
    b,
    M,
    N,
    K,
    SPLIT: tl.constexpr,
    BM: tl.constexpr,
    BN: tl.constexpr,
    BK: tl.constexpr,
):
    pid, part = tl.program_id(0), tl.program_id(1)
    columns = tl.cdiv(N, BN)
    m = pid // columns * BM + tl.arange(0, BM)
    n = pid % columns * BN + tl.arange(0, BN)
    total = tl.zeros((BM, BN), tl.float32)
    for first in range(part * BK, K, SPLIT * BK):
        k = first + tl.arange(0, BK)
        left = tl.load(a + m[:, None] * K + k[None, :], mask=(m < M)[:, None] & (k < K)[None, :], other=0.0)
        right = tl.load(b + k[:, None] * N + n[None, :], mask=(k < K)[:, None] & (n < N)[None, :], other=0.0)
        total = tl.dot(left, right, total)
    mask = (m < M)[:, None] & (n < N)[None, :]
    tl.atomic_add(c + m[:, None] * N + n[None, :], total, mask=mask, sem="relaxed")


@triton.jit
def matmul_grouped(
    c, a, b, ends, N, K, GROUPS: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr
):
    """Rows of `a` between two `ends` are multiplied by one matrix of `b`; ends are multiples of BM."""
    row, column = tl.program_id(0) * BM, tl.program_id(1) * BN
    group = 0
    for number in tl.static_range(GROUPS):
        group += (tl.load(ends + number) <= row).to(tl.int32)
    rows = tl.load(ends + GROUPS - 1)
    left = tl.make_tensor_descriptor(a, shape=[rows, K], strides=[K, 1], block_shape=[BM, BK])
    right = tl.make_tensor_descriptor(b + group.to(tl.int64) * K * N, [K, N], [N, 1], [BK, BN])
    out = tl.make_tensor_descriptor(c, shape=[rows, N], strides=[N, 1], block_shape=[BM, BN])
    total = tl.zeros((BM, BN), tl.float32)
    for k in range(0, K, BK):
        total = tl.dot(left.load([row, k]), right.load([k, column]), total)
    out.store([row, column], total.to(c.dtype.element_ty))


ACTIVATIONS = {"none": identity, "relu": relu, "silu": silu}


def linear(a, b, bias=None, activation="none"):
    """Return ``activation(a @ b + bias)``."""
    (m, k), n = a.shape, b.shape[1]
    c = a.new_empty(m, n)
    matmul_activation[lambda given: (triton.cdiv(m, given["BM"]) * triton.cdiv(n, given["BN"]),)](
        c, a, b, bias, m, n, k, *a.stride(), *b.stride(), ACTIVATION=ACTIVATIONS[activation]
    )
    return c


def split_k(a, b, split=4):
    """Return ``a @ b`` of contiguous matrices in float32; parts of K are added in any order."""
    (m, k), n = a.shape, b.shape[1]
    c = a.new_zeros(m, n, dtype=torch.float32)
    grid = (triton.cdiv(m, 32) * triton.cdiv(n, 64), split)
    matmul_split_k[grid](c, a, b, m, n, k, SPLIT=split, BM=32, BN=64, BK=32)
    return c


def grouped(a, b, ends):
    """Return the products of groups of rows of `a` with the matrices of `b`."""
    triton.set_allocator(lambda size, _alignment, _stream: a.new_empty(size, dtype=torch.int8))
    (m, k), (groups, _, n) = a.shape, b.shape
    c = a.new_empty(m, n)
    matmul_grouped[(m // 64, triton.cdiv(n, 64))](c, a, b, ends, n, k, GROUPS=groups, BM=64, BN=64, BK=32)
    return c
