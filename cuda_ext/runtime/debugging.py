"""``CUDA_EXT_DEBUG=1``: slow launches that find out what is wrong."""

from __future__ import annotations

import os

__all__ = ["enabled"]


def enabled() -> bool:
    return os.environ.get("CUDA_EXT_DEBUG", "") not in ("", "0")
