"""A package with kernels at two levels."""
