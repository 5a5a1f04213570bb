"""Attention, forward: softmax(q k^T) v for each head, without a mask."""

import triton
import triton.language as tl

CONFIGURATIONS = [
    triton.Config({"BM": bm, "BN": bn}, num_warps=warps, num_stages=stages)
    for bm in [64, 128]
    for bn in [32, 64, 128]
    for warps in [4, 8]
    for stages in [2, 3]
]


@triton.autotune(configs=CONFIGURATIONS, key=["heads", "length"])
@triton.jit
def attention(
    q,
    k,
    v,
    out,
    scale,
    heads,
    length,
    DIM: tl.constexpr,
    BM: tl.constexpr,
    BN: tl.constexpr,
):
    base = tl.program_id(1).to(tl.int64) * length * DIM
    at_m = tl.program_id(0) * BM + tl.arange(0, BM)
    at_d = tl.arange(0, DIM)
    queries = tl.load(q + base + at_m[:, None] * DIM + at_d[None, :], mask=at_m[:, None] < length, other=0.0)
    most = tl.full((BM,), -float("inf"), dtype=tl.float32)
    total = tl.zeros((BM,), dtype=tl.float32)
    sums = tl.zeros((BM, DIM), dtype=tl.float32)
    for start in range(0, length, BN):
        at_n = start + tl.arange(0, BN)
        keys = tl.load(k + base + at_n[None, :] * DIM + at_d[:, None], mask=at_n[None, :] < length, other=0.0)
        scores = tl.dot(queries, keys) * scale
        scores = tl.where(at_n[None, :] < length, scores, -float("inf"))
        new = tl.maximum(most, tl.max(scores, 1))
        powers = tl.exp(scores - new[:, None])
        fade = tl.exp(most - new)
        total = total * fade + tl.sum(powers, 1)
        values = tl.load(
            v + base + at_n[:, None] * DIM + at_d[None, :], mask=at_n[:, None] < length, other=0.0
        )
        sums = tl.dot(powers.to(tl.float16), values, sums * fade[:, None])
        most = new
    result = (sums / total[:, None]).to(tl.float16)
    tl.store(out + base + at_m[:, None] * DIM + at_d[None, :], result, mask=at_m[:, None] < length)
