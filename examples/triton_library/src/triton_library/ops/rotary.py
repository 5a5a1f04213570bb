"""Rotary embeddings of queries and keys, in place: halves of a head are turned, forward or backward."""

import triton
import triton.language as tl


@triton.jit
def _turn(x, cos, sin, at, mask, HALF: tl.constexpr):
    low = tl.load(x + at, mask=mask, other=0.0)
    high = tl.load(x + at + HALF, mask=mask, other=0.0)
    tl.store(x + at, low * cos - high * sin, mask=mask)
    tl.store(x + at + HALF, high * cos + low * sin, mask=mask)


@triton.jit
def rotary(
    q,
    q_stride,
    k,
    k_stride,
    cos,
    sin,
    cos_stride,
    n_rows,
    Q_HEADS: tl.constexpr,
    K_HEADS: tl.constexpr,
    HEADS: tl.constexpr,
    HALF: tl.constexpr,
    BACKWARD: tl.constexpr = False,
):
    row = tl.program_id(0).to(tl.int64)
    position = row % n_rows
    columns = tl.arange(0, HALF)
    c = tl.load(cos + position * cos_stride + columns).to(tl.float32)[None, :]
    s = tl.load(sin + position * cos_stride + columns).to(tl.float32)[None, :]
    if BACKWARD:
        s = -s
    heads = tl.arange(0, HEADS)[:, None]
    at = heads * 2 * HALF + columns[None, :]
    _turn(q + row * q_stride, c, s, at, heads < Q_HEADS, HALF)
    _turn(k + row * k_stride, c, s, at, heads < K_HEADS, HALF)


def rotate(q, k, cos, sin, backward=False):
    """Turn `q` and `k`, of the axes batch, row, head, column; `cos` and `sin` have half of the columns."""
    batch, rows, q_heads, columns = q.shape
    rotary[(batch * rows,)](
        q,
        q.stride(1),
        k,
        k.stride(1),
        cos,
        sin,
        cos.stride(0),
        rows,
        Q_HEADS=q_heads,
        K_HEADS=k.shape[2],
        HEADS=triton.next_power_of_2(max(q_heads, k.shape[2])),
        HALF=columns // 2,
        BACKWARD=backward,
    )
    return q, k
