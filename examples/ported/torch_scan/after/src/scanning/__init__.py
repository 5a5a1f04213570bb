"""Selective scans for PyTorch."""

import functools

import torch

from scanning import kernels

_TYPES = {torch.float32: "float", torch.float16: "__half", torch.complex64: "complex_t"}
_MOST_STATES = 64
_SHORT, _MEDIUM, _LONG = (64, 8), (128, 16), (256, 16)  # threads of a block and items of a thread


def _check(name, tensor, shape, dtype):
    if tensor.shape != shape or tensor.dtype != dtype:
        raise ValueError(f"{name} must have the shape {shape} and the dtype {dtype}")


def _check_time(name, tensor):
    if tensor.stride(2) != 1 and tensor.shape[2] > 1:
        raise ValueError(f"{name} must be contiguous in time")


def _check_all(x, delta, A, B, C, D):
    if x.dim() != 3 or A.dim() != 2 or A.shape[1] > _MOST_STATES:
        raise ValueError("x must have the shape (batch, channels, length), A (channels, at most 64 states)")
    batch, channels, length = x.shape
    states, dtype = A.shape[1], A.dtype
    _check("delta", delta, x.shape, x.dtype)
    _check("A", A, (channels, states), dtype)
    _check("B", B, (batch, states, length), dtype)
    _check("C", C, (batch, states, length), dtype)
    if D is not None:
        _check("D", D, (channels,), torch.float32)
        if not D.is_contiguous():
            raise ValueError("D must be contiguous")
    _check_time("x", x)
    _check_time("delta", delta)
    _check_time("B", B)
    _check_time("C", C)


@functools.cache
def _choose(dtype, wide, threads, items):
    """Return the kernel, and the size of its shared memory, which does not depend on the type of x."""
    if dtype not in (torch.float32, torch.float16) or wide not in (torch.float32, torch.complex64):
        raise TypeError("x must be float32 or float16, A float32 or complex64")
    kernel = kernels.scan_forward[f"ScanTraits<{_TYPES[dtype]}, {_TYPES[wide]}, {threads}, {items}>"]
    return kernel, kernels.constants[f"ScanTraits<float, {_TYPES[wide]}, {threads}, {items}>::kSmemSize"]


def scan(x, delta, A, B, C, D=None, softplus=False):
    """Return the outputs of a linear recurrence for each channel, and its last states.

    ``h[t] = exp(delta[t] * A) * h[t - 1] + delta[t] * x[t] * B[t]`` and ``y[t] = C[t] @ h[t] + D * x[t]``;
    twice the real part of the product if A, B and C are complex. `x` and `delta` have the shape (batch,
    channels, length), `A` (channels, states), `B` and `C` (batch, states, length), `D` (channels,).
    """
    _check_all(x, delta, A, B, C, D)
    batch, channels, length = x.shape
    threads, items = _SHORT if length <= 512 else _MEDIUM if length <= 2048 else _LONG
    kernel, shared = _choose(x.dtype, A.dtype, threads, items)
    y, last = torch.empty_like(x), A.new_empty((batch, *A.shape))
    if not x.numel():
        return y, last.zero_()
    of_x, of_delta, of_y, of_last = x.stride(), delta.stride(), y.stride(), last.stride()
    of_a, of_b, of_c = A.stride(), B.stride(), C.stride()
    params = kernels.ScanParams(
        batch=batch,
        channels=channels,
        length=length,
        states=A.shape[1],
        softplus=softplus,
        x_batch=of_x[0],
        x_channel=of_x[1],
        delta_batch=of_delta[0],
        delta_channel=of_delta[1],
        A_channel=of_a[0],
        A_state=of_a[1],
        B_batch=of_b[0],
        B_state=of_b[1],
        C_batch=of_c[0],
        C_state=of_c[1],
        y_batch=of_y[0],
        y_channel=of_y[1],
        last_batch=of_last[0],
        last_channel=of_last[1],
        x=x,
        delta=delta,
        A=A,
        B=B,
        C=C,
        D=D,
        y=y,
        last=last,
    )
    kernel(params, grid=(channels, batch), block=threads, shared=shared)
    return y, last
