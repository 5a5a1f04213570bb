"""Launch a loaded kernel: configuration, arguments, the launcher with all checks, and the fast path."""

from __future__ import annotations

import os
from functools import cache


@cache
def is_debugging() -> bool:
    """Return True if ``CUDA_EXT_DEBUG=1`` is set. All launches then take the launcher, which checks more.

    The environment is read once, at the first launch of the process.
    """
    return os.environ.get("CUDA_EXT_DEBUG", "") not in ("", "0")
