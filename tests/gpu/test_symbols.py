"""Variables in the memory of real GPUs: kernels see the copies of every library's arrays."""

from __future__ import annotations

import ctypes
import importlib.util
import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import cuda_ext
from cuda_ext.errors import ArgumentError
from cuda_ext.runtime.driver import cuda_h
from cuda_ext.runtime.driver.driver import Device, open_driver
from cuda_ext.runtime.driver.functions import OUT

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not cuda_ext.gpu_available(), reason="there is no GPU that can be used"),
]

SOURCE = r"""
#include <cuda_bf16.h>
#include <cuda_fp16.h>

struct Particle { float x; int i; };

__constant__ float matrix[3][3];
__device__ float table[9];
__device__ int counter;
__constant__ __half half_;
__device__ __nv_bfloat16 brain;
__constant__ float4 quad;
__device__ Particle particles[2];
__device__ float* output;

__global__ void copy_out(float* out) { out[threadIdx.x] = matrix[threadIdx.x / 3][threadIdx.x % 3]; }
__global__ void copy_table(float* out) { out[threadIdx.x] = table[threadIdx.x]; }
__global__ void fill_table(float value) { table[threadIdx.x] = value; }
__global__ void sum(float* out) {
  *out = __half2float(half_) + __bfloat162float(brain) + quad.w + particles[1].x + particles[1].i;
}
__global__ void through_pointer() { *output = 7; }

// Runs long enough that an access without synchronization comes too early.
__global__ void count_late(long long cycles) {
  for (long long start = clock64(); clock64() - start < cycles;) {}
  atomicAdd(&counter, 1);
}
"""
NINE = np.arange(9, dtype="f4").reshape(3, 3)
LATE = 200_000_000


@pytest.fixture(scope="module")
def kernels() -> Any:
    return cuda_ext.compile(SOURCE, architectures=["native"])


@pytest.fixture
def device() -> Iterator[Device]:
    first = open_driver().current_device()
    with first.current():
        yield first


def of_torch(array: np.ndarray[Any, Any]) -> Any:
    return importlib.import_module("torch").as_tensor(array).cuda()


def of_cupy(array: np.ndarray[Any, Any]) -> Any:
    return importlib.import_module("cupy").asarray(array)


def of_numba(array: np.ndarray[Any, Any]) -> Any:
    return importlib.import_module("numba.cuda").to_device(array)


def of_jax(array: np.ndarray[Any, Any]) -> Any:
    jax = importlib.import_module("jax")
    return jax.device_put(array, jax.devices("gpu")[0])


def of_cuda_core(array: np.ndarray[Any, Any]) -> Any:
    core = importlib.import_module("cuda.core")
    place = core.Device()
    place.set_current()
    buffer = place.allocate(array.nbytes, stream=place.create_stream())
    place.sync()
    driver = open_driver()
    driver.call("cuMemcpyHtoD", int(buffer.handle), array.ctypes.data, array.nbytes)
    return buffer


LIBRARIES = {
    "torch": of_torch,
    "cupy": of_cupy,
    "numba.cuda": of_numba,
    "jax": of_jax,
    "cuda.core": of_cuda_core,
}


@pytest.fixture(params=LIBRARIES)
def on_gpu(request: pytest.FixtureRequest, device: Device) -> Callable[[np.ndarray[Any, Any]], Any]:
    """Copies a numpy array to the GPU with each library."""
    pytest.importorskip(request.param)
    return LIBRARIES[request.param]


def test_kernels_see_copied_values(kernels: Any, device: Device) -> None:
    out = of_torch_or_cupy(np.zeros(9, "f4"))
    kernels.matrix.copy_from(NINE)
    kernels.copy_out(out, grid=1, block=9)
    assert host(out).tolist() == NINE.ravel().tolist()
    kernels.fill_table(2.5, grid=1, block=9)
    assert kernels.table.numpy().tolist() == [2.5] * 9


def of_torch_or_cupy(array: np.ndarray[Any, Any]) -> Any:
    for name, made in (("torch", of_torch), ("cupy", of_cupy)):
        if importlib.util.find_spec(name):
            return made(array)
    pytest.skip("neither torch nor CuPy is here")


def host(array: Any) -> np.ndarray[Any, Any]:
    found = array.cpu().numpy() if hasattr(array, "cpu") else array.get()
    assert isinstance(found, np.ndarray)
    return found


def test_arrays_of_every_library_are_copied(kernels: Any, on_gpu: Any) -> None:
    kernels.matrix.copy_from(bytes(36))
    kernels.matrix.copy_from(on_gpu(NINE))
    np.testing.assert_array_equal(kernels.matrix.numpy(), NINE)
    there = on_gpu(np.zeros((3, 3), "f4"))
    if not hasattr(there, "block_until_ready"):  # JAX's do not change
        kernels.matrix.copy_to(there)
        kernels.table.copy_from(bytes(36))
        kernels.table.copy_from(there)
        np.testing.assert_array_equal(kernels.table.numpy(), NINE.ravel())


