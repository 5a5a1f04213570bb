"""The parts of ``scripts/bench_triton.py``."""
