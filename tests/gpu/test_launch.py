"""Launches with PyTorch, CuPy, Numba, JAX and cuda.core on a real GPU, or on two."""

from __future__ import annotations

import copy
import ctypes
import pickle
import threading
from typing import Any

import numpy as np
import pytest

import cuda_ext
from cuda_ext.errors import ArgumentError
from cuda_ext.runtime.driver.driver import open_driver
from tests.fixtures.gpus import two_gpus

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not cuda_ext.gpu_available(), reason="there is no GPU that can be used"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning"),
]

SOURCE = r"""
template <class T> __global__ void axpy(int n, T a, const T* x, T* y) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] += a * x[i];
}

template <class T, int BLOCK> __global__ void sized(T* x) { x[0] = BLOCK; }

__global__ void shape(int* out) {
  if (threadIdx.x == 0 && blockIdx.x == 0) {
    out[0] = gridDim.x, out[1] = gridDim.y, out[2] = gridDim.z;
    out[3] = blockDim.x, out[4] = blockDim.y, out[5] = blockDim.z;
    unsigned clusters = 1;
#if __CUDA_ARCH__ >= 900
    asm("mov.u32 %0, %%cluster_nctaid.x;" : "=r"(clusters));
#endif
    out[6] = clusters;
  }
}

// So slow that a read without synchronization sees the previous values.
__global__ void slowly(long long cycles, int value, int* out) {
  const long long began = clock64();
  while (clock64() - began < cycles) {}
  *out = value;
}

__global__ void increment(int* counter) { atomicAdd(counter, 1); }

struct __align__(64) Wide { int numbers[32]; };
__global__ void wide(char c, Wide w, int* out) { *out = c + w.numbers[0] + w.numbers[31]; }
"""


@pytest.fixture(scope="module")
def kernels() -> Any:
    return cuda_ext.compile(
        SOURCE,
        instantiate=["axpy<float>", "axpy<double>", "sized<float, 128>", "sized<float, 256>"],
        architectures=["native"],
    )


@pytest.fixture(scope="module")
def torch() -> Any:
    return pytest.importorskip("torch")


def test_the_instantiation_follows_from_the_dtypes(kernels: Any, torch: Any) -> None:
    for dtype in (torch.float32, torch.float64, torch.float32):
        x, y = (torch.arange(1000, dtype=dtype, device="cuda") for _ in range(2))
        kernels.axpy(1000, 2.0, x, y, threads=1000)
        assert torch.equal(y, 3 * x)
    with pytest.raises(ArgumentError, match=r"^argument 'x': expected one of "):
        kernels.axpy(1000, 2.0, x.to(torch.int32), y, threads=1000)
    with pytest.raises(ArgumentError, match="fits several kernels"):
        kernels.sized(x, grid=1, block=1)


def test_the_grid_may_have_any_shape(kernels: Any, torch: Any) -> None:
    out = torch.zeros(7, dtype=torch.int32, device="cuda")
    for launch, expected in {
        ((2, 3, 4), (8, 2, 2)): [2, 3, 4, 8, 2, 2, 1],
        (5, 64): [5, 1, 1, 64, 1, 1, 1],
        ((5,), (64, 2)): [5, 1, 1, 64, 2, 1, 1],
    }.items():
        for _ in range(2):
            kernels.shape(out, grid=launch[0], block=launch[1])
            assert out.tolist() == expected
    kernels.shape(out, threads=1_000_001)
    grid, *_, block = out.tolist()[:4]
    assert (grid - 1) * block < 1_000_001 <= grid * block
    kernels.shape(out, threads=1000, block=32)
    assert out.tolist()[:4] == [32, 1, 1, 32]


def test_clusters_cooperative_and_dependent_launches(kernels: Any, torch: Any) -> None:
    out = torch.zeros(7, dtype=torch.int32, device="cuda")
    device = open_driver().device(0)
    for _ in range(2):
        kernels.shape(out, grid=8, block=32, cooperative=True)
        assert out.tolist()[0] == 8
    if device.supports_clusters:
        for size in (2, 8, 16):
            kernels.shape(out, grid=32, block=32, cluster=size)
            assert out.tolist()[6] == size
        with pytest.raises(ArgumentError, match="cluster: expected at most 16 blocks"):
            kernels.shape(out, grid=32, block=32, cluster=32)
        bound = kernels.shape.bind(grid=8, block=32, cluster=4)
        for _ in range(3):
            out.zero_()
            bound(out)
            assert out.tolist()[6] == 4
        for _ in range(3):
            kernels.shape(out, grid=8, block=32, dependent=True)
        assert out.tolist()[0] == 8


