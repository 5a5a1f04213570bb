"""A package whose kernels include headers that include headers."""
