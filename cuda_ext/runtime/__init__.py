"""Load and launch the kernels of a module. Nothing is imported or loaded before its first use."""
