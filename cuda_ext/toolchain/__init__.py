"""The tools that compile: :mod:`~cuda_ext.toolchain.compilers` opens them."""
