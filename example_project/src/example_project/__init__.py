"""CUDA kernels in a Python package: ``from example_project import kernels, scan``."""

from example_project.kernels import __kernels__ as kernels
from example_project.scan import __kernels__ as scan

__all__ = ["kernels", "scan"]
