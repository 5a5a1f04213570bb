"""What the machine is asked when the library is imported."""

import functools
import os

import torch
import triton


def _capability() -> int:
    """Return the compute capability that Triton compiles for, 80 if there is no GPU."""
    try:
        return int(triton.runtime.driver.active.get_current_target().arch)
    except (RuntimeError, ValueError):
        return 80


IS_HOPPER = _capability() >= 90
WARPS = [4, 8] if IS_HOPPER else [2, 4]
IS_QUIET = os.environ.get("TRITON_LIBRARY_QUIET", "1") == "1"
HAS_GPU = torch.cuda.is_available()


def cached(function):
    """Remember the last result of `function` for tensors, which need not be hashable."""
    last: list = []

    @functools.wraps(function)
    def call(*arguments):
        if not last or any(a is not b for a, b in zip(last[0], arguments, strict=True)):
            last[:] = [arguments, function(*arguments)]
        return last[1]

    return call
