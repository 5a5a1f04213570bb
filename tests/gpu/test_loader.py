"""Modules on a real GPU: images that are compiled here load, launch, and compute."""

from __future__ import annotations

import ctypes
import struct
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import cuda_ext
from cuda_ext.errors import ArgumentError, NoImageError, PtxTooNewError
from cuda_ext.runtime.driver.driver import Device
from cuda_ext.runtime.driver.functions import OUT
from tests.fixtures.loader import run_script

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not cuda_ext.gpu_available(), reason="there is no GPU that can be used"),
]

SOURCE = r"""
#include <cooperative_groups.h>
#include <cuda_bf16.h>
#include <cuda_fp16.h>

template <class T> __global__ void axpy(int n, T a, const T* x, T* y) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] += a * x[i];
}

struct Point { float x, y, z; };
enum class Level : short { low, high };

namespace ns {
template <class T> __device__ void put(unsigned char*& out, T value) {
  const auto* bytes = reinterpret_cast<const unsigned char*>(&value);
  for (int i = 0; i < sizeof value; i++) *out++ = bytes[i];
}

__global__ void store(unsigned char* out, bool b, char c, short s, unsigned int u, long long l, float f,
                      double d, __half h, __nv_bfloat16 g, Point p, Level e) {
  put(out, b), put(out, c), put(out, s), put(out, u), put(out, l), put(out, f);
  put(out, d), put(out, h), put(out, g), put(out, p), put(out, e);
}
}

__global__ void ov(int* out) { *out = 1; }
__global__ void ov(float* out) { *out = 2; }

__constant__ float weights[4];
__device__ int counter;

__global__ void weighted(float* out) {
  out[threadIdx.x] = 10 * weights[threadIdx.x];
  atomicAdd(&counter, 1);
}

__global__ void reverse(int* x, int n) {
  extern __shared__ int held[];
  for (int i = threadIdx.x; i < n; i += blockDim.x) held[i] = x[i];
  __syncthreads();
  for (int i = threadIdx.x; i < n; i += blockDim.x) x[i] = held[n - 1 - i];
}

__global__ void tiled(int* x, int n) {
  __shared__ int tile[10240];
  extern __shared__ int held[];
  for (int i = threadIdx.x; i < 10240; i += blockDim.x) tile[i] = x[i % n];
  for (int i = threadIdx.x; i < n; i += blockDim.x) held[i] = tile[i];
  __syncthreads();
  for (int i = threadIdx.x; i < n; i += blockDim.x) x[i] = tile[i] + held[n - 1 - i];
}

// Every block adds itself to x[0]; after the wait each sees the sum.
__global__ void meet(int* x) {
  if (threadIdx.x == 0) atomicAdd(x, 1);
  cooperative_groups::this_grid().sync();
  if (threadIdx.x == 0) x[1 + blockIdx.x] = *static_cast<volatile int*>(x);
}

__global__ void __launch_bounds__(32) narrow(int* x) { x[threadIdx.x] = 1; }

__global__ void nothing() {}
"""


@pytest.fixture(scope="module")
def kernels() -> Any:
    """The kernels above, compiled for this machine's GPU."""
    return cuda_ext.compile(SOURCE, instantiate=["axpy<float>", "axpy<double>"], architectures=["native"])


class Memory:
    """A copy of a numpy array on the GPU whose context `device` has made current."""

    def __init__(self, device: Device, array: np.ndarray[Any, Any]) -> None:
        self._driver = device.driver
        self._array = array
        self.address = self._driver.query("cuMemAlloc", OUT, array.nbytes)
        self._driver.call("cuMemcpyHtoD", self.address, array.ctypes.data, array.nbytes)

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        interface = {"shape": self._array.shape, "typestr": self._array.dtype.str}
        return {"version": 3, "data": (self.address, False), **interface}

    def numpy(self) -> np.ndarray[Any, Any]:
        array = np.empty_like(self._array)
        self._driver.call("cuCtxSynchronize")
        self._driver.call("cuMemcpyDtoH", array.ctypes.data, self.address, array.nbytes)
        return array


def test_arrays_and_addresses_are_accepted(kernels: Any, device: Device) -> None:
    for dtype, name in ((np.float32, "float"), (np.float64, "double")):
        x, y = (Memory(device, np.arange(1000, dtype=dtype)) for _ in range(2))
        kernels.axpy[name](1000, 2.5, x, y, grid=4, block=256)
        kernels.axpy[name](n=1000, a=0.5, x=x.address, y=y.address, grid=4, block=256, stream=0)
        np.testing.assert_array_equal(y.numpy(), 4 * np.arange(1000))
    with pytest.raises(ArgumentError, match="expected float32"):
        kernels.axpy["float"](1000, 2.5, x, y, grid=4, block=256)


