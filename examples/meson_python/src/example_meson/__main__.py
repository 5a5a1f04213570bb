"""``python -m example_meson``: list the kernels and, with a GPU, launch one."""

import numpy as np

import cuda_ext
from example_meson import kernels

print(cuda_ext.describe(kernels))
if cuda_ext.gpu_available():
    x, y = np.arange(5.0), np.ones(5)
    kernels.axpy(len(x), 2.0, x, y, threads=len(x))
    print("2 x + 1 =", y)
else:
    print("There is no GPU here: nothing was launched.")
