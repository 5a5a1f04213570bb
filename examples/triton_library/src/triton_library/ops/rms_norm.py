"""RMS norm of rows, several of them in a block."""

import torch
import triton
import triton.language as tl

from .. import VERSION
from ..utils import cached, rsqrt

ROUNDS_WEIGHT = tl.constexpr(VERSION < "2.0")


@triton.jit
def rms_norm_forward(
    y, rstd, x, w, y_stride, x_stride, n_rows, n_cols, eps, offset, ROWS: tl.constexpr, BLOCK: tl.constexpr
):
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    cols = tl.arange(0, BLOCK)
    row_mask, col_mask = rows < n_rows, cols < n_cols
    mask = row_mask[:, None] & col_mask[None, :]
    values = tl.load(x + rows[:, None] * x_stride + cols[None, :], mask=mask, other=0.0).to(tl.float32)
    inverse = rsqrt(tl.sum(values * values, 1) / n_cols + eps)
    tl.store(rstd + rows, inverse, mask=row_mask)
    weight = tl.load(w + cols, mask=col_mask, other=0.0).to(tl.float32) + offset
    normal = values * inverse[:, None]
    if ROUNDS_WEIGHT:
        normal = normal.to(y.dtype.element_ty).to(tl.float32)
    tl.store(y + rows[:, None] * y_stride + cols[None, :], normal * weight[None, :], mask=mask)


@triton.jit
def rms_norm_backward(
    dx, dw, dy, x, w, rstd, stride, n_rows, n_cols, offset, rows_per_program, BLOCK: tl.constexpr
):
    program = tl.program_id(0)
    cols = tl.arange(0, BLOCK)
    mask = cols < n_cols
    weight = tl.load(w + cols, mask=mask, other=0.0).to(tl.float32) + offset
    weight_slope = tl.zeros((BLOCK,), tl.float32)
    first = program * rows_per_program
    for row in range(first, min(first + rows_per_program, n_rows)):
        values = tl.load(x + row * stride + cols, mask=mask, other=0.0).to(tl.float32)
        slope = tl.load(dy + row * stride + cols, mask=mask, other=0.0).to(tl.float32)
        inverse = tl.load(rstd + row)
        normal = values * inverse
        weight_slope += slope * normal
        scaled = slope * weight
        mean = tl.sum(scaled * normal, 0) / n_cols
        tl.store(dx + row * stride + cols, inverse * (scaled - normal * mean), mask=mask)
    tl.store(dw + program * n_cols + cols, weight_slope, mask=mask)


@cached
def _programs(x):
    if x.is_cuda:
        return torch.cuda.get_device_properties(x.device).multi_processor_count
    return 4


def rms_norm(x, w, eps=1e-6, offset=0.0):
    """Return the normalised rows of `x` and their inverse roots of mean squares."""
    y, rstd = torch.empty_like(x), x.new_empty(x.shape[0], dtype=torch.float32)
    block = triton.next_power_of_2(x.shape[1])
    grid = (triton.cdiv(x.shape[0], 4),)
    rms_norm_forward[grid](
        y, rstd, x, w, y.stride(0), x.stride(0), *x.shape, eps, offset, ROWS=4, BLOCK=block, num_warps=8
    )
    return y, rstd


def rms_norm_grad(dy, x, w, rstd, offset=0.0):
    """Return the gradients of `x` and `w`."""
    programs = _programs(x)
    dx, dw = torch.empty_like(x), x.new_zeros(programs, x.shape[1], dtype=torch.float32)
    rows = triton.cdiv(x.shape[0], programs)
    block = triton.next_power_of_2(x.shape[1])
    rms_norm_backward[(programs,)](
        dx, dw, dy, x, w, rstd, x.stride(0), *x.shape, offset, rows, BLOCK=block, num_warps=8
    )
    return dx, dw.sum(0).to(w.dtype)
