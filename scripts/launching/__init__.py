"""The parts of ``scripts/bench_launch.py``."""
