"""One compilation: the program of NVRTC, the headers that programs have and depend on, and the commands."""