def test_torch_tensors_and_streams_are_accepted(kernels: Any) -> None:
    torch = pytest.importorskip("torch")
    x, y = (torch.arange(1000, dtype=torch.float32, device="cuda") for _ in range(2))
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    kernels.axpy["float"](1000, 2.5, x, y, grid=4, block=256, stream=stream)
    stream.synchronize()
    assert torch.equal(y, 3.5 * x)
    with pytest.raises(ArgumentError, match="found float64"):
        kernels.axpy["float"](1000, 2.5, x.double(), y, grid=4, block=256)
    with pytest.raises(ArgumentError, match="found a tensor on cpu"):
        kernels.axpy["float"](1000, 2.5, x.cpu(), y, grid=4, block=256)
    kernels.weights.copy_from(torch.arange(4, dtype=torch.float32, device="cuda"))
    assert kernels.weights.tobytes() == np.arange(4, dtype="f4").tobytes()


def test_cupy_arrays_and_streams_are_accepted(kernels: Any) -> None:
    cupy = pytest.importorskip("cupy")
    stream = cupy.cuda.Stream()
    with stream:
        x, y = (cupy.arange(1000, dtype="f4") for _ in range(2))
        kernels.axpy["float"](1000, 2.5, x, y, grid=4, block=256, stream=stream)
        assert (y == 3.5 * cupy.arange(1000)).all()


class Point(ctypes.Structure):
    _fields_ = (("x", ctypes.c_float), ("y", ctypes.c_float), ("z", ctypes.c_float))


def test_every_kind_of_argument_is_passed(kernels: Any, device: Device) -> None:
    out = Memory(device, np.zeros(64, "u1"))
    values = (True, -1, -2, 2**32 - 1, -(2**63), 2.5, 0.1, 1.5, -3.0, Point(1, 2, 3), 1)
    kernels.ns.store(out, *values, grid=1, block=1)
    bfloat16 = b"\x40\xc0"
    expected = struct.pack("<?bhIqfde", *values[:8]) + bfloat16 + struct.pack("<3fh", 1, 2, 3, 1)
    assert out.numpy().tobytes()[: len(expected)] == expected


def test_overloads_are_distinguished(kernels: Any, device: Device) -> None:
    integer, real = Memory(device, np.zeros(1, "i4")), Memory(device, np.zeros(1, "f4"))
    kernels["ov(int*)"](integer, grid=1, block=1)
    kernels.ov["(float*)"](real, grid=1, block=1)
    assert (integer.numpy()[0], real.numpy()[0]) == (1, 2.0)


def test_symbols_are_those_that_kernels_use(kernels: Any, device: Device) -> None:
    kernels.weights.copy_from(np.array([1, 2, 3, 4], "f4"))
    kernels.counter.copy_from(bytes(4))
    out = Memory(device, np.zeros(4, "f4"))
    kernels.weighted(out, grid=1, block=4)
    assert out.numpy().tolist() == [10, 20, 30, 40]
    assert struct.unpack("<i", kernels.counter.tobytes()) == (4,)
    kernels.weights.copy_from(Memory(device, np.ones(4, "f4")))
    assert np.frombuffer(kernels.weights.tobytes(), "f4").tolist() == [1, 1, 1, 1]


