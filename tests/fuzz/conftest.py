"""How many examples each property is tried with: few, and the same ones each time, or ``CUDA_EXT_FUZZ``."""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

# Examples that failed are added to the tests by @example; a database of them would differ by machine.
_COMMON = {"database": None, "deadline": None, "suppress_health_check": list(HealthCheck)}
settings.register_profile("ci", max_examples=60, derandomize=True, **_COMMON)
settings.register_profile(
    "long", max_examples=int(os.environ.get("CUDA_EXT_FUZZ", 0)) or 1, print_blob=True, **_COMMON
)
settings.load_profile("long" if "CUDA_EXT_FUZZ" in os.environ else "ci")
