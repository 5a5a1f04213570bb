"""The gated delta rule in chunks: each step replaces what a key remembers.

A chunk's steps are one product with the inverse of a triangular matrix. The axes are those of
``linear_attention``.
"""

import torch
import triton
import triton.language as tl

from ..utils import exp, load_tile, safe_dot
from .linear_attention import outputs

CHUNK = 32


@triton.jit(do_not_specialize=["T"])
def chunk_cumsum(out, g, T, H: tl.constexpr, CHUNK: tl.constexpr, REVERSE: tl.constexpr = False):
    """Sums within chunks."""
    chunk, i_n = tl.program_id(0), tl.program_id(1)
    rows = (i_n // H * T).to(tl.int64) * H + i_n % H
    t = chunk * CHUNK + tl.arange(0, CHUNK)
    block = tl.load(g + rows + t * H, mask=t < T, other=0.0).to(tl.float32)
    total = tl.cumsum(block, 0)
    if REVERSE:
        total = tl.sum(block, 0) - total + block
    tl.store(out + rows + t * H, total, mask=t < T)


@triton.jit(do_not_specialize=["T"])
def chunk_triangle(
    out, k, beta, g, T, H: tl.constexpr, K: tl.constexpr, CHUNK: tl.constexpr, BK: tl.constexpr
):
    """The products of keys below the diagonal, scaled by `beta` and the decay between their steps."""
    chunk, i_n = tl.program_id(0), tl.program_id(1)
    rows = (i_n // H * T).to(tl.int64) * H + i_n % H
    t = chunk * CHUNK + tl.arange(0, CHUNK)
    valid = t < T
    products = tl.zeros((CHUNK, CHUNK), tl.float32)
    for i_k in range(tl.cdiv(K, BK)):
        block = load_tile(k + rows * K, t, i_k * BK + tl.arange(0, BK), H * K, 1, T, K)
        products += safe_dot(block, tl.trans(block))
    strength = tl.load(beta + rows + t * H, mask=valid, other=0.0).to(tl.float32)
    decay = tl.load(g + rows + t * H, mask=valid, other=0.0)
    below = (t[:, None] > t[None, :]) & valid[:, None]
    products *= exp(tl.where(below, decay[:, None] - decay[None, :], 0.0)) * strength[:, None]
    columns = tl.arange(0, CHUNK)
    at = (rows + t[:, None] * H) * CHUNK + columns[None, :]
    tl.store(out + at, tl.where(below, products, 0.0), mask=valid[:, None])


@triton.jit(do_not_specialize=["T"])
def invert_triangle(out, a, T, H: tl.constexpr, CHUNK: tl.constexpr):
    """The inverse of one plus a strictly lower triangle, row by row."""
    chunk, i_n = tl.program_id(0), tl.program_id(1)
    rows = (i_n // H * T).to(tl.int64) * H + i_n % H
    i, columns = tl.arange(0, CHUNK), tl.arange(0, CHUNK)
    t = chunk * CHUNK + i
    at = (rows + t[:, None] * H) * CHUNK + columns[None, :]
    inverse = -tl.load(a + at, mask=(t < T)[:, None], other=0.0).to(tl.float32)
    for number in range(1, min(CHUNK, T - chunk * CHUNK)):
        row = tl.sum(tl.where((i == number)[:, None], inverse, 0.0), 0)
        row += tl.sum(row[:, None] * tl.where((i < number)[:, None], inverse, 0.0), 0)
        inverse = tl.where((i == number)[:, None], row[None, :], inverse)
    inverse += (i[:, None] == columns[None, :]).to(tl.float32)
    tl.store(out + at, inverse, mask=(t < T)[:, None])


@triton.jit(do_not_specialize=["T"])
def chunk_writes(
    w, u, k, v, beta, g, a, T, H: tl.constexpr, K: tl.constexpr, V: tl.constexpr, CHUNK: tl.constexpr
):
    """What the steps of a chunk write, and what of the state before it they take back."""
    chunk, i_n = tl.program_id(0), tl.program_id(1)
    rows = (i_n // H * T).to(tl.int64) * H + i_n % H
    t, i, j = chunk * CHUNK + tl.arange(0, CHUNK), tl.arange(0, K), tl.arange(0, V)
    valid = (t < T)[:, None]
    at = (rows + t[:, None] * H) * CHUNK + tl.arange(0, CHUNK)[None, :]
    inverse = tl.load(a + at, mask=valid, other=0.0)
    strength = tl.load(beta + rows + t * H, mask=t < T, other=0.0).to(tl.float32)
    decay = tl.load(g + rows + t * H, mask=t < T, other=0.0)
    k_at, v_at = (rows + t[:, None] * H) * K + i[None, :], (rows + t[:, None] * H) * V + j[None, :]
    keys = tl.load(k + k_at, mask=valid, other=0.0)
    values = tl.load(v + v_at, mask=valid, other=0.0)
    scaled_keys = (keys * (strength * exp(decay))[:, None]).to(keys.dtype)
    scaled_values = (values * strength[:, None]).to(values.dtype)
    tl.store(w + k_at, safe_dot(inverse.to(keys.dtype), scaled_keys), mask=valid)
    tl.store(u + v_at, safe_dot(inverse.to(values.dtype), scaled_values), mask=valid)


@triton.heuristics({"HAS_START": lambda given: given["start"] is not None})
@triton.jit(do_not_specialize=["T"])
def delta_states(
    h,
    written,
    last,
    k,
    w,
    u,
    g,
    start,
    T,
    H: tl.constexpr,
    K: tl.constexpr,
    V: tl.constexpr,
    CHUNK: tl.constexpr,
    BV: tl.constexpr,
    HAS_START: tl.constexpr,
):
    i_v, i_n = tl.program_id(0), tl.program_id(1)
    batch, head = i_n // H, i_n % H
    chunks = tl.cdiv(T, CHUNK)
    rows = (batch * T).to(tl.int64) * H + head
    i, j = tl.arange(0, K), i_v * BV + tl.arange(0, BV)
    in_state = i[:, None] * V + j[None, :]
    state = tl.zeros((K, BV), tl.float32)
    if HAS_START:
        state += tl.load(start + i_n.to(tl.int64) * K * V + in_state)
    for chunk in range(chunks):
        tl.store(h + ((batch * chunks + chunk).to(tl.int64) * H + head) * K * V + in_state, state)
        t = chunk * CHUNK + tl.arange(0, CHUNK)
        valid = (t < T)[:, None]
        k_at, v_at = (rows + t[:, None] * H) * K + i[None, :], (rows + t[:, None] * H) * V + j[None, :]
        keys = tl.load(k + k_at, mask=valid, other=0.0)
        taken = tl.load(w + k_at, mask=valid, other=0.0)
        values = tl.load(u + v_at, mask=valid, other=0.0).to(tl.float32)
        values -= safe_dot(taken, state.to(taken.dtype))
        tl.store(written + v_at, values, mask=valid)
        decay = tl.load(g + rows + t * H, mask=t < T, other=0.0)
        end = tl.load(g + rows + (min((chunk + 1) * CHUNK, T) - 1) * H)
        values *= exp(end - decay)[:, None]
        state = state * exp(end) + safe_dot(tl.trans(keys), values.to(keys.dtype))
    tl.store(last + i_n.to(tl.int64) * K * V + in_state, state)


@triton.jit(do_not_specialize=["T"])
def recurrent_delta(
    o,
    q,
    k,
    v,
    beta,
    g,
    scale,
    T,
    H: tl.constexpr,
    K: tl.constexpr,
    V: tl.constexpr,
    BV: tl.constexpr,
    NORM: tl.constexpr,
):
    i_v, i_n = tl.program_id(0), tl.program_id(1)
    row = (i_n // H).to(tl.int64) * T * H + i_n % H
    i, j = tl.arange(0, K), i_v * BV + tl.arange(0, BV)
    state = tl.zeros((K, BV), tl.float32)
    for _ in range(T):
        query = tl.load(q + row * K + i).to(tl.float32)
        key = tl.load(k + row * K + i).to(tl.float32)
        if NORM:
            query = query / tl.sqrt(tl.sum(query * query) + 1e-6)
            key = key / tl.sqrt(tl.sum(key * key) + 1e-6)
        state *= exp(tl.load(g + row))
        value = tl.load(v + row * V + j).to(tl.float32) - tl.sum(state * key[:, None], 0)
        state += key[:, None] * (value * tl.load(beta + row).to(tl.float32))[None, :]
        tl.store(o + row * V + j, tl.sum(state * (query * scale)[:, None], 0))
        row += H


def cumulate(g, chunk=CHUNK, reverse=False):
    """Return the sums of `g` within chunks."""
    (batch, time, heads), out = g.shape, torch.empty_like(g, dtype=torch.float32)
    grid = (triton.cdiv(time, chunk), batch * heads)
    chunk_cumsum[grid](out, g, time, H=heads, CHUNK=chunk, REVERSE=reverse)
    return out


def gated_delta(q, k, v, beta, g, scale=1.0, start=None):
    """Return the outputs of all steps and the last states; `g` has the logarithm of each step's decay."""
    (batch, time, heads, width), columns = k.shape, v.shape[-1]
    g, grid = cumulate(g), (triton.cdiv(time, CHUNK), batch * heads)
    products, inverse = k.new_empty(2, batch, time, heads, CHUNK, dtype=torch.float32).unbind()
    chunk_triangle[grid](products, k, beta, g, time, H=heads, K=width, CHUNK=CHUNK, BK=32)
    invert_triangle[grid](inverse, products, time, H=heads, CHUNK=CHUNK, num_warps=2)
    w, u, written = torch.empty_like(k), torch.empty_like(v), torch.empty_like(v)
    sizes = {"H": heads, "K": width, "V": columns}
    chunk_writes[grid](w, u, k, v, beta, g, inverse, time, **sizes, CHUNK=CHUNK)
    h = k.new_empty(batch, triton.cdiv(time, CHUNK), heads, width, columns)
    last = k.new_empty(batch, heads, width, columns, dtype=torch.float32)
    grid = (triton.cdiv(columns, 32), batch * heads)
    delta_states[grid](h, written, last, k, w, u, g, start, time, **sizes, CHUNK=CHUNK, BV=32)
    return outputs(q, k, written, h, g, scale, CHUNK), last


def recurrent(q, k, v, beta, g, scale=1.0, norm=False):
    """Return the outputs of all steps, one after the other; `norm` scales queries and keys to length one."""
    (batch, time, heads, width), o = k.shape, torch.empty_like(v)
    sizes, grid = {"H": heads, "K": width, "V": v.shape[-1]}, (triton.cdiv(v.shape[-1], 32), batch * heads)
    recurrent_delta[grid](o, q, k, v, beta, g, scale, time, **sizes, BV=32, NORM=norm, num_warps=1)
    return o
