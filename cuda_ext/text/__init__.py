"""Read CUDA source text without a compiler: one lexer, and the includes, macros and declarations it finds."""
