"""Launches, copies and graphs on each of two GPUs, while the other one, or none, is current."""

from __future__ import annotations

import logging
import struct
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import cuda_ext
from cuda_ext.errors import ArgumentError
from cuda_ext.facts.launches import FixedLaunch, TensorMap
from cuda_ext.runtime.driver.driver import open_driver
from cuda_ext.runtime.driver.functions import OUT
from cuda_ext.runtime.module import library_of, module_from
from tests.fixtures.gpus import two_gpus
from tests.runtime.jit.test_on_demand import compilations

pytestmark = [
    pytest.mark.gpu,
    two_gpus,
    pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning"),
]
each_gpu = pytest.mark.parametrize("number", [1, 0])

# Grids and blocks of any size count once.
SOURCE = r"""
struct Job { int* counter; int by; };
__device__ int where;
__constant__ int weights[4];

__device__ void add(int* counter, int by) {
  if (!(blockIdx.x | blockIdx.y | threadIdx.x | threadIdx.y)) atomicAdd(counter, by);
}
__global__ void count(int* counter, int by) { add(counter, by); }
__global__ void run(Job job) { add(job.counter, job.by); }
template <class T> __global__ void typed(T* counter, int by) { add(reinterpret_cast<int*>(counter), by); }
__global__ void weigh(int* counter) { add(counter, weights[0] + weights[3]); }

__global__ void plus(int n, const float* x, float* y) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = x[i] + where;
}
"""
one: Any = {"grid": 1, "block": 32}


def compile_kernels() -> Any:
    instantiate = ["typed<int>", "typed<float>"]
    return cuda_ext.compile(SOURCE, instantiate=instantiate, architectures=["native"])


@pytest.fixture(scope="module")
def kernels() -> Any:
    compiled = compile_kernels()
    for number in (0, 1):
        compiled.where.copy_from(number + 1, device=number)
    return compiled


@pytest.fixture(scope="module")
def torch() -> Any:
    torch = pytest.importorskip("torch")
    torch.cuda.init()
    return torch


def current_context() -> int:
    return open_driver().query("cuCtxGetCurrent", OUT)


class On:
    """A counter, a stream and bound launches on the GPU `number`."""

    def __init__(self, kernels: Any, torch: Any, number: int) -> None:
        self.x = torch.zeros(1, dtype=torch.int32, device=f"cuda:{number}")
        self.address = self.x.data_ptr()
        self.job = struct.pack("Qi4x", self.address, 1)
        self.default, self.side = torch.cuda.current_stream(number), torch.cuda.Stream(number)
        self.handle = self.side.cuda_stream
        self.bound = kernels.count.bind(**one)
        self.bound_like = kernels.count.bind(like=self.x, **one)
        self.bound_stream = kernels.run.bind(stream=self.default, **one)
        self.bound_threads = kernels.count.bind(threads=1000)
        torch.cuda.synchronize(number)  # other streams do not wait for the zeros

    def call(self, kernels: Any, expression: str) -> None:
        eval(expression, {"k": kernels, "at": self, "one": one})


# Each adds 1 to the counter of `at`.
LAUNCHES = (
    "k.count(at.x, 1, **one)",
    "k.count(counter=at.x, by=1, **one)",
    "k.count(at.x, 1, stream=at.side, **one)",
    "k.count(at.x, 1, stream=0, **one)",
    "k.count(at.address, 1, like=at.x, **one)",
    "k.count(at.address, 1, stream=at.default, **one)",
    "k.count(at.address, 1, stream=at.side, **one)",
    "k.count(at.address, 1, stream=at.handle, **one)",
    "k.count(at.x, 1, threads=1000)",
    "k.count(at.x, 1, grid=(2, 2), block=(8, 8))",
    "k.count(at.x, 1, grid=1, block=32, shared=60_000)",
    "k.count(at.x, 1, grid=lambda given: given['by'], block=32)",
    "k.count(at.x, 1, grid=4, block=32, cooperative=True)",
    "k.count(at.x, 1, grid=4, block=32, dependent=True)",
    "k.typed(at.x, 1, **one)",
    "k.typed['int'](at.x, 1, **one)",
    "k.run(k.Job(counter=at.x, by=1), **one)",
    "k.run(k.Job(counter=at.address, by=1), stream=at.handle, **one)",
    "k.run(at.job, like=at.x, **one)",
    "k.run(at.job, stream=at.side, **one)",
    "at.bound(at.x, 1)",
    "at.bound_like(at.address, 1)",
    "at.bound_stream(at.job)",
    "at.bound_threads(at.x, 1)",
)
WITH_CLUSTERS = "k.count(at.x, 1, grid=4, block=32, cluster=2)"