def test_wide_parameters_are_passed(kernels: Any, torch: Any) -> None:
    out = torch.zeros(1, dtype=torch.int32, device="cuda")
    for number in range(3):
        kernels.wide(number, np.arange(32, dtype="i4").tobytes(), out, grid=1, block=1)
        assert out.item() == number + 31


def test_work_is_done_in_the_current_stream(kernels: Any, torch: Any) -> None:
    out = torch.zeros(1, dtype=torch.int32, device="cuda")
    stream = torch.cuda.Stream()
    bound = kernels.increment.bind(grid=1, block=1)
    for _ in range(3):
        with torch.cuda.stream(stream):
            kernels.slowly(30_000_000, 5, out, grid=1, block=1)
            kernels.increment(out, grid=1, block=1)
            bound(out)
            copied = out.clone()
        stream.synchronize()
        assert copied.item() == 7


def test_launches_can_be_captured(kernels: Any, torch: Any) -> None:
    # Nothing of this module was loaded before: the first launch happens while a stream captures.
    fresh: Any = cuda_ext.compile(SOURCE, instantiate=["axpy<float>"], architectures=["native"])
    x, y = (torch.ones(1000, device="cuda") for _ in range(2))
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        fresh.axpy(1000, 2.0, x, y, threads=1000)
        fresh.axpy(1000, 1.0, x, y, grid=4, block=256)
        kernels.axpy["float"].bind(grid=4, block=256)(1000, 1.0, x, y)
    for repeats in range(1, 4):
        graph.replay()
        torch.cuda.synchronize()
        assert torch.equal(y, (1 + 4 * repeats) * x)


def test_launches_can_be_captured_by_cuda_core(kernels: Any, torch: Any) -> None:
    core = pytest.importorskip("cuda.core")
    device = core.Device(0)
    device.set_current()
    stream = device.create_stream()
    x, y = (torch.ones(1000, device="cuda") for _ in range(2))
    torch.cuda.synchronize()
    builder = stream.create_graph_builder().begin_building()
    kernels.axpy["float"](1000, 2.0, x, y, grid=4, block=256, stream=builder)
    graph = builder.end_building().complete()
    for _ in range(2):
        graph.launch(stream)
    stream.sync()
    assert torch.equal(y, 5 * x)


def test_negated_and_conjugated_views_are_refused(kernels: Any, torch: Any) -> None:
    x, y = (torch.ones(64, device="cuda") for _ in range(2))
    for array in (x, x[::2], x[1:], x.reshape(8, 8).T, x[:1]):
        kernels.axpy["float"](1, 1.0, array, y, grid=1, block=1)
        kernels.axpy["float"](1, 1.0, array, y, grid=1, block=1)
    imaginary = torch.ones(8, 8, dtype=torch.complex64, device="cuda").conj().imag
    views = [imaginary, imaginary[0], imaginary[:, 1], imaginary.T, imaginary[::2, ::3], imaginary[0, :1]]
    views += [imaginary.unsqueeze(-1), imaginary.expand(2, 8, 8), imaginary.as_strided((2,), (1,))]
    views += [imaginary.as_strided((2,), (1,), 0), torch._neg_view(x), torch._neg_view(x)[1::3]]
    for view in views:
        assert view.is_neg()
        with pytest.raises(ArgumentError, match=r"argument 'x': .*negated view"):
            kernels.axpy["float"](1, 1.0, view, y, grid=1, block=1)


def test_arrays_of_every_library(kernels: Any, torch: Any) -> None:
    n = 1000
    axpy = kernels.axpy["float"]
    x = torch.arange(n, dtype=torch.float32, device="cuda")
    expected = 2.0 * x.cpu().numpy()

    cupy = pytest.importorskip("cupy")
    y = cupy.zeros(n, "f4")
    for _ in range(2):
        y[:] = 0
        axpy(n, 2.0, cupy.asarray(x), y, threads=n)
        np.testing.assert_array_equal(y.get(), expected)
    with pytest.raises(ArgumentError, match="expected float32"):
        axpy(n, 2.0, cupy.zeros(n), y, threads=n)

    numba = pytest.importorskip("numba")
    if numba is not None:
        try:
            from numba import cuda as numba_cuda

            z = numba_cuda.to_device(np.zeros(n, "f4"))
        except AttributeError:  # a Numba that is older than this numpy
            z = None
        if z is not None:
            axpy(n, 2.0, x, z, threads=n)
            np.testing.assert_array_equal(z.copy_to_host(), expected)

    jax = pytest.importorskip("jax")
    lent = jax.numpy.arange(n, dtype="float32")
    y[:] = 0
    axpy(n, 2.0, lent, y, threads=n)
    np.testing.assert_array_equal(y.get(), expected)
    with pytest.raises(ArgumentError, match="read-only"):
        axpy(n, 2.0, x, lent, threads=n)

    core = pytest.importorskip("cuda.core")
    device = core.Device(0)
    device.set_current()
    stream = device.create_stream()
    buffer = device.allocate(4 * n, stream=stream)
    driver = open_driver()
    driver.call("cuMemsetD8", int(buffer.handle), 0, 4 * n)
    torch.cuda.synchronize()
    axpy(n, 2.0, x, buffer, threads=n, stream=stream)
    stream.sync()
    assert np.array_equal(torch.from_dlpack(buffer).view(torch.float32).cpu().numpy(), expected)
    buffer.close()
    with pytest.raises(ArgumentError, match="freed"):
        axpy(n, 2.0, x, buffer, threads=n)


