"""numpy arrays as arguments on a real GPU: all sizes, types and orders, one or many at once."""

from __future__ import annotations

import contextvars
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import cuda_ext
from cuda_ext.errors import ArgumentError, LaunchError
from cuda_ext.runtime.arrays.staging import staging_of
from cuda_ext.runtime.driver.driver import Device
from cuda_ext.runtime.driver.functions import OUT
from tests.fixtures.loader import run_script

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not cuda_ext.gpu_available(), reason="there is no GPU that can be used"),
]

SOURCE = r"""
template <class T> __global__ void plus(long long n, T a, const T* x, T* y) {
  for (long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
    y[i] = x[i] + a;
}

template <class T> __global__ void add(long long n, const T* x, T* y) {
  for (long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
    y[i] += x[i];
}

struct Point { float x; int n; };
__global__ void count(Point* points, int n) {
  for (int i = threadIdx.x; i < n; i += blockDim.x) points[i].n += i;
}

__global__ void slowly(long long cycles, int* done) {
  for (long long start = clock64(); clock64() < start + cycles;);
  *done = 1;
}
"""
TYPES = {
    "u1": "unsigned char",
    "i2": "short",
    "i4": "int",
    "u8": "unsigned long long",
    "f4": "float",
    "f8": "double",
}
SHAPE = {"grid": 264, "block": 256}


@pytest.fixture(scope="module")
def kernels() -> Any:
    """The kernels above, compiled for this machine's GPU."""
    instantiate = [f"{kernel}<{type_}>" for kernel in ("plus", "add") for type_ in TYPES.values()]
    return cuda_ext.compile(SOURCE, instantiate=instantiate, architectures=["native"])


@pytest.fixture
def streams(device: Device) -> Iterator[list[int]]:
    """Three streams that do not synchronize with others, and the default stream."""
    made = [device.driver.query("cuStreamCreate", OUT, 1) for _ in range(3)]
    yield [0, *made]
    for stream in made:
        device.driver.call("cuStreamDestroy", stream)


def some(size: int, dtype: str, seed: int = 0) -> np.ndarray[Any, Any]:
    return np.random.default_rng(seed).integers(0, 100, size).astype(dtype)


SIZES = sorted({0, 1, 7, *(2**power + more for power in (16, 20, 21, 22, 25) for more in (-1, 0, 1))})


@pytest.mark.parametrize("dtype", TYPES)
def test_arrays_of_every_size_are_copied_completely(kernels: Any, dtype: str) -> None:
    plus, add = kernels.plus[TYPES[dtype]], kernels.add[TYPES[dtype]]
    for size in SIZES:
        count = size // np.dtype(dtype).itemsize
        x, y = some(count, dtype), np.full(count, 255, dtype)
        plus(count, 3, x, cuda_ext.out(y), **SHAPE)
        np.testing.assert_array_equal(y, x + np.array(3, dtype))
        add(count, x, y, **SHAPE)
        np.testing.assert_array_equal(y, x + x + np.array(3, dtype))


def test_launches_come_one_after_the_other_in_many_streams(kernels: Any, streams: list[int]) -> None:
    x, y = some(3_000_000, "f4"), np.zeros(3_000_000, "f4")
    for round_ in range(1, 9):
        kernels.add["float"](x.size, x, y, **SHAPE, stream=streams[round_ % 4])
        np.testing.assert_array_equal(y, round_ * x)


def test_pending_launches_overlap_in_many_streams(kernels: Any, streams: list[int]) -> None:
    inputs = [some(2_000_000 + seed, "f4", seed) for seed in range(8)]
    outputs = [np.zeros_like(x) for x in inputs]
    pending = []
    for number, (x, y) in enumerate(zip(inputs, outputs, strict=True)):
        given = x.copy()
        launch = {**SHAPE, "stream": streams[number % 4], "wait": False}
        pending.append(kernels.plus["float"](x.size, 1, given, cuda_ext.out(y), **launch))
        given[:] = -1  # it has been read
        assert not y.any()
    for result, x, y in reversed(list(zip(pending, inputs, outputs, strict=True))):
        result.wait()
        assert result.done
        np.testing.assert_array_equal(y, x + 1)


