"""Gated activations: SwiGLU and GEGLU, forward and backward. The gradients replace the inputs."""

import torch
import triton
import triton.language as tl

from ..utils import silu, silu_slope

try:
    from triton.language.extra.libdevice import tanh
except ModuleNotFoundError:
    from triton.language.extra.cuda.libdevice import tanh

SQRT_2_OVER_PI = tl.constexpr(0.7978845608028654)


@triton.jit
def swiglu_forward(out, gate, up, stride, n_cols: tl.constexpr, BLOCK: tl.constexpr):
    at = tl.program_id(0).to(tl.int64) * stride + tl.arange(0, BLOCK)
    mask = tl.arange(0, BLOCK) < n_cols
    a = tl.load(gate + at, mask=mask, other=0).to(tl.float32)
    b = tl.load(up + at, mask=mask, other=0)
    tl.store(out + at, silu(a).to(b.dtype) * b, mask=mask)


@triton.jit
def swiglu_backward(dout, gate, up, stride, n_cols: tl.constexpr, BLOCK: tl.constexpr):
    at = tl.program_id(0).to(tl.int64) * stride + tl.arange(0, BLOCK)
    mask = tl.arange(0, BLOCK) < n_cols
    slope = tl.load(dout + at, mask=mask, other=0).to(tl.float32)
    a = tl.load(gate + at, mask=mask, other=0).to(tl.float32)
    b = tl.load(up + at, mask=mask, other=0).to(tl.float32)
    tl.store(gate + at, slope * b * silu_slope(a), mask=mask)
    tl.store(up + at, slope * silu(a), mask=mask)


@triton.jit
def _gelu(x):
    return 0.5 * x * (1 + tanh(SQRT_2_OVER_PI * (x + 0.044715 * x * x * x)))


@triton.jit
def _gelu_slope(x):
    t = tanh(SQRT_2_OVER_PI * (x + 0.044715 * x * x * x))
    return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * SQRT_2_OVER_PI * (1 + 3 * 0.044715 * x * x)


@triton.autotune([triton.Config({}, num_warps=warps) for warps in (4, 8)], key=["n_cols"])
@triton.jit
def geglu_forward(out, gate, up, stride, n_cols, BLOCK: tl.constexpr):
    at = tl.program_id(0).to(tl.int64) * stride + tl.arange(0, BLOCK)
    mask = tl.arange(0, BLOCK) < n_cols
    a = tl.load(gate + at, mask=mask, other=0).to(tl.float32)
    b = tl.load(up + at, mask=mask, other=0)
    tl.store(out + at, _gelu(a).to(b.dtype) * b, mask=mask)


@triton.jit
def geglu_backward(dout, gate, up, stride, n_cols, BLOCK: tl.constexpr):
    at = tl.program_id(0).to(tl.int64) * stride + tl.arange(0, BLOCK)
    mask = tl.arange(0, BLOCK) < n_cols
    slope = tl.load(dout + at, mask=mask, other=0).to(tl.float32)
    a = tl.load(gate + at, mask=mask, other=0).to(tl.float32)
    b = tl.load(up + at, mask=mask, other=0).to(tl.float32)
    tl.store(gate + at, slope * b * _gelu_slope(a), mask=mask)
    tl.store(up + at, slope * _gelu(a), mask=mask)


def swiglu(gate, up):
    """Return ``silu(gate) * up``."""
    out, block = torch.empty_like(gate), triton.next_power_of_2(gate.shape[1])
    swiglu_forward[(gate.shape[0],)](
        out, gate, up, gate.stride(0), n_cols=gate.shape[1], BLOCK=block, num_warps=8
    )
    return out


def swiglu_grad(dout, gate, up):
    """Replace `gate` and `up` by their gradients."""
    block = triton.next_power_of_2(gate.shape[1])
    swiglu_backward[(gate.shape[0],)](
        dout, gate, up, gate.stride(0), n_cols=gate.shape[1], BLOCK=block, num_warps=8
    )
    return gate, up


def geglu(gate, up):
    """Return ``gelu(gate) * up``, with the approximation of GELU by tanh."""
    out, block = torch.empty_like(gate), triton.next_power_of_2(gate.shape[1])
    geglu_forward[(gate.shape[0],)](out, gate, up, gate.stride(0), gate.shape[1], BLOCK=block)
    return out


def geglu_grad(dout, gate, up):
    """Replace `gate` and `up` by their gradients."""
    block = triton.next_power_of_2(gate.shape[1])
    geglu_backward[(gate.shape[0],)](dout, gate, up, gate.stride(0), gate.shape[1], BLOCK=block, num_warps=8)
    return gate, up
