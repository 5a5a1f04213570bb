"""Causal depthwise convolutions for PyTorch."""

import torch

from depthwise import _C


class _Conv(torch.autograd.Function):
    @staticmethod
    def forward(context, x, weight, bias, silu):
        context.save_for_backward(x, weight, bias)
        context.silu = silu
        return _C.forward(x, weight, bias, silu)

    @staticmethod
    def backward(context, dy):
        x, weight, bias = context.saved_tensors
        dx, dweight, dbias = _C.backward(dy, x, weight, bias, context.silu)
        return dx, dweight, dbias, None


def conv(x, weight, bias=None, silu=False):
    """Convolve each channel of `x` with its row of `weight`, from the present to the past.

    `x` has the shape (batch, channels, length) with any strides, `weight` (channels, 2 to 4), and `bias`
    (channels,).
    """
    return _Conv.apply(x, weight, bias, silu)