def test_done_is_true_after_the_kernel_has_finished(kernels: Any) -> None:
    done = np.zeros(1, "i4")
    pending = kernels.slowly(500_000_000, done, grid=1, block=1, wait=False)
    assert not pending.done
    assert done[0] == 0
    pending.wait()
    assert pending.done
    assert done[0] == 1


def test_pending_launches_that_are_dropped_write_nothing(kernels: Any, device: Device) -> None:
    y = np.zeros(5_000_000, "f4")
    for _ in range(50):
        kernels.plus["float"](y.size, 1, y, y, **SHAPE, wait=False)
    device.driver.call("cuCtxSynchronize")
    assert not y.any()


def test_page_locked_arrays_are_accepted(kernels: Any, device: Device) -> None:
    x, y = some(10_000_000, "f4"), np.zeros(10_000_000, "f4")
    for array in (x, y):
        device.driver.call("cuMemHostRegister", array.ctypes.data, array.nbytes, 0)
    try:
        kernels.plus["float"](x.size, 1, x, cuda_ext.out(y), **SHAPE)
        np.testing.assert_array_equal(y, x + 1)
        given = x.copy()
        pending = kernels.plus["float"](x.size, 2, x, y, **SHAPE, wait=False)
        x[:] = 0
        pending.wait()
        np.testing.assert_array_equal(y, given + 2)
    finally:
        for array in (x, y):
            device.driver.call("cuMemHostUnregister", array.ctypes.data)


def test_structures_and_views_are_accepted(kernels: Any) -> None:
    points = np.zeros(100, [("x", "f4"), ("n", "i4")])
    kernels.count(points, 100, grid=1, block=32)
    assert points["n"].tolist() == list(range(100))
    x, y = some(10_000, "f4").reshape(100, 100), np.zeros((100, 100), "f4")
    kernels.plus["float"](x.size, 0, x.T, y, **SHAPE)
    np.testing.assert_array_equal(y, x.T)
    kernels.plus["float"](50, 0, x[0, ::-2], y[3, :50], **SHAPE)
    np.testing.assert_array_equal(y[3, :50], x[0, ::-2])
    np.testing.assert_array_equal(y[4], x.T[4])


def test_arrays_share_memory_as_they_do_on_the_host(kernels: Any) -> None:
    x = np.arange(3_000_000, dtype="f4")
    expected = np.concatenate([x[:1_000_000], x[:2_000_000] + x[1_000_000:]])
    kernels.add["float"](2_000_000, x[:2_000_000].copy(), x[1_000_000:], **SHAPE)
    np.testing.assert_array_equal(x, expected)
    kernels.add["float"](x.size, x, x, **SHAPE)
    np.testing.assert_array_equal(x, 2 * expected)


def test_a_scope_keeps_arrays(kernels: Any, streams: list[int]) -> None:
    add = kernels.add["float"]
    x, y = some(3_000_000, "f4"), np.zeros(3_000_000, "f4")
    with cuda_ext.device_scope() as scope:
        for number in range(40):
            add(x.size, x, y, **SHAPE, stream=streams[number % 4])
        assert not y.any()
        scope.fetch(y[:1000])
        np.testing.assert_array_equal(y[:1000], 40 * x[:1000])
        assert not y[1000:].any()
        with cuda_ext.device_scope():
            add(x.size, x, y, **SHAPE)
        assert not y[1000:].any()
    np.testing.assert_array_equal(y, 41 * x)