class Lent:
    """An array that supports DLPack only."""

    def __init__(self, tensor: Any) -> None:
        self._tensor = tensor

    def __dlpack__(self, **options: Any) -> Any:
        return self._tensor.__dlpack__(**options)

    def __dlpack_device__(self) -> Any:
        return self._tensor.__dlpack_device__()


def test_arrays_with_dlpack_only_are_accepted(kernels: Any, torch: Any) -> None:
    x, y = (torch.ones(1000, device="cuda") for _ in range(2))
    for _ in range(2):
        y.fill_(1)
        kernels.axpy["float"](1000, 2.0, Lent(x), Lent(y[0:]), threads=1000)
        assert torch.equal(y, 3 * x)
    with pytest.raises(ArgumentError, match="expected float32"):
        kernels.axpy["float"](1000, 2.0, Lent(x.double()), y, threads=1000)


def test_tensors_without_plain_memory_are_refused(kernels: Any, torch: Any) -> None:
    axpy = kernels.axpy["float"]
    x, y = (torch.ones(1000, device="cuda") for _ in range(2))
    axpy(1000, 2.0, x, y, threads=1000)
    freed = torch.ones(1000, device="cuda")
    freed.untyped_storage().resize_(0)
    for wrong, message in {
        freed: "has been freed",
        torch.ones(1000): "found a tensor on cpu",
        x.double(): "expected float32",
        torch.ones(1000, device="meta"): "found a tensor on meta",
        x.to_sparse(): "memory of its own",
    }.items():
        for position in (2, 3):
            arguments = [1000, 2.0, x, y]
            arguments[position] = wrong
            with pytest.raises(ArgumentError, match=message) as raised:
                axpy(*arguments, threads=1000)
            assert f"argument '{'xy'[position - 2]}'" in str(raised.value)
    axpy(1000, 2.0, torch.nn.Parameter(x), y, threads=1000)


def test_threads_do_not_disturb_each_other(kernels: Any, torch: Any) -> None:
    count, launches = 32, 10_000
    counters = torch.zeros(count, count + 1, dtype=torch.int32, device="cuda")
    failures: list[BaseException] = []
    start = threading.Barrier(count)
    bound = kernels.increment.bind(grid=1, block=1)

    def work(number: int) -> None:
        try:
            mine = counters[number][number:]
            start.wait()
            for turn in range(launches):
                (bound if turn % 2 else kernels.increment)(
                    mine, **({} if turn % 2 else {"grid": 1, "block": 1})
                )
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    torch.cuda.synchronize()
    assert failures == []
    expected = torch.zeros_like(counters)
    for number in range(count):
        expected[number, number] = launches
    assert torch.equal(counters, expected)


def test_kernels_are_one_object(kernels: Any) -> None:
    assert kernels.axpy["float"] is kernels["axpy<float>"] is kernels.axpy["float"]
    assert copy.copy(kernels.increment) is kernels.increment
    with pytest.raises(TypeError, match="it is not an importable module"):
        pickle.dumps(kernels.increment)


def test_attributes_and_occupancy(kernels: Any) -> None:
    attributes = kernels.axpy["float"].attributes()
    assert attributes.registers > 0
    assert attributes.most_threads >= 256
    assert attributes.binary == open_driver().device(0).capability
    assert 0 < kernels.axpy["float"].occupancy(256) <= 1
    assert 0 < kernels.axpy["float"].occupancy(256, shared=60 << 10) <= 1  # more than without opting in


