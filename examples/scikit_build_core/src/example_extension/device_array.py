"""Device memory for numpy arrays, with cuda-bindings only.

A minimal object with DLPack, sufficient for launches from C++ and from Python without CuPy or PyTorch.
Memory is freed with its array.
"""

import functools
import weakref
from typing import Any

import numpy as np
from cuda.bindings import driver

from . import _core


def _check(returned: tuple[Any, ...]) -> Any:
    """Return the value that a driver function returned, or raise its error."""
    error, *values = returned
    if error != driver.CUresult.CUDA_SUCCESS:
        raise RuntimeError(f"the CUDA driver says {error.name}")
    return values[0] if values else None


@functools.cache
def _use_device() -> None:
    """Make the primary context of the first GPU current; kernels are launched in it."""
    _check(driver.cuInit(0))
    device = _check(driver.cuDeviceGet(0))
    _check(driver.cuCtxSetCurrent(_check(driver.cuDevicePrimaryCtxRetain(device))))


@functools.cache
def stream() -> int:
    """The handle of the stream that all launches use."""
    _use_device()
    return int(_check(driver.cuStreamCreate(driver.CUstream_flags.CU_STREAM_DEFAULT)))


class DeviceArray:
    """A copy of a numpy array of floats in device memory; ``numpy()`` copies it back."""

    def __init__(self, array: np.ndarray) -> None:
        array = np.ascontiguousarray(array)
        self.size = array.size
        self.dtype = array.dtype
        _use_device()
        memory = _check(driver.cuMemAlloc(max(array.nbytes, 1)))
        weakref.finalize(self, driver.cuMemFree, memory)
        self.pointer = int(memory)
        _check(driver.cuMemcpyHtoD(self.pointer, array.ctypes.data, array.nbytes))

    def numpy(self) -> np.ndarray:
        array = np.empty(self.size, self.dtype)
        _check(driver.cuCtxSynchronize())
        _check(driver.cuMemcpyDtoH(array.ctypes.data, self.pointer, array.nbytes))
        return array

    def __dlpack__(self, **_: Any) -> Any:
        return _core.dlpack(self.pointer, self.size, 8 * self.dtype.itemsize, self)

    def __dlpack_device__(self) -> tuple[int, int]:
        return 2, 0  # kDLCUDA, the first GPU
