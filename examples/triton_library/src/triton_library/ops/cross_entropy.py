"""Cross-entropy of rows of logits, with label smoothing and a z-loss. The gradient replaces the logits."""

import torch
import triton
import triton.language as tl

from ..utils import exp, log

NEGATIVE = tl.constexpr(-1.0e30)
MAX_BLOCK = 16384


@triton.jit
def cross_entropy_forward(
    loss,
    lse,
    logits,
    labels,
    stride,
    n_cols,
    smoothing,
    z_scale,
    ignored,
    HAS_SMOOTHING: tl.constexpr,
    HAS_Z: tl.constexpr,
    BLOCK: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64)
    label = tl.load(labels + row)
    if label == ignored:
        tl.store(loss + row, 0.0)
        tl.store(lse + row, 0.0)
        return
    highest, total, sum_of_logits = NEGATIVE, 0.0, 0.0
    for first in range(0, n_cols, BLOCK):
        cols = first + tl.arange(0, BLOCK)
        values = tl.load(logits + row * stride + cols, mask=cols < n_cols, other=-float("inf")).to(tl.float32)
        block_highest = tl.maximum(highest, tl.max(values, 0))
        total = total * exp(highest - block_highest) + tl.sum(exp(values - block_highest), 0)
        highest = block_highest
        if HAS_SMOOTHING:
            sum_of_logits += tl.sum(tl.where(cols < n_cols, values, 0.0), 0)
    log_sum = highest + log(total)
    own = tl.load(logits + row * stride + label).to(tl.float32)
    result = log_sum - own
    if HAS_SMOOTHING:
        result = (1 - smoothing) * result + smoothing * (log_sum - sum_of_logits / n_cols)
    if HAS_Z:
        result += z_scale * log_sum * log_sum
    tl.store(loss + row, result)
    tl.store(lse + row, log_sum)


@triton.jit
def cross_entropy_backward(
    logits, dloss, lse, labels, stride, n_cols, smoothing, z_scale, ignored, BLOCK: tl.constexpr
):
    row, block = tl.program_id(0).to(tl.int64), tl.program_id(1)
    cols = block * BLOCK + tl.arange(0, BLOCK)
    mask = cols < n_cols
    label = tl.load(labels + row)
    scale = tl.where(label == ignored, 0.0, tl.load(dloss + row))
    log_sum = tl.load(lse + row)
    values = tl.load(logits + row * stride + cols, mask=mask, other=-float("inf")).to(tl.float32)
    slope = exp(values - log_sum) * (1 + 2 * z_scale * log_sum) - smoothing / n_cols
    slope = tl.where(cols == label, slope - (1 - smoothing), slope)
    tl.store(logits + row * stride + cols, slope * scale, mask=mask)


@triton.jit
def scale_rows(x, factor, stride, n_cols, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    scale = tl.load(factor)
    for first in range(0, n_cols, BLOCK):
        at = first + tl.arange(0, BLOCK)
        values = tl.load(x + row * stride + at, mask=at < n_cols)
        tl.store(x + row * stride + at, values * scale, mask=at < n_cols)


def _block(n):
    return min(triton.next_power_of_2(n), MAX_BLOCK)


def cross_entropy(logits, labels, smoothing=0.0, z_scale=0.0, ignored=-100):
    """Return the loss and the logarithm of the sum of exponentials of each row."""
    (m, n), block = logits.shape, _block(logits.shape[1])
    loss, lse = logits.new_empty(2, m, dtype=torch.float32).unbind()
    cross_entropy_forward[(m,)](
        loss,
        lse,
        logits,
        labels,
        logits.stride(0),
        n,
        smoothing,
        z_scale,
        ignored,
        HAS_SMOOTHING=smoothing > 0,
        HAS_Z=z_scale > 0,
        BLOCK=block,
        num_warps=8,
    )
    return loss, lse


def cross_entropy_grad(dloss, logits, lse, labels, smoothing=0.0, z_scale=0.0, ignored=-100):
    """Replace the logits by their gradients."""
    (m, n), block = logits.shape, min(_block(logits.shape[1]), 4096)
    grid = (m, triton.cdiv(n, block))
    cross_entropy_backward[grid](
        logits, dloss, lse, labels, logits.stride(0), n, smoothing, z_scale, ignored, BLOCK=block, num_warps=8
    )
    return logits


def scale_in_place(x, factor):
    """Multiply the rows of `x` by `factor`, a tensor of one element."""
    scale_rows[(x.shape[0],)](x, factor, x.stride(0), x.shape[1], BLOCK=_block(x.shape[1]))
    return x
