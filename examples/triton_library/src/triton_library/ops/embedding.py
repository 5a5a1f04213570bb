"""Rows of a table, and the sum of gradients by rows with atomics."""

import torch
import triton
import triton.language as tl


@triton.jit
def embedding_forward(
    out, table, indices, n, width: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr
):
    rows = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    cols = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    index = tl.load(indices + rows, mask=rows < n, other=0)
    mask = (rows < n)[:, None] & (cols < width)[None, :]
    values = tl.load(table + index[:, None] * width + cols[None, :], mask=mask, other=0.0)
    tl.store(out + rows[:, None] * width + cols[None, :], values, mask=mask)


@triton.jit
def embedding_backward(
    dtable, dout, indices, n, width: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr
):
    rows = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    cols = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    index = tl.load(indices + rows, mask=rows < n, other=0)
    mask = (rows < n)[:, None] & (cols < width)[None, :]
    slope = tl.load(dout + rows[:, None] * width + cols[None, :], mask=mask, other=0.0)
    tl.atomic_add(dtable + index[:, None] * width + cols[None, :], slope.to(tl.float32), mask=mask)


BLOCK_M, BLOCK_N = 16, 64


def _grid(n, width):
    return triton.cdiv(n, BLOCK_M), triton.cdiv(width, BLOCK_N)


def embedding(table, indices):
    """Return the rows of `table` with `indices`."""
    n, width = indices.numel(), table.shape[1]
    out = table.new_empty(n, width)
    embedding_forward[_grid(n, width)](out, table, indices, n, width=width, BLOCK_M=BLOCK_M, BLOCK_N=BLOCK_N)
    return out


def embedding_grad(dout, indices, rows):
    """Return the gradient of a table of `rows`."""
    n, width = dout.shape
    dtable = torch.zeros(rows, width, dtype=torch.float32, device=dout.device)
    embedding_backward[_grid(n, width)](
        dtable, dout, indices, n, width=width, BLOCK_M=BLOCK_M, BLOCK_N=BLOCK_N
    )
    return dtable
