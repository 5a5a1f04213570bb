"""numpy arrays as arguments, under the fake driver, which runs asynchronous work as late as possible."""

from __future__ import annotations

import asyncio
import atexit
import contextvars
import ctypes
import gc
import os
import threading
import weakref
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cuda.bindings import driver

import cuda_ext
from cuda_ext.facts import manifest
from cuda_ext.facts.kernels import Kernel
from cuda_ext.facts.manifest import Manifest, Unit
from cuda_ext.facts.sources import Source
from cuda_ext.runtime.arrays.device_scope import DeviceCopies
from tests.fixtures.loader import Run, described, signature, single_image, write_package
from tests.fixtures.under_driver import calls, failure, launches

pytestmark = [
    pytest.mark.host_compiler,
    pytest.mark.usefixtures("moving"),
    pytest.mark.under_driver(kernels="moving.kernels"),
]
under_driver = pytest.mark.under_driver

# What each kernel does; see libcuda.c.
KERNELS = {
    Kernel("increment", "increment", 0, signature("pointer 8 float* x")): "increments 0",
    Kernel("copy", "copy", 0, signature("pointer 8 const float* x", "pointer 8 float* y")): "copies 0 1",
    Kernel("move", "move", 0, signature("pointer 8 const void* x", "pointer 8 void* y")): "copies 0 1",
    Kernel("grow", "grow", 0, signature("pointer 8 Point* x", "integer 4 int n")): "increments 0",
    Kernel("rest", "rest", 0, signature("pointer 8 float* x", "pointer 8 float* y")): "increments 1",
    Kernel(
        "several", "several", 0, signature("pointer 8 const void* x", "pointer 8 void* y", "pointer 8 int* z")
    ): "copies 0 1",
    Kernel("look", "look", 0, signature("pointer 8 const float* x")): "",
    Kernel("pick<float>", "pickf", 0, signature("pointer 8 float* x")): "increments 0",
    Kernel("pick<double>", "pickd", 0, signature("pointer 8 double* x")): "increments 0",
}
IMAGE = "".join(f"{described(kernel).strip()} {what}\n" for kernel, what in KERNELS.items())
MODULE = Manifest(
    schema=manifest.SCHEMA,
    module="moving.kernels",
    compiler="nvrtc",
    version="13.0",
    compress="none",
    units=(Unit((Source("moving.cu"),), (single_image(IMAGE, "sm_90", "moving.cubin"),)),),
    kernels=tuple(KERNELS),
    symbols=(),
)
kernels: Any = None  # in the process of a test, the module
one: Any = {"grid": 1, "block": 1}
out = cuda_ext.out


@pytest.fixture
def moving(with_driver: Callable[..., Run], tmp_path: Path) -> None:
    write_package(tmp_path, MODULE, {"moving.cubin": IMAGE.encode()})


def floats(size: int, value: float = 0) -> np.ndarray[Any, Any]:
    return np.full(size, value, "f4")


def bytes_(size: int, value: int = 0) -> np.ndarray[Any, Any]:
    return np.full(size, value, "u1")


def some(size: int, seed: int = 0) -> np.ndarray[Any, Any]:
    """Return different bytes for each `seed`."""
    return np.random.default_rng(seed).integers(0, 255, size, "u1")


def page_locked(size: int) -> np.ndarray[Any, Any]:
    error, address = driver.cuMemHostAlloc(size, 0)
    assert not error
    return np.ctypeslib.as_array((ctypes.c_uint8 * size).from_address(address))


def with_context() -> None:
    driver.cuInit(0)
    driver.cuCtxPushCurrent(driver.cuDevicePrimaryCtxRetain(0)[1])


def in_threads(number: int, work: Callable[[int], None]) -> None:
    """Run `work` with each number in a thread of its own; none of them may fail."""
    failures: list[BaseException] = []

    def run(seed: int) -> None:
        try:
            work(seed)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=run, args=(seed,)) for seed in range(number)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []


def moves() -> Counter[str]:
    """Count allocations, and copies in either direction."""
    names = {
        "cuMemAllocFromPoolAsync": "allocated",
        "cuMemcpyHtoDAsync": "to the GPU",
        "cuMemcpyDtoHAsync": "to the host",
    }
    return Counter(names[name] for call in calls() if (name := call.split()[0]) in names)


