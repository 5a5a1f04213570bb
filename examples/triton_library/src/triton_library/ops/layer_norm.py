"""Layer norm of rows with an optional bias and residual."""

import torch
import triton
import triton.language as tl


@triton.heuristics({"HAS_BIAS": lambda given: given["b"] is not None})
@triton.jit
def layer_norm_forward(
    y,
    mean,
    rstd,
    x,
    w,
    b,
    residual,
    stride,
    n_cols,
    eps,
    HAS_BIAS: tl.constexpr,
    HAS_RESIDUAL: tl.constexpr,
    BLOCK: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64)
    cols = tl.arange(0, BLOCK)
    mask = cols < n_cols
    values = tl.load(x + row * stride + cols, mask=mask, other=0.0).to(tl.float32)
    if HAS_RESIDUAL:
        values += tl.load(residual + row * stride + cols, mask=mask, other=0.0).to(tl.float32)
    center = tl.sum(values, 0) / n_cols
    centered = tl.where(mask, values - center, 0.0)
    inverse = 1 / tl.sqrt(tl.sum(centered * centered, 0) / n_cols + eps)
    tl.store(mean + row, center)
    tl.store(rstd + row, inverse)
    out = centered * inverse * tl.load(w + cols, mask=mask).to(tl.float32)
    if HAS_BIAS:
        out += tl.load(b + cols, mask=mask).to(tl.float32)
    tl.store(y + row * stride + cols, out, mask=mask)


@triton.jit
def layer_norm_backward(
    dx,
    dw_parts,
    db_parts,
    dy,
    x,
    w,
    mean,
    rstd,
    stride,
    n_rows,
    n_cols,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    part = tl.program_id(0)
    cols = tl.arange(0, BLOCK)
    mask = cols < n_cols
    weight = tl.load(w + cols, mask=mask, other=0.0).to(tl.float32)
    weight_slope = tl.zeros((BLOCK,), tl.float32)
    bias_slope = tl.zeros((BLOCK,), tl.float32)
    for number in tl.static_range(ROWS):
        row = part * ROWS + number
        is_row = row < n_rows
        at = row.to(tl.int64) * stride + cols
        values = tl.load(x + at, mask=mask & is_row, other=0.0).to(tl.float32)
        slope = tl.load(dy + at, mask=mask & is_row, other=0.0).to(tl.float32)
        inverse = tl.load(rstd + row, mask=is_row, other=0.0)
        normal = tl.where(mask, (values - tl.load(mean + row, mask=is_row, other=0.0)) * inverse, 0.0)
        weight_slope += slope * normal
        bias_slope += slope
        scaled = slope * weight
        along = tl.sum(normal * scaled, 0) / n_cols
        common = tl.sum(scaled, 0) / n_cols
        tl.store(dx + at, (scaled - (normal * along + common)) * inverse, mask=mask & is_row)
    tl.store(dw_parts + part * n_cols + cols, weight_slope, mask=mask)
    tl.store(db_parts + part * n_cols + cols, bias_slope, mask=mask)


@triton.jit
def sum_parts(dw, db, dw_parts, db_parts, n_parts, n_cols, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    cols = tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N)
    weight_slope = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    bias_slope = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for first in range(0, n_parts, BLOCK_M):
        rows = first + tl.arange(0, BLOCK_M)
        mask = (rows[:, None] < n_parts) & (cols[None, :] < n_cols)
        at = rows[:, None] * n_cols + cols[None, :]
        weight_slope += tl.load(dw_parts + at, mask=mask, other=0.0)
        bias_slope += tl.load(db_parts + at, mask=mask, other=0.0)
    tl.store(dw + cols, tl.sum(weight_slope, 0), mask=cols < n_cols)
    tl.store(db + cols, tl.sum(bias_slope, 0), mask=cols < n_cols)


def layer_norm(x, w, b=None, residual=None, eps=1e-5):
    """Return the normalised rows of ``x + residual``, their means and inverse deviations."""
    y = torch.empty_like(x)
    mean, rstd = x.new_empty(2, x.shape[0], dtype=torch.float32).unbind()
    block = triton.next_power_of_2(x.shape[1])
    layer_norm_forward[(x.shape[0],)](
        y,
        mean,
        rstd,
        x,
        w,
        b,
        residual,
        x.stride(0),
        x.shape[1],
        eps,
        HAS_RESIDUAL=residual is not None,
        BLOCK=block,
        num_warps=4 if block < 4096 else 8,
    )
    return y, mean, rstd


def layer_norm_grad(dy, x, w, mean, rstd):
    """Return the gradients of `x`, `w` and the bias."""
    (m, n), dx = x.shape, torch.empty_like(x)
    parts = triton.cdiv(m, 8)
    dw_parts, db_parts = x.new_empty(2, parts, n, dtype=torch.float32).unbind()
    block = triton.next_power_of_2(n)
    layer_norm_backward[(parts,)](
        dx, dw_parts, db_parts, dy, x, w, mean, rstd, x.stride(0), m, n, ROWS=8, BLOCK=block, num_warps=8
    )
    dw, db = torch.empty_like(w), torch.empty_like(w)
    sum_parts[(triton.cdiv(n, 64),)](dw, db, dw_parts, db_parts, parts, n, BLOCK_M=32, BLOCK_N=64)
    return dx, dw, db
