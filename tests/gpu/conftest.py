"""Several processes test on one GPU at a time."""

from __future__ import annotations

import os

# JAX would reserve three quarters of the GPU's memory for itself, which the others then lack.
os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
