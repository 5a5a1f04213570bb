"""Reductions: the place of a maximum, histograms, and a sum whose last program finishes it."""

import torch
import triton
import triton.language as tl


@triton.jit
def argmax_rows(where, best, x, n_cols, BLOCK: tl.constexpr):
    row, at = tl.program_id(0), tl.arange(0, BLOCK)
    values = tl.load(x + row * n_cols + at, mask=at < n_cols, other=-float("inf")).to(tl.float32)
    value, index = tl.max(values, 0, return_indices=True)
    tl.store(where + row, index.to(tl.int64))
    tl.store(best + row, value)


@triton.jit
def histogram(counts, x, n, BINS: tl.constexpr, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    values = tl.load(x + at, mask=at < n, other=BINS)
    found = tl.histogram(tl.where((values >= 0) & (values < BINS), values, BINS), 2 * BINS)
    bins = tl.arange(0, 2 * BINS)
    tl.atomic_add(counts + bins, found, mask=bins < BINS)


@triton.jit
def square_sum(out, parts, ticket, x, n, PARTS: tl.constexpr, BLOCK: tl.constexpr):
    program, programs = tl.program_id(0), tl.num_programs(0)
    total = tl.zeros((BLOCK,), tl.float32)
    for first in range(program * BLOCK, n, programs * BLOCK):
        at = first + tl.arange(0, BLOCK)
        values = tl.load(x + at, mask=at < n, other=0.0).to(tl.float32)
        total += values * values
    tl.store(parts + program, tl.sum(total))
    tl.debug_barrier()
    if tl.atomic_add(ticket, 1, sem="acq_rel") == programs - 1:
        at = tl.arange(0, PARTS)
        tl.store(
            out, tl.sqrt(tl.sum(tl.load(parts + at, mask=at < programs, other=0.0, cache_modifier=".cg")))
        )


def argmax(x):
    """Return where the rows of `x` have their maxima, and these."""
    where, best = x.new_empty(x.shape[0], dtype=torch.int64), x.new_empty(x.shape[0])
    argmax_rows[(x.shape[0],)](where, best, x, x.shape[1], BLOCK=triton.next_power_of_2(x.shape[1]))
    return where, best


def count(x, bins):
    """Return how often the numbers below `bins` occur; `bins` is a power of two."""
    counts, n = x.new_zeros(bins, dtype=torch.int32), x.numel()
    histogram[(triton.cdiv(n, 1024),)](counts, x, n, BINS=bins, BLOCK=1024)
    return counts


def norm(x):
    """Return the root of the sum of squares."""
    out, parts, ticket = x.new_empty(1), x.new_empty(64), x.new_zeros(1, dtype=torch.int32)
    square_sum[(min(64, triton.cdiv(x.numel(), 1024)),)](
        out, parts, ticket, x, x.numel(), PARTS=64, BLOCK=1024
    )
    return out