def test_threads_copy_arrays_concurrently(kernels: Any, streams: list[int]) -> None:
    failures: list[BaseException] = []

    def work(seed: int) -> None:
        try:
            for size in (10, 20_000, 1_000_000, 3_000_001):
                x, y = some(size, "f8", seed), np.zeros(size)
                launch = {**SHAPE, "stream": streams[seed % 4]}
                for _ in range(3):
                    kernels.plus["double"](size, seed, x, cuda_ext.out(y), **launch)
                    np.testing.assert_array_equal(y, x + seed)
                with cuda_ext.device_scope():
                    kernels.add["double"](size, x, y, **launch)
                    kernels.add["double"](size, x, y, **launch)
                np.testing.assert_array_equal(y, 3 * x + seed)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=contextvars.Context().run, args=(work, seed)) for seed in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []


def test_arrays_are_copied_in_the_stream_of_tensors(kernels: Any) -> None:
    torch = pytest.importorskip("torch")
    x = some(1_000_000, "f4")
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        there = torch.zeros(x.size, device="cuda")
        for _ in range(10):
            kernels.add["float"](x.size, x, there, **SHAPE)
        y = np.zeros_like(x)
        kernels.plus["float"](x.size, 0, there, cuda_ext.out(y), **SHAPE)
    np.testing.assert_array_equal(y, 10 * x)
    with pytest.raises(ArgumentError, match="found a tensor on cpu"):
        kernels.add["float"](x.size, torch.zeros(x.size), there, **SHAPE)


def test_arrays_are_refused_while_a_stream_is_captured(
    kernels: Any, device: Device, streams: list[int]
) -> None:
    call = device.driver.call
    x = np.zeros(10, "f4")
    relaxed = 2  # CU_STREAM_CAPTURE_MODE_RELAXED
    call("cuStreamBeginCapture", streams[1], relaxed)
    try:
        with pytest.raises(ArgumentError, match="stream: is being captured into a graph"):
            kernels.add["float"](x.size, x, x, **SHAPE, stream=streams[1])
    finally:
        call("cuGraphDestroy", *call("cuStreamEndCapture", streams[1], OUT))


def test_too_large_an_array_is_one_error(kernels: Any) -> None:
    huge = np.lib.stride_tricks.as_strided(np.zeros(1, "f4"), (1 << 38,), (4,), writeable=False)
    with pytest.raises(LaunchError, match="cuMemAllocFromPoolAsync failed: CUDA_ERROR_OUT_OF_MEMORY"):
        kernels.add["float"](1, huge, np.zeros(1, "f4"), **SHAPE)
    y = np.zeros(1, "f4")
    kernels.add["float"](1, np.ones(1, "f4"), y, **SHAPE)
    assert y[0] == 1


def test_memory_use_is_bounded(kernels: Any, device: Device) -> None:
    x, y = some(20_000_000, "f4"), np.zeros(20_000_000, "f4")
    kernels.plus["float"](x.size, 1, x, y, **SHAPE)
    before = reserved(device)
    for _ in range(20):
        kernels.plus["float"](x.size, 1, x, y, **SHAPE)
        kernels.plus["float"](x.size, 1, x, y, **SHAPE, wait=False)
    device.driver.call("cuCtxSynchronize")
    assert reserved(device) - before <= 4 * x.nbytes


def reserved(device: Device) -> int:
    """The size of cuda_ext's memory pool in bytes."""
    attribute = 5  # CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT
    return device.driver.query("cuMemPoolGetAttribute", staging_of(device).pool, attribute, OUT)


def test_a_fault_of_the_kernel_leaves_arrays_unchanged(tmp_path: Any) -> None:
    (line, values) = run_script(
        """
        import numpy as np
        import cuda_ext
        source = "__global__ void wild(int* x) { x[threadIdx.x] = 1; if (threadIdx.x == 3) *(int*)16 = 1; }"
        kernels = cuda_ext.compile(source, architectures=["native"])
        x = np.zeros(10, "i4")
        caught(kernels.wild, x, grid=1, block=10)
        print(x.any())
        """,
        tmp_path,
    ).output
    # The copy of a small array is the first call after the launch.
    assert line.startswith("LaunchError: wild: cuMemcpyDtoHAsync failed: CUDA_ERROR_ILLEGAL_ADDRESS (700)")
    assert values == "False"