@each_gpu
def test_every_launch_runs_on_its_gpu(kernels: Any, torch: Any, number: int) -> None:
    at = On(kernels, torch, number)
    has_clusters = open_driver().device(number).capability >= 90
    launches = [*LAUNCHES, *([WITH_CLUSTERS] if has_clusters else [])]

    def launch() -> list[str]:
        """Return the launches after which another context is current."""
        changed = []
        for expression in launches * 2:
            before = current_context()
            at.call(kernels, expression)
            changed += [expression] if current_context() != before else []
        return changed

    for current in (1 - number, number):
        with torch.cuda.device(current):
            assert launch() == []
    with ThreadPoolExecutor(1) as thread:  # which has no context
        assert thread.submit(launch).result() == []
    torch.cuda.synchronize(number)
    assert at.x.item() == 3 * 2 * len(launches)


@each_gpu
def test_operators_run_on_the_gpu_of_their_tensors(kernels: Any, torch: Any, number: int) -> None:
    op = kernels.count.torch_op(f"cuda_ext_tests::count_on_{number}", **one)
    x = torch.zeros(1, dtype=torch.int32, device=f"cuda:{number}")
    for current in (1 - number, number):
        with torch.cuda.device(current):
            op(x, 1)
            op(x, 1)
            assert torch.cuda.current_device() == current
    assert x.item() == 4


@each_gpu
def test_tensors_of_the_other_gpu_are_refused(kernels: Any, torch: Any, number: int) -> None:
    at, other = On(kernels, torch, number), On(kernels, torch, 1 - number)
    places = rf"is on GPU {number}, and 'job\.counter' is on GPU {1 - number}"
    job = kernels.Job(counter=other.x, by=1)
    for _ in range(2):  # after launches in C, too
        with pytest.raises(ArgumentError, match=f"like: {places}"):
            kernels.run(job, like=at.x, **one)
        with pytest.raises(ArgumentError, match=f"stream: {places}"):
            kernels.run(job, stream=at.default, **one)
        with pytest.raises(ArgumentError, match=f"stream: {places}"):
            kernels.run(job, stream=at.handle, **one)
        with pytest.raises(ArgumentError, match=f"stream: {places}"):
            at.bound_stream(job)
        kernels.run(job, **one)
    torch.cuda.synchronize(1 - number)
    assert (at.x.item(), other.x.item()) == (0, 2)


@each_gpu
@pytest.mark.parametrize("way", ["object", "handle", "default", "like"])
def test_numpy_arrays_are_copied_beside_another_context(
    kernels: Any, torch: Any, number: int, way: str
) -> None:
    stream = torch.cuda.Stream(number)
    options: dict[str, Any] = {
        "object": {"stream": stream},
        "handle": {"stream": stream.cuda_stream},
        "default": {"stream": torch.cuda.current_stream(number)},
        "like": {"like": torch.zeros(1, device=f"cuda:{number}")},
    }[way]
    with torch.cuda.device(1 - number):
        before = current_context()
        # The driver copies the first itself; the second goes through buffers, in several threads.
        for size in (1000, 6 << 20):
            x = np.arange(size, dtype="f4")
            for wait in (True, False):
                y = np.zeros_like(x)
                pending = kernels.plus(size, x, cuda_ext.out(y), threads=size, wait=wait, **options)
                if pending:
                    pending.wait()
                assert np.array_equal(y, x + np.float32(number + 1))
        with cuda_ext.device_scope():
            z = np.zeros_like(x)
            kernels.plus(size, x, y, threads=size, **options)
            kernels.plus(size, y, z, threads=size, **options)
        assert np.array_equal(z, y + np.float32(number + 1))
        assert current_context() == before


