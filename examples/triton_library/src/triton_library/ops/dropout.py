"""Dropout whose mask is computed again from a seed, by Philox."""

import torch
import triton
import triton.language as tl


@triton.jit
def dropout(out, x, n, p, seed, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    values = tl.load(x + at, mask=at < n)
    kept = tl.rand(seed, at) > p
    tl.store(out + at, tl.where(kept, values / (1 - p), 0.0), mask=at < n)


@triton.jit
def normal_noise(out, n, seed, BLOCK: tl.constexpr):
    first = tl.program_id(0) * BLOCK * 4
    at = tl.arange(0, BLOCK)
    a, b, c, d = tl.randn4x(seed, first + at)
    tl.store(out + first + at, a, mask=first + at < n)
    tl.store(out + first + BLOCK + at, b, mask=first + BLOCK + at < n)
    tl.store(out + first + 2 * BLOCK + at, c, mask=first + 2 * BLOCK + at < n)
    tl.store(out + first + 3 * BLOCK + at, d, mask=first + 3 * BLOCK + at < n)


def drop(x, p, seed):
    """Return `x` with a share `p` of zeros; the same seed drops the same elements."""
    out, n = torch.empty_like(x), x.numel()
    dropout[lambda given: (triton.cdiv(n, given["BLOCK"]),)](out, x, n, p, seed, BLOCK=1024)
    return out


def noise(n, seed, device):
    """Return `n` normally distributed numbers."""
    out = torch.empty(n, device=device)
    normal_noise[lambda given: (triton.cdiv(n, 4 * given["BLOCK"]),)](out, n, seed, BLOCK=256)
    return out
