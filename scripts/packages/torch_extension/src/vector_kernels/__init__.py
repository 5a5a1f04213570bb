"""``axpy(a, x, y)`` and its like, for tensors on the GPU."""

from pathlib import Path

import torch

torch.ops.load_library(next(Path(__file__).parent.glob("_core*")))

axpy = torch.ops.vector_kernels.axpy
reduce = torch.ops.vector_kernels.reduce
softmax = torch.ops.vector_kernels.softmax

__all__ = ["axpy", "reduce", "softmax"]
