"""The steps of ``cuda_ext_add_module``, which CMake runs."""
