"""The CMake package CudaExt, installed as ``cuda_ext.cmake``."""
