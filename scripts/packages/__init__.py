"""The parts of ``scripts/bench_packages.py``: the same kernels, in a project for each way to package them."""
