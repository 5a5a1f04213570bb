"""CUDA text, read once: what its comments, literals and directives are, and what follows from them."""
