"""Group norm of images; the statistics are a reduction of tuples."""

import torch
import triton
import triton.language as tl


@triton.jit
def merge(count_a, mean_a, square_a, count_b, mean_b, square_b):
    """The number, mean and squared deviations of two samples together."""
    count = count_a + count_b
    share = tl.where(count == 0, 0.0, count_b / count)
    delta = mean_b - mean_a
    return count, mean_a + delta * share, square_a + square_b + delta * delta * count_a * share


@triton.jit
def group_norm_forward(
    y,
    mean,
    rstd,
    x,
    w,
    b,
    size,
    hidden,
    channels,
    groups,
    eps,
    BLOCK: tl.constexpr,
    SILU: tl.constexpr = False,
):
    group = tl.program_id(0)
    base = group.to(tl.int64) * size
    counts = tl.zeros((BLOCK,), tl.float32)
    means = tl.zeros((BLOCK,), tl.float32)
    squares = tl.zeros((BLOCK,), tl.float32)
    for first in range(0, size, BLOCK):
        at = first + tl.arange(0, BLOCK)
        values = tl.load(x + base + at, mask=at < size, other=0.0).to(tl.float32)
        ones = tl.where(at < size, 1.0, 0.0)
        counts, means, squares = merge(counts, means, squares, ones, values, tl.zeros_like(values))
    _, center, square = tl.reduce((counts, means, squares), 0, merge)
    inverse = 1 / tl.sqrt(square / size + eps)
    tl.store(mean + group, center)
    tl.store(rstd + group, inverse)
    for first in range(0, size, BLOCK):
        at = first + tl.arange(0, BLOCK)
        mask = at < size
        channel = (group % groups) * (channels // groups) + at // hidden
        values = tl.load(x + base + at, mask=mask, other=0.0).to(tl.float32)
        out = (values - center) * inverse * tl.load(w + channel, mask=mask) + tl.load(b + channel, mask=mask)
        if SILU:
            out = out * tl.sigmoid(out)
        tl.store(y + base + at, out, mask=mask)


@triton.jit
def group_norm_backward(
    dx, dw, db, dy, x, w, mean, rstd, hidden, channels, groups, PER_GROUP: tl.constexpr, BLOCK: tl.constexpr
):
    group = tl.program_id(0)
    base = group.to(tl.int64) * PER_GROUP * hidden
    center, inverse = tl.load(mean + group), tl.load(rstd + group)
    along, common = 0.0, 0.0
    for number in range(PER_GROUP):
        channel = (group % groups) * PER_GROUP + number
        weight = tl.load(w + channel).to(tl.float32)
        weight_slope, bias_slope = 0.0, 0.0
        for first in range(0, hidden, BLOCK):
            at = first + tl.arange(0, BLOCK)
            mask = at < hidden
            values = tl.load(x + base + number * hidden + at, mask=mask, other=0.0).to(tl.float32)
            slope = tl.load(dy + base + number * hidden + at, mask=mask, other=0.0).to(tl.float32)
            weight_slope += tl.sum(tl.where(mask, (values - center) * inverse, 0.0) * slope)
            bias_slope += tl.sum(slope)
        tl.atomic_add(dw + channel, weight_slope)
        tl.atomic_add(db + channel, bias_slope)
        along += weight * weight_slope
        common += weight * bias_slope
    size = PER_GROUP * hidden
    for number in range(PER_GROUP):
        weight = tl.load(w + (group % groups) * PER_GROUP + number).to(tl.float32)
        for first in range(0, hidden, BLOCK):
            at = first + tl.arange(0, BLOCK)
            where = base + number * hidden + at
            values = tl.load(x + where, mask=at < hidden, other=0.0).to(tl.float32)
            slope = tl.load(dy + where, mask=at < hidden, other=0.0).to(tl.float32)
            normal = (values - center) * inverse
            out = inverse * (weight * slope - (normal * along + common) / size)
            tl.store(dx + where, out, mask=at < hidden)


def group_norm(x, w, b, groups, eps=1e-5, silu=False):
    """Return the normalised `x` of shape batch, channels, height, width, the means and inverse deviations."""
    (batch, channels, height, width), y = x.shape, torch.empty_like(x)
    mean, rstd = x.new_empty(2, batch * groups, dtype=torch.float32).unbind()
    hidden = height * width
    size = channels // groups * hidden
    group_norm_forward[(batch * groups,)](
        y, mean, rstd, x, w, b, size, hidden, channels, groups, eps, BLOCK=1024, SILU=silu
    )
    return y, mean, rstd


def group_norm_grad(dy, x, w, mean, rstd, groups):
    """Return the gradients of `x`, `w` and the bias."""
    batch, channels, height, width = x.shape
    dx = torch.empty_like(x)
    dw, db = torch.zeros(2, channels, dtype=torch.float32, device=x.device).unbind()
    group_norm_backward[(batch * groups,)](
        dx,
        dw,
        db,
        dy,
        x,
        w,
        mean,
        rstd,
        height * width,
        channels,
        groups,
        PER_GROUP=channels // groups,
        BLOCK=512,
    )
    return dx, dw, db
