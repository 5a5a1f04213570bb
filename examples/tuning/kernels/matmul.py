"""A matrix product of half precision, tuned by Triton's decorator or by ``cuda-ext tune``."""

import triton
import triton.language as tl

TILES = [(32, 64, 4), (64, 64, 4), (64, 128, 4), (128, 64, 4), (128, 128, 4), (128, 128, 8), (128, 256, 8)]


def configurations():
    return [
        triton.Config({"BM": bm, "BN": bn, "BK": bk, "GROUP": 8}, num_warps=warps, num_stages=stages)
        for bm, bn, warps in TILES
        for bk in [32, 64]
        for stages in [3, 4]
    ]


@triton.autotune(configs=configurations(), key=["M", "N", "K"])
@triton.jit
def matmul(
    a,
    b,
    c,
    M,
    N,
    K,
    BM: tl.constexpr,
    BN: tl.constexpr,
    BK: tl.constexpr,
    GROUP: tl.constexpr,
):
    program = tl.program_id(0)
    rows, columns = tl.cdiv(M, BM), tl.cdiv(N, BN)
    group = program // (GROUP * columns)
    first = group * GROUP
    height = min(rows - first, GROUP)
    row = first + program % (GROUP * columns) % height
    column = program % (GROUP * columns) // height
    at_m = row * BM + tl.arange(0, BM)
    at_n = column * BN + tl.arange(0, BN)
    at_k = tl.arange(0, BK)
    sums = tl.zeros((BM, BN), dtype=tl.float32)
    for k in range(0, K, BK):
        in_a = (at_m[:, None] < M) & (k + at_k[None, :] < K)
        in_b = (k + at_k[:, None] < K) & (at_n[None, :] < N)
        left = tl.load(a + at_m[:, None] * K + k + at_k[None, :], mask=in_a, other=0.0)
        right = tl.load(b + (k + at_k[:, None]) * N + at_n[None, :], mask=in_b, other=0.0)
        sums = tl.dot(left, right, sums)
    inside = (at_m[:, None] < M) & (at_n[None, :] < N)
    tl.store(c + at_m[:, None] * N + at_n[None, :], sums.to(tl.float16), mask=inside)
