"""The forward pass of flash attention: the scores of a block of rows never leave the multiprocessor."""

import triton
import triton.language as tl

LOG2_E = tl.constexpr(1.4426950408889634)


@triton.jit
def attention(
    out,
    q,
    k,
    v,
    rows,
    scale,
    CAUSAL: tl.constexpr,
    HEAD: tl.constexpr,
    BM: tl.constexpr = 64,
    BN: tl.constexpr = 64,
):
    """``softmax(scale * q @ k.T) @ v`` of each head, a contiguous array of `rows` rows and HEAD columns."""
    start = tl.program_id(0) * BM
    head = tl.program_id(1).to(tl.int64) * rows * HEAD
    i = start + tl.arange(0, BM)
    d = tl.arange(0, HEAD)
    at = head + i[:, None] * HEAD + d[None, :]
    queries = tl.load(q + at, mask=i[:, None] < rows, other=0.0)
    highest = tl.full((BM,), -float("inf"), tl.float32)
    total = tl.zeros((BM,), tl.float32)
    sums = tl.zeros((BM, HEAD), tl.float32)
    last = rows
    if CAUSAL:
        last = tl.minimum(start + BM, rows)
    for column in range(0, last, BN):
        j = column + tl.arange(0, BN)
        keys = tl.load(k + head + j[None, :] * HEAD + d[:, None], mask=j[None, :] < rows, other=0.0)
        visible = j[None, :] < rows
        if CAUSAL:
            visible &= i[:, None] >= j[None, :]
        scores = tl.where(visible, tl.dot(queries, keys) * (scale * LOG2_E), -float("inf"))
        now = tl.maximum(highest, tl.max(scores, 1))
        weights = tl.exp2(scores - now[:, None])
        shrink = tl.exp2(highest - now)
        highest = now
        total = total * shrink + tl.sum(weights, 1)
        values = tl.load(v + head + j[:, None] * HEAD + d[None, :], mask=j[:, None] < rows, other=0.0)
        sums = tl.dot(weights.to(values.dtype), values, sums * shrink[:, None])
    tl.store(out + at, sums / total[:, None], mask=i[:, None] < rows)
