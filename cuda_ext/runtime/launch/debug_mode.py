"""Whether ``CUDA_EXT_DEBUG=1`` is set; :mod:`~cuda_ext.runtime.launch.debugging` does what that asks for."""

from __future__ import annotations

import os
from functools import cache

__all__ = ["is_debugging"]


@cache
def is_debugging() -> bool:
    """Whether debug mode is on. The environment is read once, at the first launch of the process."""
    return os.environ.get("CUDA_EXT_DEBUG", "") not in ("", "0")