def test_each_gpu_has_its_own_variables(kernels: Any, torch: Any) -> None:
    weights = kernels.weights
    values = [torch.arange(4, dtype=torch.int32, device=f"cuda:{n}") + 10 * n for n in (0, 1)]
    streams = [torch.cuda.Stream(n) for n in (0, 1)]
    writes: tuple[Callable[[int], object], ...] = (
        lambda n: weights.copy_from(values[n].cpu().numpy(), device=n),
        lambda n: weights.copy_from(values[n].cpu().numpy(), stream=streams[n]),
        lambda n: weights.copy_from(values[n]),
        lambda n: weights.copy_from(values[n], stream=streams[n].cuda_stream),
    )
    for write in writes:
        for number in (0, 1):
            torch.cuda.synchronize(number)
            with torch.cuda.device(1 - number):
                weights.copy_from(bytes(16), device=number)
                write(number)
                torch.cuda.synchronize(number)
        for number, value in enumerate(values):
            counter, copied = torch.zeros(1, dtype=torch.int32, device=value.device), torch.zeros_like(value)
            with torch.cuda.device(1 - number):
                before = current_context()
                assert weights.numpy(device=number).tolist() == value.tolist()
                weights.copy_to(copied)
                kernels.weigh(counter, **one)
                assert current_context() == before
            assert torch.equal(copied, value)
            assert counter.item() == value[0].item() + value[3].item()
    assert weights.address_on(0) != weights.address_on(1)
    with pytest.raises(ArgumentError, match="expected an array on GPU 0, found one on GPU 1"):
        weights.copy_from(values[1], device=0)


@each_gpu
def test_a_graph_of_pytorch_is_captured_on_each(kernels: Any, torch: Any, number: int) -> None:
    at = On(kernels, torch, number)
    job = kernels.Job(counter=at.x, by=100)
    kernels.count(at.x, 0, **one)
    kernels.run(at.job, like=at.x, **one)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.device(number), torch.cuda.graph(graph, stream=at.side):
        kernels.count(at.x, 1, **one)
        kernels.count(at.address, 10, like=at.x, **one)
        kernels.run(job, **one)
    at.x.zero_()
    torch.cuda.synchronize(number)
    with torch.cuda.device(1 - number):
        for _ in range(3):
            graph.replay()
    torch.cuda.synchronize(number)
    assert at.x.item() == 333


@each_gpu
def test_a_graph_is_captured_while_the_other_gpu_is_current(kernels: Any, torch: Any, number: int) -> None:
    at = On(kernels, torch, number)
    job = kernels.Job(counter=at.x, by=100)
    kernels.count(at.x, 0, stream=at.side, **one)
    kernels.run(job, stream=at.side, **one)
    kernels.plus(1, np.zeros(1, "f4"), np.zeros(1, "f4"), stream=at.side, **one)
    call, query, relaxed = open_driver().call, open_driver().query, 2
    with torch.cuda.device(1 - number):
        before = current_context()
        call("cuStreamBeginCapture", at.handle, relaxed)
        try:
            kernels.count(at.x, 1, stream=at.side, **one)
            kernels.count(at.address, 10, stream=at.handle, **one)
            kernels.run(job, stream=at.side, **one)
            with pytest.raises(ArgumentError, match="stream: is being captured into a graph"):
                kernels.plus(1, np.zeros(1, "f4"), np.zeros(1, "f4"), stream=at.side, **one)
        finally:
            graph = query("cuStreamEndCapture", at.handle, OUT)
        assert current_context() == before
    with torch.cuda.device(number):
        executable = query("cuGraphInstantiateWithFlags", OUT, graph, 0)
        for _ in range(3):
            call("cuGraphLaunch", executable, at.handle)
        call("cuStreamSynchronize", at.handle)
        call("cuGraphExecDestroy", executable)
        call("cuGraphDestroy", graph)
    assert at.x.item() == 100 + 333


