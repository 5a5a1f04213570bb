"""Linear attention with a scalar decay, in chunks: states between chunks, outputs within them, gradients.

Tensors have the axes batch, time, head, column; logarithms of decays have batch, time, head.
"""

import torch
import triton
import triton.language as tl

from ..utils import exp, load_tile, safe_dot, store_tile

CHUNK = 64


@triton.heuristics({"HAS_DECAY": lambda given: given["g"] is not None})
@triton.autotune(
    configs=[triton.Config({"BK": 64, "BV": 64}, num_warps=warps) for warps in (4, 8)],
    key=["H", "K", "V"],
)
@triton.jit(do_not_specialize=["T"])
def chunk_states(
    h,
    last,
    k,
    v,
    g,
    T,
    H: tl.constexpr,
    K: tl.constexpr,
    V: tl.constexpr,
    CHUNK: tl.constexpr,
    HAS_DECAY: tl.constexpr,
    BK: tl.constexpr,
    BV: tl.constexpr,
):
    """Store the state before each chunk, and the last one; `g` has sums within chunks."""
    i_k, i_v, i_n = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    batch, head = i_n // H, i_n % H
    chunks = tl.cdiv(T, CHUNK)
    rows = (batch * T).to(tl.int64) * H + head
    state = tl.zeros((BK, BV), tl.float32)
    i, j = i_k * BK + tl.arange(0, BK), i_v * BV + tl.arange(0, BV)
    for chunk in range(chunks):
        store_tile(h + ((batch * chunks + chunk).to(tl.int64) * H + head) * K * V, state, i, j, V, K, V)
        t = chunk * CHUNK + tl.arange(0, CHUNK)
        key_block = load_tile(k + rows * K, i, t, 1, H * K, K, T)
        value_block = load_tile(v + rows * V, t, j, H * V, 1, T, V)
        if HAS_DECAY:
            end = min((chunk + 1) * CHUNK, T) - 1
            decay_end = tl.load(g + rows + end * H).to(tl.float32)
            decay = tl.load(g + rows + t * H, mask=t < T, other=0.0).to(tl.float32)
            state *= exp(decay_end)
            value_block = (value_block * exp(decay_end - decay)[:, None]).to(value_block.dtype)
        state += safe_dot(key_block, value_block)
    store_tile(last + i_n.to(tl.int64) * K * V, state, i, j, V, K, V)


@triton.heuristics({"HAS_DECAY": lambda given: given["g"] is not None})
@triton.jit(do_not_specialize=["T"])
def chunk_outputs(
    o,
    q,
    k,
    v,
    h,
    g,
    scale,
    T,
    H: tl.constexpr,
    K: tl.constexpr,
    V: tl.constexpr,
    CHUNK: tl.constexpr,
    HAS_DECAY: tl.constexpr,
    BK: tl.constexpr,
    BV: tl.constexpr,
):
    i_v, chunk, i_n = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    batch, head = i_n // H, i_n % H
    chunks = tl.cdiv(T, CHUNK)
    rows = (batch * T).to(tl.int64) * H + head
    state = h + ((batch * chunks + chunk).to(tl.int64) * H + head) * K * V
    out = tl.zeros((CHUNK, BV), tl.float32)
    scores = tl.zeros((CHUNK, CHUNK), tl.float32)
    t, j = chunk * CHUNK + tl.arange(0, CHUNK), i_v * BV + tl.arange(0, BV)
    for i_k in range(tl.cdiv(K, BK)):
        i = i_k * BK + tl.arange(0, BK)
        query_block = load_tile(q + rows * K, t, i, H * K, 1, T, K)
        out += safe_dot(query_block, load_tile(state, i, j, V, 1, K, V).to(query_block.dtype))
        scores += safe_dot(query_block, load_tile(k + rows * K, i, t, 1, H * K, K, T))
    mask = (t[:, None] >= t[None, :]) & (t < T)[:, None]
    if HAS_DECAY:
        decay = tl.load(g + rows + t * H, mask=t < T, other=0.0).to(tl.float32)
        out *= exp(decay)[:, None]
        scores *= exp(tl.where(mask, decay[:, None] - decay[None, :], 0.0))
    value_block = load_tile(v + rows * V, t, j, H * V, 1, T, V)
    out = (out + safe_dot(tl.where(mask, scores, 0.0).to(value_block.dtype), value_block)) * scale
    store_tile(o + rows * V, out, t, j, H * V, T, V)


