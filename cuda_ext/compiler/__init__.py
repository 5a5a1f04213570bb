"""The pure function: source, headers, options, architecture and compiler give image, names, signatures.

It knows nothing of setuptools, CMake, wheels, GPUs or drivers.
"""
