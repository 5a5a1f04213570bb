"""CUDA kernels for Python (``from example_extension import kernels``) and for C++ (``_core``)."""