@triton.jit(do_not_specialize=["T"])
def chunk_state_slopes(
    dh,
    q,
    do,
    g,
    scale,
    T,
    H: tl.constexpr,
    K: tl.constexpr,
    V: tl.constexpr,
    CHUNK: tl.constexpr,
    BK: tl.constexpr,
    BV: tl.constexpr,
):
    """Store the gradient of the state behind each chunk."""
    i_k, i_v, i_n = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    batch, head = i_n // H, i_n % H
    chunks = tl.cdiv(T, CHUNK)
    rows = (batch * T).to(tl.int64) * H + head
    slope = tl.zeros((BK, BV), tl.float32)
    i, j = i_k * BK + tl.arange(0, BK), i_v * BV + tl.arange(0, BV)
    for chunk in range(chunks - 1, -1, -1):
        store_tile(dh + ((batch * chunks + chunk).to(tl.int64) * H + head) * K * V, slope, i, j, V, K, V)
        t = chunk * CHUNK + tl.arange(0, CHUNK)
        end = min((chunk + 1) * CHUNK, T) - 1
        decay = tl.load(g + rows + t * H, mask=t < T, other=0.0).to(tl.float32)
        block = load_tile(q + rows * K, i, t, 1, H * K, K, T)
        block = (block * (exp(decay) * scale)[None, :]).to(block.dtype)
        slope *= exp(tl.load(g + rows + end * H).to(tl.float32))
        slope += safe_dot(block, load_tile(do + rows * V, t, j, H * V, 1, T, V))


@triton.jit(do_not_specialize=["T"])
def chunk_input_slopes(
    dq,
    dk,
    dv,
    q,
    k,
    v,
    do,
    h,
    dh,
    g,
    scale,
    T,
    H: tl.constexpr,
    K: tl.constexpr,
    V: tl.constexpr,
    CHUNK: tl.constexpr,
):
    chunk, i_n = tl.program_id(0), tl.program_id(1)
    batch, head = i_n // H, i_n % H
    rows = (batch * T).to(tl.int64) * H + head
    state = ((batch * tl.cdiv(T, CHUNK) + chunk).to(tl.int64) * H + head) * K * V
    t, a, b = chunk * CHUNK + tl.arange(0, CHUNK), tl.arange(0, K), tl.arange(0, V)
    valid = (t < T)[:, None]
    k_at = rows * K + t[:, None] * H * K + a[None, :]
    v_at = rows * V + t[:, None] * H * V + b[None, :]
    queries, keys = tl.load(q + k_at, mask=valid, other=0.0), tl.load(k + k_at, mask=valid, other=0.0)
    values, slopes = tl.load(v + v_at, mask=valid, other=0.0), tl.load(do + v_at, mask=valid, other=0.0)
    states = tl.load(h + state + a[:, None] * V + b[None, :]).to(queries.dtype)
    state_slopes = tl.load(dh + state + a[:, None] * V + b[None, :]).to(queries.dtype)
    decay = tl.load(g + rows + t * H, mask=t < T, other=0.0).to(tl.float32)
    end = tl.load(g + rows + (min((chunk + 1) * CHUNK, T) - 1) * H).to(tl.float32)
    mask = (t[:, None] >= t[None, :]) & valid & (t < T)[None, :]
    within = tl.where(mask, exp(tl.where(mask, decay[:, None] - decay[None, :], 0.0)), 0.0) * scale
    scores = (safe_dot(queries, tl.trans(keys)) * within).to(queries.dtype)
    score_slopes = (safe_dot(slopes, tl.trans(values)) * within).to(queries.dtype)
    after = exp(end - decay)[:, None]
    q_slope = safe_dot(slopes, tl.trans(states)) * (exp(decay) * scale)[:, None] + safe_dot(
        score_slopes, keys
    )
    k_slope = safe_dot(values, tl.trans(state_slopes)) * after + safe_dot(tl.trans(score_slopes), queries)
    v_slope = safe_dot(keys, state_slopes) * after + safe_dot(tl.trans(scores), slopes)
    tl.store(dq + k_at, q_slope, mask=valid)
    tl.store(dk + k_at, k_slope, mask=valid)
    tl.store(dv + v_at, v_slope, mask=valid)