def test_tensor_maps_of_cuda_core(torch: Any) -> None:
    core = pytest.importorskip("cuda.core")
    if open_driver().device(0).capability < 90:
        pytest.skip("this GPU has no tensor memory accelerator")
    source = """
    struct __align__(64) CUtensorMap_st { unsigned long long opaque[16]; };
    using CUtensorMap = CUtensorMap_st;
    __global__ void peek(const __grid_constant__ CUtensorMap map, unsigned char* out) {
      for (int i = 0; i < 128; i++) out[i] = reinterpret_cast<const unsigned char*>(&map)[i];
    }
    """
    kernels: Any = cuda_ext.compile(source, architectures=["native"])
    tensor = torch.zeros(64, 64, device="cuda")
    view = core.utils.StridedMemoryView.from_any_interface(tensor, stream_ptr=-1)
    try:
        descriptor = view.as_tensor_map(box_dim=(16, 16))
    except (AttributeError, TypeError) as error:
        pytest.skip(f"this cuda.core makes no tensor maps so: {error}")
    out = torch.zeros(128, dtype=torch.uint8, device="cuda")
    kernels.peek(descriptor, out, grid=1, block=1)
    content = bytes(out.cpu().numpy())
    assert tensor.data_ptr() in np.frombuffer(content, "u8")


@two_gpus
def test_launches_run_on_the_gpu_of_their_arrays(kernels: Any, torch: Any) -> None:
    axpy = kernels.axpy["float"]
    bound = axpy.bind(grid=4, block=256)
    for turn in range(6):
        for number in (turn % 2, 1 - turn % 2):
            for current in (0, 1):
                torch.cuda.set_device(current)
                x, y = (torch.ones(1000, device=f"cuda:{number}") for _ in range(2))
                axpy(1000, 2.0, x, y, grid=4, block=256)
                bound(1000, 2.0, x, y)
                axpy(1000, 1.0, x, y, threads=1000)
                with torch.cuda.stream(torch.cuda.Stream(number)) as _:
                    torch.cuda.current_stream().wait_stream(torch.cuda.default_stream(number))
                    axpy(1000, 1.0, x, y, grid=4, block=256)
                torch.cuda.synchronize(number)
                assert torch.equal(y, 7 * x), (turn, number, current)
                assert torch.cuda.current_device() == current
    torch.cuda.set_device(0)


@two_gpus
def test_arrays_of_two_gpus_are_refused(kernels: Any, torch: Any) -> None:
    x, y = torch.ones(8, device="cuda:0"), torch.ones(8, device="cuda:1")
    for _ in range(2):
        with pytest.raises(ArgumentError, match="argument 'y': is on GPU 1, and 'x' is on GPU 0"):
            kernels.axpy["float"](8, 2.0, x, y, grid=1, block=8)
    cupy = pytest.importorskip("cupy")
    with cupy.cuda.Device(0):
        there = cupy.ones(8, "f4")
    with pytest.raises(ArgumentError, match="argument 'y': is on GPU 1, and 'x' is on GPU 0"):
        kernels.axpy["float"](8, 2.0, there, y, grid=1, block=8)
    with pytest.raises(ArgumentError, match="argument 'y': is on GPU 1, and 'x' is on GPU 0"):
        kernels.axpy["float"](8, 2.0, Lent(x), Lent(y), grid=1, block=8)


@two_gpus
def test_without_arrays_the_stream_or_the_context_decides(kernels: Any, torch: Any) -> None:
    for number in (1, 0, 1):
        counter = torch.zeros(1, dtype=torch.int32, device=f"cuda:{number}")
        torch.cuda.synchronize(number)  # the stream below does not wait for that
        address = counter.data_ptr()
        with torch.cuda.device(number):
            kernels.increment(address, grid=1, block=1, stream=0)
        stream = torch.cuda.Stream(number)
        for current in (0, 1):
            with torch.cuda.device(current):
                kernels.increment(address, grid=1, block=1, stream=stream)
        torch.cuda.synchronize(number)
        assert counter.item() == 3


@two_gpus
def test_a_thread_without_a_context_launches_on_either_gpu(kernels: Any, torch: Any) -> None:
    counters = [torch.zeros(1, dtype=torch.int32, device=f"cuda:{number}") for number in (0, 1)]
    failures: list[BaseException] = []

    def work() -> None:
        try:
            for turn in range(200):
                kernels.increment(counters[turn % 2], grid=1, block=1)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for number, counter in enumerate(counters):
        torch.cuda.synchronize(number)
        assert counter.item() == 800
    assert failures == []


def test_structures_of_ctypes(kernels: Any, torch: Any) -> None:
    class Wide(ctypes.Structure):
        _fields_ = (("numbers", ctypes.c_int * 32),)

    value = Wide()
    value.numbers[0], value.numbers[31] = 5, 7
    out = torch.zeros(1, dtype=torch.int32, device="cuda")
    kernels.wide(1, value, out, grid=1, block=1)
    assert out.item() == 13
