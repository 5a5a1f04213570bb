"""Device memory for numpy arrays, with cuda-bindings only.

A minimal object with ``__cuda_array_interface__``, which is sufficient for a pointer argument without
CuPy or PyTorch. Memory is freed with its array.
"""

import functools
import weakref
from typing import Any

import numpy as np
from cuda.bindings import driver


def _check(returned: tuple[Any, ...]) -> Any:
    """Return the value that a driver function returned, or raise its error."""
    error, *values = returned
    if error != driver.CUresult.CUDA_SUCCESS:
        raise RuntimeError(f"the CUDA driver says {error.name}")
    return values[0] if values else None


@functools.cache
def _device() -> driver.CUdevice:
    """Return the first GPU, and make its primary context current; kernels are launched in it."""
    _check(driver.cuInit(0))
    device = _check(driver.cuDeviceGet(0))
    _check(driver.cuCtxSetCurrent(_check(driver.cuDevicePrimaryCtxRetain(device))))
    return device


def _attribute(name: str) -> int:
    attribute = getattr(driver.CUdevice_attribute, f"CU_DEVICE_ATTRIBUTE_{name}")
    return int(_check(driver.cuDeviceGetAttribute(attribute, _device())))


def compute_capability() -> tuple[int, int]:
    return _attribute("COMPUTE_CAPABILITY_MAJOR"), _attribute("COMPUTE_CAPABILITY_MINOR")


def multiprocessor_count() -> int:
    return _attribute("MULTIPROCESSOR_COUNT")


class DeviceArray:
    """A copy of a numpy array in device memory; ``numpy()`` copies it back."""

    def __init__(self, array: np.ndarray) -> None:
        array = np.ascontiguousarray(array)
        self.shape = array.shape
        self.dtype = array.dtype
        self.nbytes = array.nbytes
        _device()
        memory = _check(driver.cuMemAlloc(max(self.nbytes, 1)))
        weakref.finalize(self, driver.cuMemFree, memory)
        self.pointer = int(memory)
        _check(driver.cuMemcpyHtoD(self.pointer, array.ctypes.data, self.nbytes))

    def numpy(self) -> np.ndarray:
        array = np.empty(self.shape, self.dtype)
        _check(driver.cuCtxSynchronize())
        _check(driver.cuMemcpyDtoH(array.ctypes.data, self.pointer, self.nbytes))
        return array

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        return {
            "version": 3,
            "shape": self.shape,
            "typestr": self.dtype.str,
            "data": (self.pointer, False),
        }
