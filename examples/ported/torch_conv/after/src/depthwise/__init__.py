"""Causal depthwise convolutions for PyTorch."""

import torch

from depthwise import kernels

_THREADS = 128
_STEPS = 8


def _check(x, weight, bias):
    if x.dim() != 3:
        raise ValueError("x must have the shape (batch, channels, length)")
    if weight.dim() != 2 or weight.shape[0] != x.shape[1]:
        raise ValueError("weight must have the shape (channels, width)")
    if weight.dtype != x.dtype:
        raise TypeError("weight must have the dtype of x")
    if bias is not None:
        if bias.shape != x.shape[1:2] or not bias.is_contiguous():
            raise ValueError("bias must be contiguous, of the shape (channels,)")
        if bias.dtype != x.dtype:
            raise TypeError("bias must have the dtype of x")


def _describe(x, weight, bias, silu):
    """Return the parameters of a launch, its configuration, and what chooses the kernel."""
    batch, channels, length = x.shape
    x_batch, x_channel, x_time = x.stride()
    weight_channel, weight_tap = weight.stride()
    width = weight.shape[1]
    params = kernels.ConvParams(
        batch=batch,
        channels=channels,
        length=length,
        width=width,
        silu=silu,
        x_batch=x_batch,
        x_channel=x_channel,
        x_time=x_time,
        weight_channel=weight_channel,
        weight_tap=weight_tap,
        x=x,
        weight=weight,
        bias=bias,
    )
    channel_last = x_channel == 1 and x_time > 1
    if channel_last:
        grid = (-(-channels // _THREADS), -(-length // _STEPS), batch)
    else:
        grid = (channels, -(-length // (_THREADS * _STEPS)), batch)
    constants = {
        "T": x.dtype,
        "kWidth": width,
        "kHasBias": bias is not None,
        "kSilu": silu,
        "kChannelLast": channel_last,
    }
    return params, grid, constants


class _Conv(torch.autograd.Function):
    @staticmethod
    def forward(context, x, weight, bias, silu):
        _check(x, weight, bias)
        context.save_for_backward(x, weight, bias)
        context.silu = silu
        y = torch.empty_like(x)
        if x.numel():
            params, grid, constants = _describe(x, weight, bias, silu)
            params.y_batch, params.y_channel, params.y_time = y.stride()
            params.y = y
            kernels.conv_forward(params, grid=grid, block=_THREADS, **constants)
        return y

    @staticmethod
    def backward(context, dy):
        x, weight, bias = context.saved_tensors
        dx = torch.empty_like(x)
        dweight = torch.zeros_like(weight, dtype=torch.float32)
        dbias = None if bias is None else torch.zeros_like(bias, dtype=torch.float32)
        if x.numel():
            params, grid, constants = _describe(x, weight, bias, context.silu)
            dy_batch, dy_channel, dy_time = dy.stride()
            dx_batch, dx_channel, dx_time = dx.stride()
            dweight_channel, dweight_tap = dweight.stride()
            gradients = kernels.ConvGradients(
                forward=params,
                dy_batch=dy_batch,
                dy_channel=dy_channel,
                dy_time=dy_time,
                dx_batch=dx_batch,
                dx_channel=dx_channel,
                dx_time=dx_time,
                dweight_channel=dweight_channel,
                dweight_tap=dweight_tap,
                dy=dy,
                dx=dx,
                dweight=dweight,
                dbias=dbias,
            )
            kernels.conv_backward(gradients, grid=grid, block=_THREADS, **constants)
        return dx, dweight.to(weight.dtype), None if bias is None else dbias.to(bias.dtype), None


def conv(x, weight, bias=None, silu=False):
    """Convolve each channel of `x` with its row of `weight`, from the present to the past.

    `x` has the shape (batch, channels, length) with any strides, `weight` (channels, 2 to 4), and `bias`
    (channels,).
    """
    return _Conv.apply(x, weight, bias, silu)
