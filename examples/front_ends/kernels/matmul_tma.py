"""The product of two matrices that the tensor memory accelerator copies; the launch makes the descriptors."""

import triton
import triton.language as tl


@triton.jit
def matmul_tma(a, b, c, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    i, j = tl.program_id(0) * BM, tl.program_id(1) * BN
    sums = tl.zeros((BM, BN), tl.float32)
    for k in range(0, K, BK):
        sums = tl.dot(a.load([i, k]), b.load([k, j]), sums)
    c.store([i, j], sums.to(tl.float16))
