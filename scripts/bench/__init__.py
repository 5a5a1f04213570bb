"""Shared parts of the benchmarks: the description of the machine, running programs, and tables."""
