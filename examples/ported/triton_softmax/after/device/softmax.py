import triton
import triton.language as tl


@triton.jit
def softmax(out, x, stride, n_cols, BLOCK: tl.constexpr):
    row = tl.program_id(0) * stride
    at = tl.arange(0, BLOCK)
    values = tl.load(x + row + at, mask=at < n_cols, other=-float("inf")).to(tl.float32)
    powers = tl.exp(values - tl.max(values, 0))
    tl.store(out + row + at, powers / tl.sum(powers, 0), mask=at < n_cols)
