"""Scans and orders of rows: sums, linear recurrences, running maxima, sorted rows, the largest elements."""

import torch
import triton
import triton.language as tl


@triton.jit
def cumulative_sum(out, x, n_cols, REVERSE: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    at = rows[:, None] * n_cols + tl.arange(0, BLOCK)[None, :]
    mask = (tl.arange(0, BLOCK) < n_cols)[None, :]
    values = tl.load(x + at, mask=mask, other=0.0).to(tl.float32)
    tl.store(out + at, tl.cumsum(values, 1, reverse=REVERSE), mask=mask)


@triton.jit
def _compose(decay_a, value_a, decay_b, value_b):
    return decay_a * decay_b, value_a * decay_b + value_b


@triton.jit
def linear_recurrence(out, decay, x, n, width, BLOCK_T: tl.constexpr, BLOCK_C: tl.constexpr):
    """``out[t] = decay[t] * out[t - 1] + x[t]``, in chunks of BLOCK_T."""
    cols = tl.program_id(0) * BLOCK_C + tl.arange(0, BLOCK_C)
    base = tl.program_id(1).to(tl.int64) * n * width
    state = tl.zeros((BLOCK_C,), tl.float32)
    for first in range(0, n, BLOCK_T):
        t = first + tl.arange(0, BLOCK_T)
        at = base + t[:, None] * width + cols[None, :]
        mask = (t < n)[:, None] & (cols < width)[None, :]
        factor = tl.load(decay + at, mask=mask, other=1.0).to(tl.float32)
        values = tl.load(x + at, mask=mask, other=0.0).to(tl.float32)
        factors, sums = tl.associative_scan((factor, values), 0, _compose)
        sums += factors * state[None, :]
        tl.store(out + at, sums, mask=mask)
        state = tl.sum(tl.where(tl.arange(0, BLOCK_T)[:, None] == BLOCK_T - 1, sums, 0.0), 0)


@triton.jit
def _later_maximum(value_a, index_a, value_b, index_b):
    is_later = value_b >= value_a
    return tl.where(is_later, value_b, value_a), tl.where(is_later, index_b, index_a)


@triton.jit
def cumulative_maximum(out, where, x, n_cols, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    values = tl.load(x + row * n_cols + at, mask=at < n_cols, other=-float("inf")).to(tl.float32)
    highest, index = tl.associative_scan((values, at), 0, _later_maximum)
    tl.store(out + row * n_cols + at, highest, mask=at < n_cols)
    tl.store(where + row * n_cols + at, index.to(tl.int64), mask=at < n_cols)


@triton.jit
def sort_rows(out, x, n_cols, DESCENDING: tl.constexpr, BLOCK: tl.constexpr):
    row, at = tl.program_id(0), tl.arange(0, BLOCK)
    beyond = -float("inf") if DESCENDING else float("inf")
    values = tl.load(x + row * n_cols + at, mask=at < n_cols, other=beyond).to(tl.float32)
    tl.store(out + row * n_cols + at, tl.sort(values, descending=DESCENDING), mask=at < n_cols)


@triton.jit
def largest(out, where, x, n_cols, K: tl.constexpr, BLOCK: tl.constexpr):
    """The K largest positive elements of a row: value and index are sorted as one integer."""
    row, at = tl.program_id(0), tl.arange(0, BLOCK)
    values = tl.load(x + row * n_cols + at, mask=at < n_cols, other=0.0).to(tl.float32)
    keys = (values.to(tl.uint32, bitcast=True).to(tl.uint64) << 32) | at.to(tl.uint64)
    best = tl.topk(keys, K)
    k = tl.arange(0, K)
    tl.store(out + row * K + k, (best >> 32).to(tl.uint32).to(tl.float32, bitcast=True))
    tl.store(where + row * K + k, (best & 0xFFFFFFFF).to(tl.int32))


def cumsum(x, reverse=False):
    """Return sums along rows, whose number is a multiple of 4."""
    out, block = torch.empty_like(x, dtype=torch.float32), triton.next_power_of_2(x.shape[1])
    cumulative_sum[(x.shape[0] // 4,)](out, x, x.shape[1], REVERSE=reverse, ROWS=4, BLOCK=block)
    return out


def recur(decay, x):
    """Return the recurrence along the second of the axes batch, time, channel."""
    (batch, n, width), out = x.shape, torch.empty_like(x, dtype=torch.float32)
    linear_recurrence[(triton.cdiv(width, 32), batch)](out, decay, x, n, width, BLOCK_T=32, BLOCK_C=32)
    return out


def cummax(x):
    """Return running maxima of rows and where they are."""
    out, where = torch.empty_like(x), torch.empty_like(x, dtype=torch.int64)
    cumulative_maximum[(x.shape[0],)](out, where, x, x.shape[1], BLOCK=triton.next_power_of_2(x.shape[1]))
    return out, where


def sort(x, descending=False):
    """Return sorted rows."""
    out, block = torch.empty_like(x), triton.next_power_of_2(x.shape[1])
    sort_rows[(x.shape[0],)](out, x, x.shape[1], DESCENDING=descending, BLOCK=block)
    return out


def topk(x, k):
    """Return the `k` largest of positive elements of each row, and where they are; `k` is a power of two."""
    rows, n = x.shape
    out, where = x.new_empty(rows, k), x.new_empty(rows, k, dtype=torch.int32)
    largest[(rows,)](out, where, x, n, K=k, BLOCK=triton.next_power_of_2(n))
    return out, where
