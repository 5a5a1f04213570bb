"""One compilation: the program of NVRTC, and the headers that programs have, begin with and depend on."""
