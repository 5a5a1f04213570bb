"""A package that has nothing to do with CUDA."""
