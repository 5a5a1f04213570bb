"""Divergences of distributions that are given by logarithms: Kullback-Leibler and Jensen-Shannon."""

import torch
import triton
import triton.language as tl

from ..utils.op import exp, log

# How the rows of a result are combined.
_REDUCTION_NONE: tl.constexpr = tl.constexpr(0)
_REDUCTION_SUM: tl.constexpr = tl.constexpr(1)
REDUCTIONS = {"none": _REDUCTION_NONE, "sum": _REDUCTION_SUM}


@triton.jit
def kl_forward(
    loss,
    y_log,
    target,
    stride,
    loss_stride,
    n_cols,
    eps,
    BLOCK: tl.constexpr,
    IS_LOG: tl.constexpr = False,
    REDUCTION: tl.constexpr = _REDUCTION_SUM,
):
    row = tl.program_id(0).to(tl.int64)
    total = 0.0
    for first in range(0, n_cols, BLOCK):
        cols = first + tl.arange(0, BLOCK)
        mask = cols < n_cols
        y = tl.load(y_log + row * stride + cols, mask=mask, other=0.0).to(tl.float32)
        t = tl.load(target + row * stride + cols, mask=mask, other=0.0).to(tl.float32)
        if IS_LOG:
            part = exp(t) * (t - y)
        else:
            part = t * (log(tl.maximum(t, eps)) - y)
        if REDUCTION == _REDUCTION_NONE:
            tl.store(loss + row * loss_stride + cols, part, mask=mask)
        else:
            total += tl.sum(tl.where(mask, part, 0.0), 0)
    if REDUCTION == _REDUCTION_SUM:
        tl.store(loss + row * loss_stride, total)


@triton.jit
def kl_backward(dy, target, stride, n_cols, scale, BLOCK: tl.constexpr, IS_LOG: tl.constexpr = False):
    row = tl.program_id(0).to(tl.int64)
    for first in range(0, n_cols, BLOCK):
        cols = first + tl.arange(0, BLOCK)
        t = tl.load(target + row * stride + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
        slope = -exp(t) if IS_LOG else -t
        tl.store(dy + row * stride + cols, slope * scale, mask=cols < n_cols)


@triton.jit
def jsd_forward_backward(
    loss,
    dx,
    x_log,
    y_log,
    labels,
    stride,
    n_cols,
    beta,
    scale,
    ignored,
    HAS_LABELS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64)
    if HAS_LABELS:
        if tl.load(labels + row) == ignored:
            for first in range(0, n_cols, BLOCK):
                cols = first + tl.arange(0, BLOCK)
                tl.store(dx + row * stride + cols, 0.0, mask=cols < n_cols)
            return
    total = 0.0
    for first in range(0, n_cols, BLOCK):
        cols = first + tl.arange(0, BLOCK)
        mask = cols < n_cols
        q_log = tl.load(x_log + row * stride + cols, mask=mask, other=-1e4).to(tl.float32)
        p_log = tl.load(y_log + row * stride + cols, mask=mask, other=-1e4).to(tl.float32)
        p, q = exp(p_log), exp(q_log)
        mixed_log = log(tl.maximum(beta * p + (1 - beta) * q, 1e-37))
        part = beta * p * (p_log - mixed_log) + (1 - beta) * q * (q_log - mixed_log)
        total += tl.sum(tl.where(mask, part, 0.0), 0) * scale
        tl.store(dx + row * stride + cols, (1 - beta) * q * (q_log - mixed_log) * scale, mask=mask)
    tl.store(loss + row, total)


def _block(n):
    return min(triton.next_power_of_2(n), 4096)


def kl(y_log, target, reduction="sum", is_log=False, eps=1e-10):
    """Return KL(target, exp(y_log)): of each element, or summed in each row."""
    (m, n), summed = y_log.shape, reduction == "sum"
    loss = y_log.new_zeros((m,) if summed else (m, n), dtype=torch.float32)
    kl_forward[(m,)](
        loss,
        y_log,
        target,
        y_log.stride(0),
        loss.stride(0),
        n,
        eps,
        BLOCK=_block(n),
        IS_LOG=is_log,
        REDUCTION=REDUCTIONS[reduction],
        num_warps=8,
    )
    return loss


def kl_grad(target, scale=1.0, is_log=False):
    """Return the gradient of the sum of all rows' divergences."""
    dy = torch.empty_like(target)
    (m, n), stride = target.shape, target.stride(0)
    kl_backward[(m,)](dy, target, stride, n, scale, BLOCK=_block(n), IS_LOG=is_log, num_warps=8)
    return dy


def jsd(x_log, y_log, beta=0.5, labels=None, ignored=-100):
    """Return the rows' divergences and the gradient of their mean in `x_log`."""
    (m, n), dx = x_log.shape, torch.empty_like(x_log)
    loss = x_log.new_zeros(m, dtype=torch.float32)
    jsd_forward_backward[(m,)](
        loss,
        dx,
        x_log,
        y_log,
        labels,
        x_log.stride(0),
        n,
        beta,
        1 / m,
        ignored,
        HAS_LABELS=labels is not None,
        BLOCK=_block(n),
        num_warps=8,
    )
    return loss, dx
