"""For Hopper and newer GPUs: tensor descriptors that the host makes, and numbers in fp8."""

import torch
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor


@triton.jit
def matmul_tma(c, a, b, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    row, column = tl.program_id(0) * BM, tl.program_id(1) * BN
    total = tl.zeros((BM, BN), tl.float32)
    for k in range(0, K, BK):
        total = tl.dot(a.load([row, k]), b.load([k, column]), total)
    c.store([row, column], total.to(tl.float16))


@triton.jit
def quantize_blocks(q, scales, x, n_cols, BLOCK: tl.constexpr, DTYPE: tl.constexpr, HIGHEST: tl.constexpr):
    row, block = tl.program_id(0).to(tl.int64), tl.program_id(1)
    at = block * BLOCK + tl.arange(0, BLOCK)
    values = tl.load(x + row * n_cols + at, mask=at < n_cols, other=0.0).to(tl.float32)
    scale = tl.maximum(tl.max(tl.abs(values), 0) / HIGHEST, 1e-12)
    tl.store(q + row * n_cols + at, (values / scale).to(DTYPE), mask=at < n_cols)
    tl.store(scales + row * tl.num_programs(1) + block, scale)


def tma(a, b):
    """Return ``a @ b`` with descriptors that the host makes."""
    (m, k), n = a.shape, b.shape[1]
    c = a.new_empty(m, n)
    blocks = (c, [128, 128]), (a, [128, 64]), (b, [64, 128])
    described = [TensorDescriptor.from_tensor(tensor, block) for tensor, block in blocks]
    grid = (triton.cdiv(m, 128), triton.cdiv(n, 128))
    matmul_tma[grid](*described, k, BM=128, BN=128, BK=64, num_warps=8)
    return c


def blocks_to_fp8(x, block=128):
    """Return `x` in fp8 with four bits of exponent, and a scale for each `block` elements of a row."""
    (m, n), blocks = x.shape, triton.cdiv(x.shape[1], block)
    q, scales = torch.empty_like(x, dtype=torch.float8_e4m3fn), x.new_empty(m, blocks, dtype=torch.float32)
    quantize_blocks[(m, blocks)](q, scales, x, n, BLOCK=block, DTYPE=tl.float8e4nv, HIGHEST=448.0)
    return q, scales
