"""``cuda-ext inspect``: what is in a wheel, a module or an image, and what changed between two of them."""

from __future__ import annotations

from cuda_ext.cli.inspect.command import inspect

__all__ = ["inspect"]
