"""Activation functions for PyTorch."""

import torch

from activations import _C


class _Gelu(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        x = x.contiguous()
        ctx.save_for_backward(x)
        return _C.forward(x)

    @staticmethod
    def backward(ctx, dy):
        (x,) = ctx.saved_tensors
        return _C.backward(dy.contiguous(), x)


gelu = _Gelu.apply
