"""Helpers that kernels of several files share."""

from .device import IS_HOPPER, WARPS, cached
from .op import exp, load_tile, log, reciprocal, rsqrt, safe_dot, silu, silu_slope, store_tile

__all__ = [
    "IS_HOPPER",
    "WARPS",
    "cached",
    "exp",
    "load_tile",
    "log",
    "reciprocal",
    "rsqrt",
    "safe_dot",
    "silu",
    "silu_slope",
    "store_tile",
]
