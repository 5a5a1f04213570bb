"""The parts of ``scripts/digest_wheels.py``."""
