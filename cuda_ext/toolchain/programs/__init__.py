"""One compilation by NVRTC: the program itself, and headers that many programs begin with."""