def test_arrays_are_copied_in_stream_order() -> None:
    x, y = np.arange(10, dtype="f4"), floats(10)
    assert kernels.copy(x, y, **one, stream=7) is None
    assert y.tolist() == x.tolist()
    made = calls()
    ours = [c for c in made[made.index("cuLibraryGetKernel copy") + 1 :] if "cuCtx" not in c]
    assert [call.split(" grid")[0].split(" 0000")[0] for call in ours] == [
        "cuMemPoolCreate",
        "cuMemPoolSetAttribute 4 1073741824",
        "cuStreamCreate 1",
        "cuMemAllocFromPoolAsync 40 stream=7",
        "cuMemAllocFromPoolAsync 40 stream=7",
        "cuMemcpyHtoDAsync 40 stream=7",
        "cuMemcpyHtoDAsync 40 stream=7",
        "cuLaunchKernel copy",
        "cuMemcpyDtoHAsync 40 stream=7",
        "cuMemFreeAsync stream=7",
        "cuMemFreeAsync stream=7",
    ]


@pytest.mark.parametrize(
    ("launch", "expected"),
    [
        ("kernels.look(x, **one)", {"allocated": 1, "to the GPU": 1}),
        ("kernels.increment(x, **one)", {"allocated": 1, "to the GPU": 1, "to the host": 1}),
        ("kernels.increment(out(x), **one)", {"allocated": 1, "to the host": 1}),
        ("kernels.copy(x, out(y), **one)", {"allocated": 2, "to the GPU": 1, "to the host": 1}),
        ("kernels.copy(x, x, **one)", {"allocated": 1, "to the GPU": 1, "to the host": 1}),
        ("kernels.copy(x, out(x), **one)", {"allocated": 1, "to the GPU": 1, "to the host": 1}),
        ("kernels.look(x[:0], **one)", {}),
        ("kernels.rest(x[:0], y, **one)", {"allocated": 1, "to the GPU": 1, "to the host": 1}),
        ("kernels.increment.bind(**one)(x)", {"allocated": 1, "to the GPU": 1, "to the host": 1}),
    ],
)
def test_no_copy_is_superfluous(launch: str, expected: dict[str, int]) -> None:
    eval(launch, {**globals(), "x": floats(10), "y": floats(10)})
    assert moves() == expected
    assert len(launches()) == 1


def test_only_launches_that_write_arrays_synchronize() -> None:
    kernels.look(floats(10), **one, stream=7)
    assert not [call for call in calls() if "Synchronize" in call]


LARGEST_UNSTAGED = 16 << 20
SIZES = [1, 3, *(size + more for size in (1 << 21, LARGEST_UNSTAGED) for more in (-1, 0, 1)), (1 << 25) + 5]


def test_arrays_of_every_size_are_copied_completely() -> None:
    """The last size exceeds that of all buffers."""
    for size in SIZES:
        x, y = some(size), some(size, 1)
        kernels.move(x, out(y), **one)
        assert np.array_equal(x, y), size
        kernels.move(some(size, 2), y, **one, stream=7)
        assert np.array_equal(some(size, 2), y), size
    buffers = [int(call.split()[1]) for call in calls("cuMemHostAlloc")]
    assert 1 < len(buffers) <= 16
    to_gpu, to_host = ([int(c.split()[1]) for c in calls(f"cuMemcpy{way}Async")] for way in ("HtoD", "DtoH"))
    assert max(to_gpu) == LARGEST_UNSTAGED
    assert to_gpu.count(buffers[0]) > 2 * (LARGEST_UNSTAGED + SIZES[-1]) // buffers[0] - 2
    assert to_host == [size for size in SIZES for _ in range(2)]


def test_several_large_arrays_share_the_buffers() -> None:
    x, y, z = (some(20_000_001, seed) for seed in range(3))
    kernels.move(x, y, **one)
    assert np.array_equal(x, y)
    with cuda_ext.device_scope():
        kernels.move(x, z, **one)
        kernels.move(some(20_000_001, 5), y, **one, stream=7)
    assert np.array_equal(x, z)
    assert np.array_equal(some(20_000_001, 5), y)


