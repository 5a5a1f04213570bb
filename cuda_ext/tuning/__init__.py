"""Measuring the candidates of kernels, on a GPU and without compilers."""
