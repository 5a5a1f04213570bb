"""What :mod:`bench_jit` measures."""
