"""Functions of numbers. Which implementation they have depends on the environment and on Triton's version."""

import os

import triton
import triton.language as tl

try:
    from triton.language.extra import libdevice
except ImportError:  # Triton before 3.0
    from triton.language.math import libdevice

if os.environ.get("TRITON_LIBRARY_FAST_MATH", "0") == "1":

    @triton.jit
    def exp(x):
        return libdevice.fast_expf(x.to(tl.float32))

    @triton.jit
    def log(x):
        return libdevice.fast_logf(x.to(tl.float32))
else:

    @triton.jit
    def exp(x):
        return tl.exp(x.to(tl.float32))

    @triton.jit
    def log(x):
        return tl.log(x.to(tl.float32))


rsqrt = libdevice.rsqrt if hasattr(libdevice, "rsqrt") else tl.rsqrt


@triton.jit
def safe_dot(a, b):
    """The product of matrices; operands of float32 are not rounded to TF32."""
    if a.dtype == tl.float32:
        return tl.dot(a, b, input_precision="ieee")
    else:
        return tl.dot(a, b.to(a.dtype))


@triton.jit
def silu(x):
    return x * tl.sigmoid(x)


@triton.jit
def silu_slope(x):
    s = tl.sigmoid(x)
    return s * (1 + x * (1 - s))


@triton.jit
def reciprocal(x):
    """About one divided by `x`; Hopper has an instruction of its own here."""
    if tl.target_info.cuda_capability_geq(9, 0):
        return tl.inline_asm_elementwise(
            "rcp.approx.ftz.f32 $0, $1;", "=r,r", [x], dtype=tl.float32, is_pure=True, pack=1
        )
    else:
        return 1 / x


@triton.jit
def load_tile(x, rows, cols, row_stride, col_stride, n_rows, n_cols):
    """The elements in `rows` and `cols` of a matrix; those outside are zero."""
    mask = (rows < n_rows)[:, None] & (cols < n_cols)[None, :]
    return tl.load(x + rows[:, None] * row_stride + cols[None, :] * col_stride, mask=mask, other=0.0)


@triton.jit
def store_tile(x, values, rows, cols, row_stride, n_rows, n_cols):
    mask = (rows < n_rows)[:, None] & (cols < n_cols)[None, :]
    tl.store(x + rows[:, None] * row_stride + cols[None, :], values.to(x.dtype.element_ty), mask=mask)
