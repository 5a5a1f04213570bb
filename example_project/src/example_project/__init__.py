"""CUDA kernels in a Python package: ``from example_project import kernels, scan``."""
