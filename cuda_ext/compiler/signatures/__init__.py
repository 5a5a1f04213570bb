"""The names and types of kernels and variables, from probes that the compiler answers and from images."""
