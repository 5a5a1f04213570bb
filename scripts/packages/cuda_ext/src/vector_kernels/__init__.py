"""The kernels are called as they are: ``kernels.axpy(n, a, x, y, threads=n)``."""

from vector_kernels import kernels

__all__ = ["kernels"]