def test_unfit_values_are_refused(kernels: Any, on_gpu: Any) -> None:
    wide = on_gpu(np.zeros((3, 6), "f4"))
    with pytest.raises(
        ArgumentError, match=r"^symbol 'matrix' \(float\[3\]\[3\]\): expected 36 bytes, found 72"
    ):
        kernels.matrix.copy_from(wide)
    if not hasattr(wide, "dtype"):
        return
    with pytest.raises(ArgumentError, match=r"expected float32 \(float\[3\]\[3\]\), found int32"):
        kernels.matrix.copy_from(on_gpu(np.zeros((3, 3), "i4")))
    if hasattr(wide, "block_until_ready"):  # a slice of JAX's is a copy
        return
    views = [wide[:, ::2]]
    if not type(wide).__module__.startswith("numba"):  # which copies to transpose
        views.append(on_gpu(NINE).T)
    for view in views:
        with pytest.raises(ArgumentError, match="expected a contiguous array, found one with gaps"):
            kernels.matrix.copy_from(view)


class Particle(ctypes.Structure):
    _fields_ = (("x", ctypes.c_float), ("i", ctypes.c_int))


def test_scalars_vectors_and_structures(kernels: Any, device: Device) -> None:
    kernels.half_.copy_from(0.5)
    kernels.brain.copy_from(2)
    kernels.quad.copy_from(np.array([0, 0, 0, 10], "f4"))
    kernels.particles.copy_from((Particle * 2)(Particle(0, 0), Particle(100, 1000)))
    out = of_torch_or_cupy(np.zeros(1, "f4"))
    kernels.sum(out, grid=1, block=1)
    assert host(out).item() == 1112.5
    assert kernels.half_.numpy() == 0.5
    assert kernels.quad.numpy().tolist() == [0, 0, 0, 10]
    assert kernels.particles.numpy("f4,i4")[1].tolist() == (100, 1000)
    address = out.data_ptr() if hasattr(out, "data_ptr") else out.data.ptr
    kernels.output.copy_from(np.array(address, "u8"))
    kernels.through_pointer(grid=1, block=1)
    assert host(out).item() == 7


def test_the_host_sees_the_work_of_every_stream(kernels: Any, device: Device) -> None:
    # A stream that does not wait for the default one, as PyTorch's are.
    stream = device.driver.query("cuStreamCreate", OUT, cuda_h.CU_STREAM_NON_BLOCKING)
    kernels.counter.copy_from(0)
    kernels.count_late(LATE, grid=1, block=1, stream=stream)
    assert kernels.counter.numpy() == 1
    kernels.count_late(LATE, grid=1, block=1, stream=stream)
    kernels.counter.copy_from(10)  # not before the kernel has counted
    assert kernels.counter.numpy() == 10
    device.driver.call("cuStreamDestroy", stream)


def test_copies_follow_the_work_of_their_library(kernels: Any) -> None:
    torch = pytest.importorskip("torch")
    with torch.cuda.stream(torch.cuda.Stream()):
        source = torch.zeros(9, device="cuda")
        torch.cuda._sleep(LATE)
        source += 3
        kernels.table.copy_from(source)
        source.zero_()
    assert kernels.table.numpy().tolist() == [3] * 9


def test_a_copy_in_a_stream_is_work_of_that_stream(kernels: Any) -> None:
    torch = pytest.importorskip("torch")
    stream = torch.cuda.Stream()
    kernels.table.copy_from(np.zeros(9, "f4"))
    ones, found = torch.ones(9, device="cuda"), torch.zeros(9, device="cuda")
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        torch.cuda._sleep(5 * LATE)
    kernels.table.copy_from(ones, stream=stream)
    assert not stream.query()
    kernels.table.copy_to(found, stream=stream)
    stream.synchronize()
    assert found.tolist() == [1] * 9


def test_copies_can_be_recorded_in_a_graph(kernels: Any) -> None:
    torch = pytest.importorskip("torch")
    source, found = torch.zeros(9, device="cuda"), torch.zeros(9, device="cuda")
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        stream = torch.cuda.current_stream()
        kernels.table.copy_from(source, stream=stream)
        kernels.table.copy_to(found, stream=stream)
        with pytest.raises(ArgumentError, match="a graph reads its source when it runs"):
            kernels.counter.copy_from(1, stream=stream)
    source += 5
    graph.replay()
    torch.cuda.synchronize()
    assert found.tolist() == [5] * 9


def test_threads_need_no_context_of_their_own(kernels: Any) -> None:
    found: list[Any] = []

    def copy() -> None:
        kernels.table.copy_from(np.full(9, 4, "f4"))
        found.append(kernels.table.numpy().tolist())

    thread = threading.Thread(target=copy)
    thread.start()
    thread.join()
    assert found == [[4] * 9]


def test_every_gpu_has_its_own(kernels: Any) -> None:
    driver = open_driver()
    if driver.count < 2:
        pytest.skip("there is one GPU")
    for number in range(driver.count):
        kernels.counter.copy_from(number, device=number)
    assert [int(kernels.counter.numpy(device=number)) for number in range(driver.count)] == [
        *range(driver.count)
    ]
    torch = pytest.importorskip("torch")
    there = torch.zeros((), dtype=torch.int32, device="cuda:1")
    kernels.counter.copy_to(there)
    assert there.item() == 1
    with pytest.raises(ArgumentError, match="expected an array on GPU 0, found one on GPU 1"):
        kernels.counter.copy_from(there, device=0)
