"""``cuda-ext init``: a project to start from.

``name`` makes names for it, ``writing`` puts its files where none are, and ``templates`` holds them.
"""

from __future__ import annotations

from cuda_ext.cli.init.command import init

__all__ = ["init"]
