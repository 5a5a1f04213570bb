"""Compiling as data: source, headers, options, architecture and compiler determine images, names, signatures.

This room knows nothing of setuptools, CMake, wheels, GPUs or drivers, and starts no compiler:
:mod:`cuda_ext.toolchain` does the jobs that this room plans.
"""