def test_page_locked_arrays_are_copied_as_they_are() -> None:
    with_context()
    x, y = page_locked(5_000_000), page_locked(5_000_000)
    x[:] = some(x.size)
    kernels.move(x, out(y), **one)
    assert np.array_equal(x, y)
    copies = [call.split()[:2] for call in calls("cuMemcpy")]
    assert copies == [["cuMemcpyHtoDAsync", "5000000"], ["cuMemcpyDtoHAsync", "5000000"]]
    assert len(calls("cuMemHostAlloc")) == 2  # x and y


@pytest.mark.parametrize("size", [100, 70_000, 20_000_000])
@pytest.mark.parametrize("locked", [False, True])
def test_arrays_have_been_read_when_the_call_returns(size: int, locked: bool) -> None:
    with_context()
    x, y = page_locked(size) if locked else bytes_(size), bytes_(size)
    x[:] = some(size)
    pending = kernels.move(x, y, **one, wait=False)
    x[:] = 0
    pending.wait()
    assert np.array_equal(y, some(size))
    with cuda_ext.device_scope():
        x[:] = some(size, 1)
        kernels.move(x, y, **one)
        x[:] = 0
    assert np.array_equal(y, some(size, 1))


@under_driver(pools=0)
def test_memory_is_allocated_without_memory_pools() -> None:
    x, y = some(100_000), bytes_(100_000)
    kernels.move(x, y, **one)
    assert np.array_equal(x, y)
    kernels.move(x, y, **one, wait=False)
    assert len(calls("cuMemAlloc ")) == 4


# Arrays that share memory, or have gaps


def test_arrays_that_share_memory_share_it_on_the_gpu() -> None:
    x = np.arange(20, dtype="f4")
    kernels.copy(x[:10], x[5:15], **one)
    assert x.tolist() == [*range(5), *range(10), *range(15, 20)]
    kernels.copy(x[:10], x[10:], **one)
    assert x.tolist() == [*range(5)] * 4
    assert [call.split()[1] for call in calls("cuMemAlloc")] == ["60", "40", "40"]


def test_arrays_with_gaps_are_read_in_their_order() -> None:
    x, y, z = np.arange(12, dtype="f4").reshape(3, 4), floats(3), np.zeros((4, 3), "f4")
    kernels.copy(x[:, 1], y, **one)
    assert y.tolist() == [1, 5, 9]
    kernels.copy(x[::-2, 3], y[:2], **one)
    assert y.tolist() == [11, 3, 9]
    kernels.copy(x.T, z, **one)
    assert np.array_equal(z, x.T)
    x.flags.writeable = False
    kernels.copy(x, z, **one)
    assert z.ravel().tolist() == [*range(12)]
    kernels.copy(np.array(5, "f4"), y[:1], **one)
    assert y[0] == 5


@under_driver(capturing=9)
def test_arrays_that_cannot_be_copied_are_refused() -> None:
    f4, f8, fixed = floats(10), np.ones(10), floats(10)
    fixed.flags.writeable = False
    copy, grow, increment, look = kernels.copy, kernels.grow, kernels.increment, kernels.look
    reads, writes = "expected a contiguous array in C order, since a kernel writes", "in C order to write to"
    for kernel, arguments, expected in [
        (increment, [f8], "argument 'x': expected float32 (float), found float64"),
        (increment, [f4.astype(">f4")], "argument 'x': expected this machine's byte order, found >f4"),
        (kernels.move, [np.array([{}]), f4], "argument 'x': expected numbers, found an array of Python"),
        (increment, [fixed], "argument 'x': expected writable memory (float*), found a read-only array"),
        (increment, [f4[::2]], f"argument 'x': expected a contiguous array {writes} (float*), found"),
        (increment, [out(f4.reshape(2, 5).T)], f"argument 'x': expected a contiguous array {writes}"),
        (look, [out(f4)], "argument 'x': expected an array to read (const float*), found cuda_ext.out"),
        (grow, [f4, f4], "argument 'n': expected int, found numpy.ndarray in host memory"),
        (grow, [f4, out(f4)], "argument 'n': expected int, found cuda_ext.runtime.arrays.host_arrays.Out"),
        (copy, [f4[::2], f4], f"argument 'x': {reads} to"),
        (copy, [f4[4::-1], f4[:3]], f"argument 'x': {reads}"),
        (look.bind(stream=9, **one), [f4], "stream: is being captured into a graph, which takes no host"),
        (look.bind(stream=9, wait=False, **one), [0], "stream: is being captured into a graph"),
        (kernels.pick, [np.ones(3, "i4")], "argument 'x': expected one of float*, double*, found ndarray"),
    ]:
        options = {} if "stream" in expected else one
        found = failure(kernel, *arguments, **options)
        assert found.startswith(f"ArgumentError: {expected}"), found
        assert "in a launch of" in found or "expected one of" in found
    for wrong in ([1.0], 5, None):
        expected = f"ArgumentError: out: expected a numpy array, found {type(wrong).__name__}"
        assert failure(out, wrong) == expected
    assert launches() == []
    assert "allocated" not in moves()


