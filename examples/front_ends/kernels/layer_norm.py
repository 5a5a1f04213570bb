"""Layer normalisation of rows, one program for each. The bias may be ``None``."""

import triton
import triton.language as tl


@triton.jit
def layer_norm(out, x, weight, stride, n_cols, eps, bias, BLOCK: tl.constexpr = 4096):
    row = tl.program_id(0).to(tl.int64) * stride
    at = tl.arange(0, BLOCK)
    mask = at < n_cols
    values = tl.load(x + row + at, mask=mask, other=0.0).to(tl.float32)
    centered = tl.where(mask, values - tl.sum(values, 0) / n_cols, 0.0)
    result = centered * tl.rsqrt(tl.sum(centered * centered, 0) / n_cols + eps)
    result *= tl.load(weight + at, mask=mask).to(tl.float32)
    if bias is not None:
        result += tl.load(bias + at, mask=mask).to(tl.float32)
    tl.store(out + row + at, result, mask=mask)
