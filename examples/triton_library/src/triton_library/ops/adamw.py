"""A step of AdamW for a tensor, in place."""

import triton
import triton.language as tl


@triton.autotune(
    configs=[triton.Config({"BLOCK": block}, num_warps=warps) for block in (1024, 2048) for warps in (4, 8)],
    key=["n"],
    restore_value=["x", "first", "second"],
)
@triton.jit
def adamw(x, first, second, dx, n, rate, beta1, beta2, eps, decay, step, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = at < n
    slope = tl.load(dx + at, mask=mask).to(tl.float32)
    values = tl.load(x + at, mask=mask).to(tl.float32) * (1 - rate * decay)
    m = beta1 * tl.load(first + at, mask=mask) + (1 - beta1) * slope
    v = beta2 * tl.load(second + at, mask=mask) + (1 - beta2) * slope * slope
    m_hat = m / (1 - tl.exp(step * tl.log(beta1)))
    v_hat = v / (1 - tl.exp(step * tl.log(beta2)))
    tl.store(x + at, values - rate * m_hat / (tl.sqrt(v_hat) + eps), mask=mask)
    tl.store(first + at, m, mask=mask)
    tl.store(second + at, v, mask=mask)


def adamw_step(x, first, second, dx, step, rate=1e-3, beta1=0.9, beta2=0.999, eps=1e-8, decay=0.01):
    """Update `x` and its moments `first` and `second`; `step` counts from 1."""
    n = x.numel()
    adamw[lambda given: (triton.cdiv(n, given["BLOCK"]),)](
        x, first, second, dx, n, rate, beta1, beta2, eps, decay, float(step)
    )
    return x, first, second