@under_driver(fail="cuStreamIsCapturing=906")
def test_the_default_stream_may_be_captured_with_others() -> None:
    refused = failure(kernels.look, floats(3), **one)
    assert refused.startswith("ArgumentError: stream: is being captured into a graph")


def test_other_host_arrays_are_refused() -> None:
    class Tensor:
        is_cuda, device = False, "cpu"

        def data_ptr(self) -> int:
            return 16

    refused = failure(kernels.look, Tensor(), **one)
    assert refused.startswith("ArgumentError: argument 'x': expected device memory, found a tensor on cpu")
    refused = failure(kernels.look, memoryview(b"1234"), **one)
    assert refused.startswith("ArgumentError: argument 'x': expected an array in device memory")


def test_memory_of_structures_is_bytes() -> None:
    points = np.zeros(3, [("x", "f4"), ("n", "i2")])
    kernels.grow(points, 3, **one)
    assert points.tobytes() == b"\1" * 18


def test_the_kernel_is_chosen_by_the_arrays() -> None:
    kernels.pick(np.zeros(3), **one)
    kernels.pick(out(floats(3)), **one)
    kernels.pick(out(np.zeros(3)), **one)
    assert [launch.split()[1] for launch in launches()] == ["pickd", "pickf", "pickd"]


# Failures

CALLS = [
    *("cuStreamIsCapturing=1", "cuMemPoolCreate=1", "cuMemPoolSetAttribute=1", "cuStreamCreate=1"),
    *("cuMemAllocFromPoolAsync=2", "cuMemAllocFromPoolAsync=2@2", "cuMemAllocFromPoolAsync=2@3"),
    *("cuMemHostAlloc=2", "cuMemHostAlloc=2@3", "cuEventCreate=1", "cuEventCreate=1@2"),
    *("cuMemcpyHtoDAsync=1", "cuMemcpyHtoDAsync=1@2", "cuMemcpyHtoDAsync=1@4"),
    *("cuEventRecord=1", "cuEventRecord=1@3", "cuEventSynchronize=1", "cuEventSynchronize=1@4"),
    *("cuLaunchKernel=1", "cuMemcpyDtoHAsync=1", "cuMemcpyDtoHAsync=1@2"),
]


@pytest.mark.parametrize("failing", CALLS)
def test_a_failure_frees_all_memory(failing: str) -> None:
    """No device memory, no context, unchanged arrays unless copies back fail, and all buffers available."""
    x, y, z = some(20_000_000), bytes_(20_000_000), np.zeros(10, "i4")
    function, _, code = failing.partition("=")
    os.environ["FAKE_CUDA_FAIL"] = failing
    refused = failure(kernels.several, x, y, z, **one)
    assert refused.startswith(f"LaunchError: several: {function} failed: ")
    assert f"({code[0]})" in refused
    assert not y.any() or failing == "cuMemcpyDtoHAsync=1@2"
    assert int(driver.cuCtxGetCurrent()[1]) == 0
    del os.environ["FAKE_CUDA_FAIL"]
    for _ in range(2):
        kernels.several(x, y, z, **one)
        assert np.array_equal(x, y)


@under_driver(fail="cuEventRecord=1@3")
def test_a_buffer_is_not_reused_before_a_failed_transfer_has_ended() -> None:
    failure(kernels.move, some(20_000_000), out(bytes_(20_000_000)), **one, stream=7)
    backwards = calls()[::-1]
    assert backwards.index("cuStreamSynchronize 7") < backwards.index("cuMemcpyHtoDAsync 2097152 stream=7")