def test_a_block_may_have_all_the_shared_memory_that_there_is(kernels: Any, device: Device) -> None:
    for size in (1 << 10, 48 << 10, device.shared_memory_limit):
        x = Memory(device, np.arange(size // 4, dtype="i4"))
        kernels.reverse(x, size // 4, grid=1, block=256, shared=size)
        np.testing.assert_array_equal(x.numpy(), np.arange(size // 4)[::-1])
    with pytest.raises(ArgumentError, match=f"shared: expected at most {device.shared_memory_limit} bytes"):
        kernels.reverse(0, 0, grid=1, block=1, shared=device.shared_memory_limit + 1)


def test_static_shared_memory_counts(kernels: Any, device: Device) -> None:
    n = 4000  # with the kernel's own 40 KiB this is more than 48 KiB
    x = Memory(device, np.arange(n, dtype="i4"))
    kernels.tiled(x, n, grid=1, block=256, shared=4 * n)
    np.testing.assert_array_equal(x.numpy(), np.full(n, n - 1))


def test_cooperative_blocks_wait_for_each_other(kernels: Any, device: Device) -> None:
    x = Memory(device, np.zeros(33, "i4"))
    kernels.meet(x, grid=32, block=64, cooperative=True)
    assert x.numpy().tolist() == [32] * 33
    with pytest.raises(ArgumentError, match="since all cooperative blocks run at once, found 1048576"):
        kernels.meet(x, grid=1 << 20, block=64, cooperative=True)


def test_a_block_may_be_as_large_as_the_kernel_was_compiled_for(kernels: Any, device: Device) -> None:
    x = Memory(device, np.zeros(1024, "i4"))
    with pytest.raises(ArgumentError, match="expected at most 32 threads, as the kernel was compiled"):
        kernels.narrow(x, grid=1, block=1024)
    kernels.narrow(x, grid=1, block=32)
    assert x.numpy().sum() == 32


def test_without_a_context_the_first_gpu_is_used(kernels: Any, device: Device) -> None:
    failures: list[BaseException] = []

    def launch() -> None:  # in a thread, where no context is current
        try:
            assert device.driver.query("cuCtxGetCurrent", OUT) == 0
            kernels.nothing(grid=1, block=1)
            assert device.driver.query("cuCtxGetCurrent", OUT) == 0
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=launch) for _ in range(32)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []


WHICH = """
__global__ void which(int* out) {
#if defined(__CUDA_ARCH_SPECIFIC__) || defined(__CUDA_ARCH_FEAT_SM90_ALL)
  *out = 1;
#elif defined(__CUDA_ARCH_FAMILY_SPECIFIC__)
  *out = 2;
#else
  *out = 3;
#endif
}
"""


def test_the_driver_loads_the_selected_image(device: Device) -> None:
    if device.capability < 90:
        pytest.skip("this GPU has no architecture of its own")
    out = Memory(device, np.zeros(1, "i4"))
    plain = f"sm_{device.capability}"
    for architectures, expected in (([plain], 3), ([f"{plain}a"], 1), ([plain, f"{plain}a"], 1)):
        cuda_ext.compile(WHICH, architectures=architectures).which(out, grid=1, block=1)
        assert out.numpy()[0] == expected, architectures


def test_a_gpu_without_an_image_is_named(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_EXT_JIT", "0")
    other = "sm_80" if device.capability // 10 != 8 else "sm_90"
    module: Any = cuda_ext.compile(SOURCE, architectures=[other])
    with pytest.raises(NoImageError, match=f"device is {device}; built for {other}; PTX: none"):
        module.nothing(grid=1, block=1)


def test_ptx_runs_or_is_too_new(device: Device) -> None:
    module: Any = cuda_ext.compile(WHICH, architectures=["compute_80"])
    made_by = tuple(map(int, cuda_ext.describe(module).version.split(".")))
    out = Memory(device, np.zeros(1, "i4"))
    if made_by > device.driver.version:
        with pytest.raises(PtxTooNewError, match=r"only PTX \(compute_80\) fits this GPU"):
            module.which(out, grid=1, block=1)
    else:
        module.which(out, grid=1, block=1)
        assert out.numpy()[0] == 3


@pytest.mark.parametrize("compress", ["none", "speed", "balance", "size"])
def test_every_compression_loads(device: Device, compress: Any) -> None:
    out = Memory(device, np.zeros(1, "i4"))
    module: Any = cuda_ext.compile(WHICH, architectures=["native"], compress=compress)
    module.which(out, grid=1, block=1)
    assert out.numpy()[0] == 3


def test_a_fault_of_a_kernel_is_attributed_to_earlier_work(tmp_path: Path) -> None:
    (line,) = run_script(
        """
        import cuda_ext
        from cuda_ext.runtime.driver.driver import open_driver
        kernels = cuda_ext.compile("__global__ void wild(int* x) { *x = 1; }", architectures=["native"])
        device = open_driver().device(0)
        with device.current():
            kernels.wild(16, grid=1, block=1)
            try:
                device.driver.call("cuCtxSynchronize")
            except cuda_ext.errors.DriverCallError as error:
                assert error.code == 700
            try:
                kernels.wild(16, grid=1, block=1)
            except cuda_ext.errors.LaunchError as error:
                print(error)
        """,
        tmp_path,
    ).output
    assert "CUDA_ERROR_ILLEGAL_ADDRESS (700)" in line
    assert "no work on the GPU succeeds" in line
    assert line.endswith("start another; launched with grid (1, 1, 1), block (1, 1, 1)")


def test_a_forked_child_gets_an_error(tmp_path: Path) -> None:
    run = run_script(
        """
        import os
        import cuda_ext
        kernels = cuda_ext.compile("__global__ void nothing() {}", architectures=["native"])
        kernels.nothing(grid=1, block=1)
        if os.fork() == 0:
            try:
                kernels.nothing(grid=1, block=1)
            except cuda_ext.errors.DriverError as error:
                print(str(error)[:46], flush=True)
            os._exit(0)
        os.wait()
        """,
        tmp_path,
    )
    assert run.output == ["CUDA was used before this process was forked, "]
