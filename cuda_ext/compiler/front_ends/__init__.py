"""Kernels in other languages than CUDA C++: requests to front-ends, and descriptions of their images."""
