"""The product of two contiguous matrices, accumulated in float32."""

import triton
import triton.language as tl

GROUP = tl.constexpr(8)


@triton.jit
def tile_of_program(M, N, BM: tl.constexpr, BN: tl.constexpr):
    """The tile of this program: those that run together share rows and columns, which stay in the cache."""
    rows, columns = tl.cdiv(M, BM), tl.cdiv(N, BN)
    program = tl.program_id(0)
    first = program // (GROUP * columns) * GROUP
    height = tl.minimum(rows - first, GROUP)
    within = program % (GROUP * columns)
    return first + within % height, within // height


@triton.jit
def matmul(a, b, c, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    tile = tile_of_program(M, N, BM, BN)
    i = tile[0] * BM + tl.arange(0, BM)
    j = tile[1] * BN + tl.arange(0, BN)
    k = tl.arange(0, BK)
    in_a = a + i[:, None].to(tl.int64) * K + k[None, :]
    in_b = b + k[:, None].to(tl.int64) * N + j[None, :]
    sums = tl.zeros((BM, BN), tl.float32)
    for start in range(0, K, BK):
        left = tl.load(in_a, mask=(i[:, None] < M) & (k[None, :] < K - start), other=0.0)
        right = tl.load(in_b, mask=(k[:, None] < K - start) & (j[None, :] < N), other=0.0)
        sums = tl.dot(left, right, sums)
        in_a += BK
        in_b += BK * N
    tl.store(c + i[:, None].to(tl.int64) * N + j[None, :], sums, mask=(i[:, None] < M) & (j[None, :] < N))
