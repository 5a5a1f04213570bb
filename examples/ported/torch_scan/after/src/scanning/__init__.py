"""Selective scans for PyTorch."""

import torch

from scanning import kernels

_TYPES = {torch.float32: "float", torch.float16: "__half", torch.complex64: "complex_t"}
_MOST_STATES = 64


def _check_shapes(x, delta, A, B, C, D):
    if x.dim() != 3 or A.dim() != 2 or A.shape[1] > _MOST_STATES:
        raise ValueError("x must have the shape (batch, channels, length), A (channels, at most 64 states)")
    batch, channels, length = x.shape
    states = A.shape[1]
    expected = {
        "delta": (delta, (batch, channels, length), x.dtype),
        "A": (A, (channels, states), A.dtype),
        "B": (B, (batch, states, length), A.dtype),
        "C": (C, (batch, states, length), A.dtype),
    }
    if D is not None:
        expected["D"] = (D, (channels,), torch.float32)
        if not D.is_contiguous():
            raise ValueError("D must be contiguous")
    for name, (tensor, shape, dtype) in expected.items():
        if tensor.shape != shape or tensor.dtype != dtype:
            raise ValueError(f"{name} must have the shape {shape} and the dtype {dtype}")
    for name, tensor in (("x", x), ("delta", delta), ("B", B), ("C", C)):
        if tensor.stride(2) != 1 and tensor.shape[2] > 1:
            raise ValueError(f"{name} must be contiguous in time")


def _choose(x, A):
    """Return the kernel, its threads, and the size of its shared memory."""
    if x.dtype not in (torch.float32, torch.float16) or A.dtype not in (torch.float32, torch.complex64):
        raise TypeError("x must be float32 or float16, A float32 or complex64")
    threads, items = (64, 8) if x.shape[2] <= 512 else (128, 16) if x.shape[2] <= 2048 else (256, 16)
    narrow, wide = _TYPES[x.dtype], _TYPES[A.dtype]
    kernel = kernels.scan_forward[f"ScanTraits<{narrow}, {wide}, {threads}, {items}>"]
    # The size does not depend on the type of x.
    return kernel, threads, kernels.constants[f"ScanTraits<float, {wide}, {threads}, {items}>::kSmemSize"]


def scan(x, delta, A, B, C, D=None, softplus=False):
    """Return the outputs of a linear recurrence for each channel, and its last states.

    ``h[t] = exp(delta[t] * A) * h[t - 1] + delta[t] * x[t] * B[t]`` and ``y[t] = C[t] @ h[t] + D * x[t]``;
    twice the real part of the product if A, B and C are complex. `x` and `delta` have the shape (batch,
    channels, length), `A` (channels, states), `B` and `C` (batch, states, length), `D` (channels,).
    """
    _check_shapes(x, delta, A, B, C, D)
    kernel, threads, shared = _choose(x, A)
    batch, channels, length = x.shape
    y = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    last = torch.empty((batch, *A.shape), dtype=A.dtype, device=x.device)
    if not x.numel():
        return y, last.zero_()
    params = kernels.ScanParams(
        batch=batch,
        channels=channels,
        length=length,
        states=A.shape[1],
        softplus=softplus,
        x=x,
        delta=delta,
        A=A,
        B=B,
        C=C,
        D=D,
        y=y,
        last=last,
    )
    params.x_batch, params.x_channel, _ = x.stride()
    params.delta_batch, params.delta_channel, _ = delta.stride()
    params.A_channel, params.A_state = A.stride()
    params.B_batch, params.B_state, _ = B.stride()
    params.C_batch, params.C_state, _ = C.stride()
    params.y_batch, params.y_channel, _ = y.stride()
    params.last_batch, params.last_channel, _ = last.stride()
    kernel(params, grid=(channels, batch), block=threads, shared=shared)
    return y, last
