"""Launch each kernel, from C++ or from Python: numpy arrays in, numpy arrays out."""

from typing import Literal

import numpy as np

from . import _core, kernels
from .device_array import DeviceArray, stream

Language = Literal["C++", "Python"]

BLOCKS, BLOCK = 64, 256
C_TYPES = {"float32": "float", "float64": "double"}


def axpy(language: Language, a: float, x: np.ndarray, y: np.ndarray) -> np.ndarray:
    device_x, device_y = DeviceArray(x), DeviceArray(y)
    if language == "C++":
        _core.axpy(a, device_x, device_y, stream())
    else:
        kernels.axpy(x.size, a, device_x, device_y, threads=x.size, stream=stream())
    return device_y.numpy()


def reduce(language: Language, x: np.ndarray) -> np.ndarray:
    device_x, partial = DeviceArray(x), DeviceArray(np.zeros(BLOCKS, x.dtype))
    if language == "C++":
        _core.reduce(device_x, partial, stream())
    else:
        kernel = kernels.blockwise.reduce[f"{C_TYPES[x.dtype.name]}, {BLOCK}"]
        kernel(x.size, device_x, partial, grid=BLOCKS, block=BLOCK, stream=stream())
    return partial.numpy().sum(keepdims=True)
