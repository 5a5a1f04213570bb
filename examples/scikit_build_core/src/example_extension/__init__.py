"""CUDA kernels that Python launches, ``from example_extension import kernels``, and C++, ``_core``."""
