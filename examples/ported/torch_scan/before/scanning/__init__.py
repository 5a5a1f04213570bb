"""Selective scans for PyTorch."""

from scanning import _C


def scan(x, delta, A, B, C, D=None, softplus=False):
    """Return the outputs of a linear recurrence for each channel, and its last states.

    ``h[t] = exp(delta[t] * A) * h[t - 1] + delta[t] * x[t] * B[t]`` and ``y[t] = C[t] @ h[t] + D * x[t]``;
    twice the real part of the product if A, B and C are complex. `x` and `delta` have the shape (batch,
    channels, length), `A` (channels, states), `B` and `C` (batch, states, length), `D` (channels,).
    """
    return _C.forward(x, delta, A, B, C, D, softplus)