@triton.heuristics(
    {
        "HAS_DECAY": lambda given: given["g"] is not None,
        "HAS_BOUNDS": lambda given: given["bounds"] is not None,
    }
)
@triton.jit(do_not_specialize=["T"])
def recurrent_outputs(
    o,
    q,
    k,
    v,
    g,
    bounds,
    scale,
    T,
    H: tl.constexpr,
    K: tl.constexpr,
    V: tl.constexpr,
    HAS_DECAY: tl.constexpr,
    HAS_BOUNDS: tl.constexpr,
    BV: tl.constexpr,
):
    """One step after the other; `bounds` are those of sequences of different lengths in one batch."""
    i_v, i_n = tl.program_id(0), tl.program_id(1)
    sequence, head = i_n // H, i_n % H
    if HAS_BOUNDS:
        first = tl.load(bounds + sequence).to(tl.int64)
        T = tl.load(bounds + sequence + 1).to(tl.int32) - first.to(tl.int32)
    else:
        first = sequence.to(tl.int64) * T
    a, b = tl.arange(0, K), i_v * BV + tl.arange(0, BV)
    row = first * H + head
    state = tl.zeros((K, BV), tl.float32)
    for _ in range(T):
        if HAS_DECAY:
            state *= exp(tl.load(g + row))
        key = tl.load(k + row * K + a).to(tl.float32)
        value = tl.load(v + row * V + b, mask=b < V, other=0.0).to(tl.float32)
        query = tl.load(q + row * K + a).to(tl.float32) * scale
        state += key[:, None] * value[None, :]
        tl.store(o + row * V + b, tl.sum(state * query[:, None], 0), mask=b < V)
        row += H


def _shape(k, v):
    batch, time, heads, width = k.shape
    return batch, time, {"H": heads, "K": width, "V": v.shape[-1]}


def states(k, v, g=None, chunk=CHUNK):
    """Return the states before each chunk, and the last ones."""
    (batch, time, sizes), chunks = _shape(k, v), triton.cdiv(k.shape[1], chunk)
    h = k.new_empty(batch, chunks, *sizes.values())
    last = k.new_empty(batch, *sizes.values(), dtype=torch.float32)

    def grid(given):
        return triton.cdiv(sizes["K"], given["BK"]), triton.cdiv(sizes["V"], given["BV"]), batch * sizes["H"]

    chunk_states[grid](h, last, k, v, g, time, **sizes, CHUNK=chunk)
    return h, last


def outputs(q, k, v, h, g=None, scale=1.0, chunk=CHUNK):
    """Return the outputs from the states before each chunk."""
    (batch, time, sizes), o = _shape(k, v), torch.empty_like(v)
    grid = (triton.cdiv(sizes["V"], 64), triton.cdiv(time, chunk), batch * sizes["H"])
    chunk_outputs[grid](o, q, k, v, h, g, scale, time, **sizes, CHUNK=chunk, BK=64, BV=64, num_stages=2)
    return o


def linear_attention(q, k, v, g=None, scale=1.0):
    """Return the outputs of all steps; `g` has sums within chunks."""
    h, _ = states(k, v, g)
    return outputs(q, k, v, h, g, scale)


def linear_attention_grad(do, q, k, v, g, scale=1.0):
    """Return the gradients of `q`, `k` and `v`, of at most 64 columns."""
    (batch, time, sizes), (h, _) = _shape(k, v), states(k, v, g)
    dh, chunks = torch.empty_like(h), h.shape[1]
    grid = (triton.cdiv(sizes["K"], 32), triton.cdiv(sizes["V"], 32), batch * sizes["H"])
    chunk_state_slopes[grid](dh, q, do, g, scale, time, **sizes, CHUNK=CHUNK, BK=32, BV=32)
    dq, dk, dv = map(torch.empty_like, (q, k, v))
    grid = (chunks, batch * sizes["H"])
    chunk_input_slopes[grid](dq, dk, dv, q, k, v, do, h, dh, g, scale, time, **sizes, CHUNK=CHUNK)
    return dq, dk, dv


def recurrent(q, k, v, g=None, scale=1.0, bounds=None):
    """Return the outputs of all steps, for a batch of one if sequences have `bounds`."""
    (batch, time, sizes), o = _shape(k, v), torch.empty_like(v)
    sequences = batch if bounds is None else len(bounds) - 1
    grid = (triton.cdiv(sizes["V"], 32), sequences * sizes["H"])
    recurrent_outputs[grid](o, q, k, v, g, bounds, scale, time, **sizes, BV=32, num_warps=1)
    return o