@under_driver(fail="cuMemcpyDtoHAsync=700,cuEventSynchronize=700")
def test_a_fault_of_the_kernel_is_reported_and_leaves_arrays_unchanged() -> None:
    x = floats(10)
    refused = failure(kernels.increment, x, **one)
    assert "increment: cuMemcpyDtoHAsync failed: FAKE_ERROR_700 (700)" in refused
    assert "the fault may be of earlier work on this GPU" in refused
    pending = kernels.increment(x, **one, wait=False)
    for _ in range(2):
        assert "increment: cuEventSynchronize failed" in failure(pending.wait)
    assert not x.any()
    with cuda_ext.device_scope():
        kernels.increment(x, **one)
        del os.environ["FAKE_CUDA_FAIL"]
    assert x.sum() > 0


# Without waiting


def test_wait_copies_the_results_of_a_pending_launch() -> None:
    x, y = np.arange(3, dtype="f4"), floats(3)
    pending = kernels.copy(x, y, **one, wait=False)
    assert not y.any()
    assert [pending.done, pending.done] == [False, True]
    assert not y.any()
    pending.wait()
    assert y.tolist() == [0, 1, 2]
    assert pending.done
    x[:], y[:] = 5, 6
    pending.wait()
    assert y.tolist() == [6, 6, 6]


def test_a_pending_launch_does_not_wait_for_later_ones() -> None:
    x, y = bytes_(3), bytes_(3)
    first = kernels.move(bytes_(3, 1), x, **one, stream=7, wait=False)
    second = kernels.move(bytes_(3, 1), y, **one, stream=7, wait=False)
    first.wait()
    assert x.tolist() == [1, 1, 1]
    assert not second.done
    second.wait()
    assert y.tolist() == [1, 1, 1]
    assert "cuStreamSynchronize 7" not in calls()


def test_a_pending_launch_that_is_dropped_writes_nothing() -> None:
    x = floats(100_000)
    kernels.increment(x, **one, wait=False)
    gc.collect()
    kernels.look(x, **one)
    assert not x.any()
    assert calls("cuEventDestroy")


def test_a_pending_launch_keeps_the_arrays_that_it_writes() -> None:
    x = floats(100_000)
    alive = weakref.ref(x)
    pending = kernels.increment(x, **one, wait=False)
    del x
    gc.collect()
    assert alive() is not None
    pending.wait()
    assert alive() is None


def test_any_launch_can_be_pending() -> None:
    with_context()
    there = int(driver.cuMemAlloc(4)[1])
    pending = kernels.increment(there, **one, wait=False)
    assert not pending.done
    pending.wait()
    assert pending.done
    pending = kernels.look.bind(**one, wait=False)(there)
    pending.wait()
    kernels.look(there, **one)
    assert not kernels.look(there, **one, wait=False).done
    assert kernels.look(there, **one, wait=True) is None
    driver.cuStreamSynchronize(0)
    driver.cuMemFree(there)


def test_threads_may_wait_for_the_same_launch() -> None:
    x = bytes_(3_000_000)
    pending = kernels.move(np.ones_like(x), x, **one, wait=False)

    def wait(_: int) -> None:
        pending.wait()
        assert x.all()

    in_threads(4, wait)
    assert pending.done
    assert len(calls("cuEventDestroy")) == 1


# Scopes


def test_in_a_scope_arrays_are_copied_once_each_way() -> None:
    x, y, z = floats(10, 1), floats(10), floats(10)
    with cuda_ext.device_scope():
        kernels.copy(x, out(y), **one)
        kernels.copy(y, z, **one)
        kernels.copy(x, y, **one)
        assert not y.any()
        assert not z.any()
    assert y.all()
    assert z.all()
    kernels.copy(x, y, **one)
    assert moves() == {"allocated": 3 + 2, "to the GPU": 2 + 2, "to the host": 2 + 1}


