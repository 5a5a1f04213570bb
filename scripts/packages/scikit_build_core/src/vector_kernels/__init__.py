"""``axpy(a, x, y)`` and its like, for arrays on the GPU that speak DLPack."""

from vector_kernels._core import axpy, reduce, softmax

__all__ = ["axpy", "reduce", "softmax"]
