"""What the benchmarks share: the description of the machine, running programs, and tables of results."""
