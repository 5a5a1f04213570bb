"""Single compilations: programs of NVRTC, the headers that they depend on, options and commands."""
