"""CUDA kernels in a package that Meson builds."""