def test_32_threads_launch_on_both(torch: Any) -> None:
    """The first launches of all threads are at once, in threads without a context."""
    kernels = compile_kernels()
    places = [On(kernels, torch, number) for number in (0, 1)]
    start = threading.Barrier(32, timeout=60)

    def launch(thread: int) -> None:
        start.wait()
        for turn in range(100):
            at = places[(thread + turn) % 2]
            at.call(kernels, LAUNCHES[turn % len(LAUNCHES)])
            if turn % 50 == 0:
                x, y = np.full(1000, thread, "f4"), np.zeros(1000, "f4")
                kernels.plus(1000, x, y, threads=1000, stream=at.side)
                assert np.array_equal(x, y)  # `where` is 0 in these kernels

    with ThreadPoolExecutor(32) as threads:
        list(threads.map(launch, range(32)))
    for number, at in enumerate(places):
        torch.cuda.synchronize(number)
        assert at.x.item() == 32 * 100 // 2


def test_a_kernel_is_compiled_on_demand_for_each_architecture(
    torch: Any, empty_cache: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    source = "template <class T> __global__ void add(T* counter, T by) { *counter += by; }"
    compiled = cuda_ext.compile(source, instantiate=["add<int>"], architectures=["sm_75"])
    cuda_ext.save(compiled, tmp_path / "kernels")
    kernels: Any = cuda_ext.load(tmp_path / "kernels")
    counters = [torch.zeros(1, dtype=torch.int32, device=f"cuda:{number}") for number in (0, 1)]
    reals = [torch.zeros(1, device=f"cuda:{number}") for number in (0, 1)]
    with caplog.at_level(logging.INFO, "cuda_ext"):
        for number in (1, 0, 1, 0):
            with torch.cuda.device(1 - number):
                kernels.add["float"](reals[number], 1, grid=1, block=1)
                kernels.add["int"](counters[number], 1, grid=1, block=1)
    assert [counter.item() for counter in (*counters, *reals)] == [2, 2, 2, 2]
    different = {open_driver().device(number).capability for number in (0, 1)}
    assert len(compilations(caplog.messages)) == 2 * len(different)


@each_gpu
def test_a_tensor_map_is_made_without_a_context(torch: Any, number: int) -> None:
    if open_driver().device(number).capability < 90:
        pytest.skip("this GPU has no tensor memory accelerator")
    source = """
    struct __align__(64) CUtensorMap_st { unsigned long long opaque[16]; };
    using CUtensorMap = CUtensorMap_st;
    __global__ void peek(const __grid_constant__ CUtensorMap map, long long* out) {
      for (int i = 0; i < 16; i++) out[i] = map.opaque[i];
    }
    """
    library = library_of(cuda_ext.compile(source, architectures=["native"]))
    fixed = {"peek": FixedLaunch((1,), tensor_maps={"map": TensorMap(7, 4, (16, 16))})}
    (unit,) = library.manifest.units
    images = tuple(image._replace(launches=fixed) for image in unit.images)
    (peek,) = library.manifest.kernels
    mapped, out = peek.parameters
    kernel = peek._replace(parameters=(mapped._replace(element="float"), out))
    changed = library.manifest._replace(units=(unit._replace(images=images),), kernels=(kernel,))
    kernels: Any = module_from(changed, library.read)
    array = torch.zeros(64, 64, device=f"cuda:{number}")
    found = torch.zeros(16, dtype=torch.int64, device=f"cuda:{number}")

    def launch() -> int:
        kernels.peek(array, found, grid=1)
        return current_context()

    with ThreadPoolExecutor(1) as thread:
        assert thread.submit(launch).result() == 0
    assert array.data_ptr() in found.tolist()
