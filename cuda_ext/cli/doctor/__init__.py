"""``cuda-ext doctor``: what is here, what keeps kernels from being built or launched, and what to do."""

from __future__ import annotations

from cuda_ext.cli.doctor.command import doctor

__all__ = ["doctor"]
