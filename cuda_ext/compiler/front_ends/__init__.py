"""Kernels that are no CUDA C++: what front-ends are asked for, and descriptions of the images."""