def test_arrays_in_a_scope_can_be_fetched() -> None:
    x, y = bytes_(10), bytes_(10)
    with cuda_ext.device_scope() as scope:
        scope.fetch(x)
        kernels.move(bytes_(10, 1), x, **one)
        kernels.move(bytes_(10, 1), y, **one)
        scope.fetch(x[2:4])
        assert x.tolist() == [0, 0, 1, 1, 0, 0, 0, 0, 0, 0]
        scope.fetch(x[::2])
        assert x.tolist() == [1, 1, 1, 1, 1, 1, 1, 1, 1, 0]
        assert not y.any()
        assert failure(scope.fetch, [1]) == "ArgumentError: fetch: expected a numpy array, found list"
        assert [name for name in dir(scope) if not name.startswith("_")] == ["fetch"]
    assert y.all()


def test_fetched_arrays_are_not_copied_again() -> None:
    x = bytes_(10)
    with cuda_ext.device_scope() as scope:
        kernels.move(bytes_(10, 1), x, **one)
        scope.fetch(x)
        x[:] = 5
    assert x.sum() == 50


def test_views_of_arrays_in_a_scope_are_not_copied() -> None:
    x, y = np.arange(10, dtype="f4"), floats(3)
    with_gaps = "ArgumentError: argument 'x': expected a contiguous array in C order, since a"
    part_first = "ArgumentError: argument 'x': a part of this array was an argument before it"
    with cuda_ext.device_scope():
        kernels.copy(np.arange(10, 20, dtype="f4"), x, **one)
        kernels.copy(x[4:7], y, **one)
        assert failure(kernels.copy, x[::2], y, **one).startswith(with_gaps)
    assert x[0] == 10
    assert y.tolist() == [14, 15, 16]
    with cuda_ext.device_scope():
        kernels.look(x[::2], **one)
        kernels.look(x[::2], **one)
        kernels.look(x[5:], **one)
        assert failure(kernels.look, x, **one).startswith(part_first)


def test_copies_of_strided_arrays_do_not_accumulate_in_a_scope() -> None:
    x = floats(10)
    with cuda_ext.device_scope():
        for _ in range(3):
            kernels.look(x[::2], **one)
        assert len(calls("cuMemFreeAsync")) == 3


def test_an_inner_scope_uses_arrays_of_the_outer() -> None:
    x, y, z = bytes_(4), bytes_(4), bytes_(4)
    threes, zeros = [3] * 4, [0] * 4
    with cuda_ext.device_scope():
        kernels.move(bytes_(4, 3), x, **one)
        with cuda_ext.device_scope() as inner:
            kernels.move(x, y, **one)
            kernels.move(y, x, **one)
            inner.fetch(x)
            assert (x.tolist(), y.tolist()) == (threes, zeros)
        assert (x.tolist(), y.tolist()) == (threes, threes)
        kernels.move(x, z, **one)
    assert z.tolist() == threes


def test_work_on_the_same_arrays_in_several_streams_is_ordered() -> None:
    x, y, z = bytes_(4, 7), bytes_(4), bytes_(4)
    with cuda_ext.device_scope() as scope:
        kernels.move(x, y, **one, stream=7)
        kernels.move(y, z, **one, stream=8)
        scope.fetch(z)
        assert z.tolist() == x.tolist()
        kernels.move(x, y, **one, stream=8)
    assert y.tolist() == x.tolist()
    assert calls("cuStreamWaitEvent") == ["cuStreamWaitEvent stream=8"] * 2


def test_an_exception_ends_a_scope_like_any_exit() -> None:
    x = bytes_(4)
    for value, failing in ((1, ""), (0, "cuMemcpyDtoHAsync=700")):
        try:
            with cuda_ext.device_scope():
                kernels.move(bytes_(4, value), x, **one)
                os.environ["FAKE_CUDA_FAIL"] = failing
                raise KeyError("mine")
        except KeyError as error:
            assert error.args == ("mine",)  # noqa: PT017
        assert x.tolist() == [1, 1, 1, 1]


@under_driver(fail="cuMemcpyDtoHAsync=1")
def test_a_scope_raises_if_copying_back_fails() -> None:
    x = bytes_(4)

    def scope() -> None:
        with cuda_ext.device_scope():
            kernels.move(bytes_(4, 1), x, **one)

    assert failure(scope).startswith("DriverCallError: cuMemcpyDtoHAsync failed")
    assert not x.any()


