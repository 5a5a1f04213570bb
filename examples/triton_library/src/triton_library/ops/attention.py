"""Attention with grouped heads, a causal mask and its gradients, in blocks of rows."""

import torch
import triton
import triton.language as tl

from ..utils import WARPS

LOG2_E = tl.constexpr(1.4426950408889634)
CONFIGS = [
    triton.Config({"BLOCK_M": m, "BLOCK_N": 64}, num_warps=4, num_stages=stages)
    for m in (64, 128)
    for stages in (2, 3)
]


def _keep(config):
    return config.kwargs["BLOCK_M"] >= config.kwargs["BLOCK_N"]


@triton.autotune(list(filter(_keep, CONFIGS)), key=["rows", "HEAD"])
@triton.jit
def attention_forward(
    out,
    lse,
    q,
    k,
    v,
    scale,
    rows,
    heads,
    GROUP: tl.constexpr,
    HEAD: tl.constexpr,
    CAUSAL: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
):
    head = tl.program_id(1).to(tl.int64)
    base = head * rows * HEAD
    kv_base = (head // heads * (heads // GROUP) + head % heads // GROUP) * rows * HEAD
    m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    columns = tl.arange(0, HEAD)
    queries = tl.load(q + base + m[:, None] * HEAD + columns[None, :], mask=m[:, None] < rows, other=0.0)
    highest = tl.full((BLOCK_M,), -float("inf"), tl.float32)
    total = tl.zeros((BLOCK_M,), tl.float32)
    values = tl.zeros((BLOCK_M, HEAD), tl.float32)
    last = min((tl.program_id(0) + 1) * BLOCK_M, rows) if CAUSAL else rows
    for first in range(0, last, BLOCK_N):
        n = first + tl.arange(0, BLOCK_N)
        keys = tl.load(k + kv_base + n[None, :] * HEAD + columns[:, None], mask=n[None, :] < rows, other=0.0)
        scores = tl.dot(queries, keys) * (scale * LOG2_E)
        mask = n[None, :] < rows
        if CAUSAL:
            mask = mask & (m[:, None] >= n[None, :])
        scores = tl.where(mask, scores, -float("inf"))
        block_highest = tl.maximum(highest, tl.max(scores, 1))
        powers = tl.exp2(scores - block_highest[:, None])
        shrink = tl.exp2(highest - block_highest)
        total = total * shrink + tl.sum(powers, 1)
        block = tl.load(v + kv_base + n[:, None] * HEAD + columns[None, :], mask=n[:, None] < rows, other=0.0)
        values = tl.dot(powers.to(block.dtype), block, values * shrink[:, None])
        highest = block_highest
    mask = m[:, None] < rows
    tl.store(out + base + m[:, None] * HEAD + columns[None, :], values / total[:, None], mask=mask)
    tl.store(lse + head * rows + m, highest + tl.log2(total), mask=m < rows)


@triton.jit
def attention_delta(delta, out, dout, rows, HEAD: tl.constexpr, BLOCK: tl.constexpr):
    head = tl.program_id(1).to(tl.int64)
    m = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    at = (head * rows + m)[:, None] * HEAD + tl.arange(0, HEAD)[None, :]
    mask = m[:, None] < rows
    o = tl.load(out + at, mask=mask, other=0.0).to(tl.float32)
    do = tl.load(dout + at, mask=mask, other=0.0).to(tl.float32)
    tl.store(delta + head * rows + m, tl.sum(o * do, 1), mask=m < rows)


@triton.jit
def _load(x, base, rows, n, HEAD: tl.constexpr):
    at = n[:, None] * HEAD + tl.arange(0, HEAD)[None, :]
    return tl.load(x + base + at, mask=n[:, None] < rows, other=0.0)


@triton.jit
def _weights(queries, keys, lse, m, n, rows, scale, CAUSAL: tl.constexpr):
    """The attention weights of a block, from the logarithms that the forward pass has stored."""
    mask = (m[:, None] < rows) & (n[None, :] < rows)
    if CAUSAL:
        mask = mask & (m[:, None] >= n[None, :])
    scores = tl.dot(queries, tl.trans(keys)) * (scale * LOG2_E)
    return tl.where(mask, tl.exp2(scores - lse[:, None]), 0.0)


@triton.jit
def attention_backward_kv(
    dk,
    dv,
    q,
    k,
    v,
    dout,
    lse,
    delta,
    scale,
    rows,
    HEAD: tl.constexpr,
    CAUSAL: tl.constexpr,
    BLOCK: tl.constexpr,
):
    head = tl.program_id(1).to(tl.int64)
    base = head * rows * HEAD
    n = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    keys, values = _load(k, base, rows, n, HEAD), _load(v, base, rows, n, HEAD)
    k_slope = tl.zeros((BLOCK, HEAD), tl.float32)
    v_slope = tl.zeros((BLOCK, HEAD), tl.float32)
    start = tl.program_id(0) * BLOCK if CAUSAL else 0
    for first in range(start, rows, BLOCK):
        m = first + tl.arange(0, BLOCK)
        queries, slopes = _load(q, base, rows, m, HEAD), _load(dout, base, rows, m, HEAD)
        sums = tl.load(lse + head * rows + m, mask=m < rows, other=0.0)
        shares = tl.load(delta + head * rows + m, mask=m < rows, other=0.0)
        weights = _weights(queries, keys, sums, m, n, rows, scale, CAUSAL)
        v_slope += tl.dot(tl.trans(weights.to(slopes.dtype)), slopes)
        score_slope = weights * (tl.dot(slopes, tl.trans(values)) - shares[:, None])
        k_slope += tl.dot(tl.trans(score_slope.to(queries.dtype)), queries)
    at = base + n[:, None] * HEAD + tl.arange(0, HEAD)[None, :]
    tl.store(dk + at, k_slope * scale, mask=n[:, None] < rows)
    tl.store(dv + at, v_slope, mask=n[:, None] < rows)


@triton.jit
def attention_backward_q(
    dq, q, k, v, dout, lse, delta, scale, rows, HEAD: tl.constexpr, CAUSAL: tl.constexpr, BLOCK: tl.constexpr
):
    head = tl.program_id(1).to(tl.int64)
    base = head * rows * HEAD
    m = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    queries, slopes = _load(q, base, rows, m, HEAD), _load(dout, base, rows, m, HEAD)
    sums = tl.load(lse + head * rows + m, mask=m < rows, other=0.0)
    shares = tl.load(delta + head * rows + m, mask=m < rows, other=0.0)
    q_slope = tl.zeros((BLOCK, HEAD), tl.float32)
    last = min((tl.program_id(0) + 1) * BLOCK, rows) if CAUSAL else rows
    for first in range(0, last, BLOCK):
        n = first + tl.arange(0, BLOCK)
        keys, values = _load(k, base, rows, n, HEAD), _load(v, base, rows, n, HEAD)
        weights = _weights(queries, keys, sums, m, n, rows, scale, CAUSAL)
        score_slope = weights * (tl.dot(slopes, tl.trans(values)) - shares[:, None])
        q_slope += tl.dot(score_slope.to(keys.dtype), keys)
    at = base + m[:, None] * HEAD + tl.arange(0, HEAD)[None, :]
    tl.store(dq + at, q_slope * scale, mask=m[:, None] < rows)


def attention(q, k, v, causal=True):
    """Return attention of contiguous tensors (batch, head, row, column) and logarithms for its gradient."""
    (batch, heads, rows, width), out = q.shape, torch.empty_like(q)
    lse = q.new_empty(batch * heads, rows, dtype=torch.float32)
    attention_forward[lambda given: (triton.cdiv(rows, given["BLOCK_M"]), batch * heads)](
        out, lse, q, k, v, width**-0.5, rows, heads, GROUP=heads // k.shape[1], HEAD=width, CAUSAL=causal
    )
    return out, lse


def attention_grad(dout, q, k, v, out, lse, causal=True):
    """Return the gradients of `q`, `k` and `v`, which have equally many heads."""
    batch, heads, rows, width = q.shape
    dq, dk, dv, delta = (*map(torch.empty_like, (q, k, v)), torch.empty_like(lse))
    grid, scale = (triton.cdiv(rows, 64), batch * heads), width**-0.5
    attention_delta[grid](delta, out, dout, rows, HEAD=width, BLOCK=64)
    common = {"HEAD": width, "CAUSAL": causal, "BLOCK": 64, "num_warps": WARPS[0]}
    attention_backward_kv[grid](dk, dv, q, k, v, dout, lse, delta, scale, rows, **common)
    attention_backward_q[grid](dq, q, k, v, dout, lse, delta, scale, rows, **common)
    return dq, dk, dv
