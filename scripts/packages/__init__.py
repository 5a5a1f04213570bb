"""The parts of ``scripts/bench_packages.py``: one project for each way to package them."""
