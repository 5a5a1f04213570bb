"""The names and types of kernels and variables: asked of the compiler by probes, and read from images."""