@under_driver(fail="cuLaunchKernel=1")
def test_outputs_of_a_refused_launch_are_not_copied_back() -> None:
    x, y = floats(4, 1), floats(4)
    with cuda_ext.device_scope():
        failure(kernels.copy, x, out(y), **one)
        del os.environ["FAKE_CUDA_FAIL"]
        kernels.look(y, **one)
    assert not y.any()
    assert moves() == {"allocated": 3, "to the GPU": 2}


def test_a_scope_belongs_to_its_thread_or_task() -> None:
    x, y, ones = bytes_(4), bytes_(4), bytes_(4, 1)
    with cuda_ext.device_scope():
        in_threads(1, lambda _: kernels.move(ones, x, **one))
        assert x.all()
        inside = contextvars.copy_context()
    inside.run(kernels.move, ones, y, **one)
    assert y.all()

    async def scoped(array: np.ndarray[Any, Any]) -> None:
        with cuda_ext.device_scope():
            await asyncio.sleep(0)
            kernels.move(ones, array, **one)
            await asyncio.sleep(0)
            assert not array.any()

    async def both() -> Sequence[None]:
        return await asyncio.gather(scoped(x), scoped(y))

    x[:] = y[:] = 0
    asyncio.run(both())
    assert x.all()
    assert y.all()


@pytest.mark.usefixtures("messages")
def test_an_ended_scope_accepts_no_arrays() -> None:
    """Another thread may have ended it."""
    copies = DeviceCopies()
    copies.release()
    print(failure(copies.place(None, 0, None, []).__enter__))  # type: ignore[arg-type]


# Threads, GPUs, and the end


def test_threads_share_only_buffers() -> None:
    def work(seed: int) -> None:
        options = {**one, "stream": seed % 3 + 7}
        for size in (100, 70_000, 3_000_001, 9_000_000):
            x, y = some(size, seed), bytes_(size)
            kernels.move(x, y, **options)
            assert np.array_equal(x, y), size
            kernels.move(some(size, seed + 99), y, **options, wait=False).wait()
            assert np.array_equal(some(size, seed + 99), y), size

    in_threads(8, work)


class OnDevice:
    def __init__(self, address: int, **more: object) -> None:
        self.__cuda_array_interface__ = {
            "data": (address, False),
            "typestr": "<f4",
            "shape": (4,),
            "version": 3,
            **more,
        }


@pytest.mark.usefixtures("messages")
@under_driver(devices=2, memory="16+16@0")
def test_arrays_are_copied_to_the_gpu_of_the_stream_or_of_other_arrays() -> None:
    x, y, there = floats(4, 1), floats(4), OnDevice(16)
    kernels.copy(x, y, **one, stream=1009)
    assert y.all()
    kernels.copy(x, y, **one)
    kernels.look(there, **one)
    with cuda_ext.device_scope():
        kernels.look(x, **one, stream=1009)
        kernels.copy(x, y, **one)
        print(failure(kernels.rest, x, there, **one))
        kernels.look(floats(1), **one)
    devices = [launch.partition("device=")[2].split()[0] for launch in launches()]
    assert devices == ["1", "0", "0", "1", "1", "0"]


def test_host_and_device_arrays_can_be_mixed() -> None:
    """The stream is that of the device array's library."""
    with_context()
    address = int(driver.cuMemAlloc(16)[1])
    there = OnDevice(address, stream=7)
    x, y = np.arange(4, dtype="f4"), floats(4)
    for _ in range(2):
        kernels.copy(x, there, **one)
        kernels.copy(there, y, **one)
        kernels.copy(there, there, **one)
    assert y.tolist() == x.tolist()
    driver.cuStreamSynchronize(7)
    driver.cuMemFree(address)
    assert all("stream=7" in launch for launch in launches())


def test_launches_at_interpreter_shutdown_copy_arrays() -> None:
    @atexit.register
    def last() -> None:
        x, y = some(5_000_000), bytes_(5_000_000)
        kernels.move(x, y, **one)
        if not np.array_equal(x, y):
            os._exit(1)  # no exception here changes the exit code


def test_debug_mode_copies_arrays() -> None:
    os.environ["CUDA_EXT_DEBUG"] = "1"
    x, y = floats(4, 1), floats(4)
    kernels.copy(x, y, **one)
    assert y.all()
