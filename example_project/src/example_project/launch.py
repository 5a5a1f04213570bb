"""Launch each kernel: numpy arrays in, numpy arrays out, one function per kernel."""

import numpy as np

from . import kernels, scan
from .device_array import DeviceArray, multiprocessor_count

C_TYPES = {"float16": "__half", "float32": "float", "float64": "double"}


def _blocks(items: int, block: int) -> int:
    """The number of blocks of this size that cover all items."""
    return (items + block - 1) // block


def axpy(a: float, x: np.ndarray, y: np.ndarray) -> np.ndarray:
    device_x, device_y = DeviceArray(x), DeviceArray(y)
    kernel = kernels.axpy[C_TYPES[x.dtype.name]]
    kernel(x.size, a, device_x, device_y, grid=_blocks(x.size, 256), block=256)
    return device_y.numpy()


def reduce(x: np.ndarray, block: int) -> np.ndarray:
    grid = min(_blocks(x.size, block), 4 * multiprocessor_count())
    device_x, partial = DeviceArray(x), DeviceArray(np.zeros(grid, x.dtype))
    kernel = kernels[f"blockwise::reduce<{C_TYPES[x.dtype.name]}, {block}>"]
    kernel(x.size, device_x, partial, grid=grid, block=block)
    return partial.numpy().sum(keepdims=True)


def softmax(x: np.ndarray) -> np.ndarray:
    rows, columns = x.shape
    device_x, device_y = DeviceArray(x), DeviceArray(np.zeros_like(x))
    kernel = kernels.softmax[C_TYPES[x.dtype.name]]
    kernel(columns, device_x, device_y, grid=rows, block=256)
    return device_y.numpy()


def softmax_bfloat16(bits: np.ndarray) -> np.ndarray:
    rows, columns = bits.shape
    device_x, device_y = DeviceArray(bits), DeviceArray(np.zeros_like(bits))
    kernel = kernels.softmax["__nv_bfloat16"]  # a bare pointer carries no dtype that could differ
    kernel(columns, device_x.pointer, device_y.pointer, grid=rows, block=256)
    return device_y.numpy()


def stencil(image: np.ndarray, weights: np.ndarray) -> np.ndarray:
    height, width = image.shape
    device_in, device_out = DeviceArray(image), DeviceArray(np.zeros_like(image))
    kernels.weights.copy_from(weights)
    kernels.stencil(
        width,
        height,
        device_in,
        device_out,
        grid=(_blocks(width, 32), _blocks(height, 8)),
        block=(32, 8),
        shared=(32 + 2) * (8 + 2) * image.itemsize,
    )
    return device_out.numpy()


def histogram(data: np.ndarray) -> np.ndarray:
    device_data, bins = DeviceArray(data), DeviceArray(np.zeros(256, np.uint32))
    grid = min(_blocks(data.size, 256), 4 * multiprocessor_count())
    kernels.histogram(device_data, data.size, bins, grid=grid, block=256)
    return bins.numpy()


def gemm(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    (m, k), (n, _) = a.shape, b.shape
    device_a, device_b = DeviceArray(a), DeviceArray(b)
    device_c = DeviceArray(np.zeros((m, n), np.float32))
    grid = (_blocks(n, 16), _blocks(m, 16))
    kernels.gemm(m, n, k, device_a, device_b, device_c, grid=grid, block=(16, 16))
    return device_c.numpy()


def gemm_hopper(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    (m, k), (n, _) = a.shape, b.shape
    device_a, device_b = DeviceArray(a), DeviceArray(b)
    device_c = DeviceArray(np.zeros((m, n), np.float32))
    grid = (_blocks(n, 64), _blocks(m, 64))
    kernels.gemm_hopper(m, n, k, device_a, device_b, device_c, grid=grid, block=128)
    return device_c.numpy()


def clamp(x: np.ndarray, low: float, high: float) -> np.ndarray:
    device_x = DeviceArray(x)
    kernels.clamp(device_x, x.size, low, high, grid=_blocks(x.size, 256), block=256)
    return device_x.numpy()


def grid_scan(x: np.ndarray) -> np.ndarray:
    grid = multiprocessor_count()  # all blocks of a cooperative launch must fit on the GPU at once
    device_x, device_y = DeviceArray(x), DeviceArray(np.zeros_like(x))
    totals = DeviceArray(np.zeros(grid, x.dtype))
    scan.grid_scan(x.size, device_x, device_y, totals, grid=grid, block=256, cooperative=True)
    return device_y.numpy()
