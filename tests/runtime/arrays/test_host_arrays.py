"""numpy arrays as arguments, under the fake driver, which runs asynchronous work as late as possible."""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from cuda_ext.facts import manifest
from cuda_ext.facts.kernels import Kernel
from cuda_ext.facts.manifest import Manifest, Source, Unit
from tests.fixtures.loader import Run, described, signature, single_image, write_package
from tests.fixtures.messages import Messages

pytestmark = pytest.mark.host_compiler

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
# In each script: kernels, a launch configuration, and an array of so many different bytes.
BEFORE = """
import gc, os, threading
import numpy as np
import cuda_ext
from cuda.bindings import driver
from moving import kernels

one = dict(grid=1, block=1)

def some(size, seed=0):
    return np.random.default_rng(seed).integers(0, 255, size, "u1")

def page_locked(size):
    import ctypes
    error, address = driver.cuMemHostAlloc(size, 0)
    assert not error
    return np.ctypeslib.as_array((ctypes.c_uint8 * size).from_address(address))

def with_context():
    driver.cuInit(0)
    driver.cuCtxPushCurrent(driver.cuDevicePrimaryCtxRetain(0)[1])
"""

IMPORTS = ("numpy", "cuda.bindings.driver", "cuda_ext.runtime.launch.host_launch")

Script = Callable[..., Run]


@pytest.fixture
def run(with_driver: Script, tmp_path: Path) -> Script:
    """Runs a script, after which no device memory may be left."""
    write_package(tmp_path, MODULE, {"moving.cubin": IMAGE.encode()})

    def run(script: str, **settings: str | int) -> Run:
        done = with_driver(BEFORE + textwrap.dedent(script), imports=IMPORTS, **settings)
        assert [line for line in done.calls if "left" in line or "illegal" in line] == []
        return done

    return run


def moves(run: Run) -> Counter[str]:
    """The number of allocations, and of copies in either direction."""
    names = {
        "cuMemAllocFromPoolAsync": "allocated",
        "cuMemcpyHtoDAsync": "to the GPU",
        "cuMemcpyDtoHAsync": "to the host",
    }
    return Counter(names[name] for call in run.calls if (name := call.split()[0]) in names)


def test_arrays_are_copied_in_stream_order(run: Script) -> None:
    done = run(
        """
        x, y = np.arange(10, dtype="f4"), np.zeros(10, "f4")
        print(kernels.copy(x, y, **one, stream=7))
        print(y)
        """
    )
    assert done.output == ["None", "[0. 1. 2. 3. 4. 5. 6. 7. 8. 9.]"]
    ours = [c for c in done.calls[done.calls.index("cuLibraryGetKernel copy") + 1 :] if "cuCtx" not in c]
    assert [" ".join(call.split(" grid")[0].split(" 0000")[:1]) for call in ours] == [
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
        ("kernels.increment(cuda_ext.out(x), **one)", {"allocated": 1, "to the host": 1}),
        ("kernels.copy(x, cuda_ext.out(y), **one)", {"allocated": 2, "to the GPU": 1, "to the host": 1}),
        ("kernels.copy(x, x, **one)", {"allocated": 1, "to the GPU": 1, "to the host": 1}),
        ("kernels.copy(x, cuda_ext.out(x), **one)", {"allocated": 1, "to the GPU": 1, "to the host": 1}),
        ("kernels.look(x[:0], **one)", {}),
        ("kernels.rest(x[:0], y, **one)", {"allocated": 1, "to the GPU": 1, "to the host": 1}),
        ("kernels.increment.bind(**one)(x)", {"allocated": 1, "to the GPU": 1, "to the host": 1}),
    ],
)
def test_no_copy_is_superfluous(run: Script, launch: str, expected: dict[str, int]) -> None:
    done = run(f"x, y = np.ones(10, 'f4'), np.ones(10, 'f4')\n{launch}")
    assert moves(done) == expected
    assert len(done.launches) == 1


def test_only_launches_that_write_arrays_synchronize(run: Script) -> None:
    done = run("kernels.look(np.ones(10, 'f4'), **one, stream=7)")
    assert not [call for call in done.calls if "Synchronize" in call]


SIZES = sorted({1, 3, *(2**power + more for power in (16, 20, 21, 22) for more in (-1, 0, 1)), (1 << 25) + 5})


def test_arrays_of_every_size_are_copied_completely(run: Script) -> None:
    """The last size exceeds that of all buffers."""
    done = run(
        f"""
        for size in {SIZES}:
            x, y = some(size), some(size, 1)
            kernels.move(x, cuda_ext.out(y), **one)
            assert np.array_equal(x, y), size
            kernels.move(some(size, 2), y, **one, stream=7)
            assert np.array_equal(some(size, 2), y), size
        """
    )
    buffers = [call.split()[1] for call in done.calls if call.startswith("cuMemHostAlloc")]
    assert 1 < len(buffers) <= 16
    assert max(int(c.split()[1]) for c in done.calls if c.startswith("cuMemcpy")) <= int(buffers[0])


def test_several_large_arrays_share_the_buffers(run: Script) -> None:
    run(
        """
        x, y, z = (some(20_000_001, seed) for seed in range(3))
        kernels.move(x, y, **one)
        assert np.array_equal(x, y)
        with cuda_ext.device_scope():
            kernels.move(x, z, **one)
            kernels.move(some(20_000_001, 5), y, **one, stream=7)
        assert np.array_equal(x, z)
        assert np.array_equal(some(20_000_001, 5), y)
        """
    )


def test_page_locked_arrays_are_copied_as_they_are(run: Script) -> None:
    done = run(
        """
        with_context()
        x, y = page_locked(5_000_000), page_locked(5_000_000)
        x[:] = some(x.size)
        kernels.move(x, cuda_ext.out(y), **one)
        assert np.array_equal(x, y)
        """
    )
    copies = [call.split()[:2] for call in done.calls if call.startswith("cuMemcpy")]
    assert copies == [["cuMemcpyHtoDAsync", "5000000"], ["cuMemcpyDtoHAsync", "5000000"]]
    assert sum(call.startswith("cuMemHostAlloc") for call in done.calls) == 2  # those of the script


@pytest.mark.parametrize("size", [100, 70_000, 5_000_000])
@pytest.mark.parametrize("array", ["some(size)", "page_locked(size)"])
def test_arrays_have_been_read_when_the_call_returns(run: Script, size: int, array: str) -> None:
    run(
        f"""
        with_context()
        size = {size}
        x, y = {array}, np.zeros(size, "u1")
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
        """
    )


def test_memory_is_allocated_without_memory_pools(run: Script) -> None:
    done = run(
        """
        x, y = some(100_000), np.zeros(100_000, "u1")
        kernels.move(x, y, **one)
        assert np.array_equal(x, y)
        kernels.move(x, y, **one, wait=False)
        """,
        pools=0,
    )
    assert sum(call.startswith("cuMemAlloc ") for call in done.calls) == 4


# Arrays that share memory, or have gaps


def test_arrays_that_share_memory_share_it_on_the_gpu(run: Script) -> None:
    done = run(
        """
        x = np.arange(20, dtype="f4")
        kernels.copy(x[:10], x[5:15], **one)
        print(x.astype(int).tolist())
        kernels.copy(x[:10], x[10:], **one)
        print(x.astype(int).tolist())
        """
    )
    assert done.output == [
        str([*range(5), *range(10), *range(15, 20)]),
        str([*range(5), *range(5), *range(5), *range(5)]),
    ]
    assert [c.split()[1] for c in done.calls if "cuMemAlloc" in c] == ["60", "40", "40"]


def test_arrays_with_gaps_are_read_in_their_order(run: Script) -> None:
    done = run(
        """
        x, y = np.arange(12, dtype="f4").reshape(3, 4), np.zeros(3, "f4")
        kernels.copy(x[:, 1], y, **one)
        print(y.tolist())
        kernels.copy(x[::-2, 3], y[:2], **one)
        print(y.tolist())
        z = np.zeros((4, 3), "f4")
        kernels.copy(x.T, z, **one)
        print((x.T == z).all())
        x.flags.writeable = False
        kernels.copy(x, z, **one)
        print(z.ravel().tolist() == list(range(12)))
        kernels.copy(np.array(5, "f4"), y[:1], **one)
        print(y[0])
        """
    )
    assert done.output == ["[1.0, 5.0, 9.0]", "[11.0, 3.0, 9.0]", "True", "True", "5.0"]


REFUSED = {
    "increment(f8)": "argument 'x': expected float32 (float), found float64",
    "increment(f4.astype('>f4'))": "argument 'x': expected this machine's byte order, found >f4",
    "move(np.array([{}]), f4)": "argument 'x': expected numbers, found an array of Python objects",
    "increment(fixed)": "argument 'x': expected writable memory (float*), found a read-only array",
    "increment(f4[::2])": "argument 'x': expected a contiguous array in C order to write to (float*), found",
    "increment(out(f4.reshape(2, 5).T))": "argument 'x': expected a contiguous array in C order to write to",
    "look(out(f4))": "argument 'x': expected an array to read (const float*), found cuda_ext.out",
    "grow(f4, f4)": "argument 'n': expected int, found numpy.ndarray in host memory",
    "grow(f4, out(f4))": "argument 'n': expected int, found cuda_ext.runtime.arrays.host_arrays.Out",
    "copy(f4[::2], f4)": "argument 'x': expected a contiguous array in C order, since a kernel writes to",
    "copy(f4[4::-1], f4[:3])": "argument 'x': expected a contiguous array in C order, since a kernel writes",
    "look(f4, stream=9)": "stream: is being captured into a graph, which takes no host arrays",
    "look(0, stream=9, wait=False)": "stream: is being captured into a graph",
    "pick(np.ones(3, 'i4'))": "argument 'x': expected one of float*, double*, found ndarray of int32",
}


def test_arrays_that_cannot_be_copied_are_refused(run: Script) -> None:
    calls = "".join(
        f"        caught(lambda: kernels.{call.replace('(', '(', 1)[:-1]}, **one))\n" for call in REFUSED
    )
    done = run(
        f"""
        from cuda_ext import out
        f4, f8, fixed = np.ones(10, "f4"), np.ones(10, "f8"), np.ones(10, "f4")
        fixed.flags.writeable = False
{calls}
        for wrong in ([1.0], 5, None):
            caught(out, wrong)
        """,
        capturing=9,
    )
    assert done.launches == []
    assert "allocated" not in moves(done)
    for line, message in zip(done.output, REFUSED.values(), strict=False):
        assert line.startswith(f"ArgumentError: {message}")
        assert "in a launch of" in line or "expected one of" in line
    assert done.output[len(REFUSED) :] == [
        f"ArgumentError: out: expected a numpy array, found {found}" for found in ("list", "int", "NoneType")
    ]


def test_the_default_stream_may_be_captured_with_others(run: Script) -> None:
    done = run("caught(kernels.look, np.zeros(3, 'f4'), **one)", fail="cuStreamIsCapturing=906")
    assert done.output[0].startswith("ArgumentError: stream: is being captured into a graph")


def test_other_host_arrays_are_refused(run: Script) -> None:
    done = run(
        """
        class Tensor:
            is_cuda, device = False, "cpu"
            def data_ptr(self): return 16
        caught(kernels.look, Tensor(), **one)
        caught(kernels.look, memoryview(b"1234"), **one)
        """
    )
    assert done.output[0].startswith(
        "ArgumentError: argument 'x': expected device memory, found a tensor on cpu"
    )
    assert done.output[1].startswith("ArgumentError: argument 'x': expected an array in device memory")


def test_memory_of_structures_is_bytes(run: Script) -> None:
    done = run(
        """
        points = np.zeros(3, [("x", "f4"), ("n", "i2")])
        kernels.grow(points, 3, **one)
        print(points.tobytes() == b"\\1" * 18)
        """
    )
    assert done.output == ["True"]


def test_the_kernel_is_chosen_by_the_arrays(run: Script) -> None:
    done = run(
        """
        kernels.pick(np.zeros(3, "f8"), **one)
        kernels.pick(cuda_ext.out(np.zeros(3, "f4")), **one)
        kernels.pick(cuda_ext.out(np.zeros(3, "f8")), **one)
        """
    )
    assert [launch.split()[1] for launch in done.launches] == ["pickd", "pickf", "pickd"]


# Failures

CALLS = [
    *("cuStreamIsCapturing=1", "cuMemPoolCreate=1", "cuMemPoolSetAttribute=1", "cuStreamCreate=1"),
    *("cuMemAllocFromPoolAsync=2", "cuMemAllocFromPoolAsync=2@2", "cuMemAllocFromPoolAsync=2@3"),
    *("cuMemHostAlloc=2", "cuMemHostAlloc=2@3", "cuEventCreate=1", "cuEventCreate=1@2"),
    *("cuMemcpyHtoDAsync=1", "cuMemcpyHtoDAsync=1@2", "cuMemcpyHtoDAsync=1@4"),
    *("cuEventRecord=1", "cuEventRecord=1@3", "cuEventSynchronize=1", "cuEventSynchronize=1@4"),
    *("cuLaunchKernel=1", "cuStreamSynchronize=1", "cuMemcpyDtoHAsync=1"),
]


@pytest.mark.parametrize("failing", CALLS)
def test_a_failure_frees_all_memory(run: Script, failing: str) -> None:
    """No device memory, no context, unchanged arrays, and all buffers available."""
    done = run(
        """
        size = 20_000_000
        x, y, z = some(size), np.zeros(size, "u1"), np.zeros(10, "i4")
        caught(kernels.several, x, y, z, **one)
        print(y.any(), int(driver.cuCtxGetCurrent()[1]))
        del os.environ["FAKE_CUDA_FAIL"]
        for _ in range(2):
            kernels.several(x, y, z, **one)
            print(np.array_equal(x, y))
        """,
        fail=failing,
    )
    function, _, code = failing.partition("=")
    assert done.output[0].startswith(f"LaunchError: several: {function} failed: ")
    assert f"({code[0]})" in done.output[0]
    assert done.output[1:] == ["False 0", "True", "True"]


def test_a_failure_when_copying_back_frees_all_memory(run: Script) -> None:
    done = run(
        """
        x, y = some(20_000_000), np.zeros(20_000_000, "u1")
        caught(kernels.move, x, y, **one)
        del os.environ["FAKE_CUDA_FAIL"]
        kernels.move(x, y, **one)
        print(np.array_equal(x, y))
        """,
        fail="cuMemcpyDtoHAsync=1@4",
    )
    assert done.output[0].startswith("LaunchError: move: cuMemcpyDtoHAsync failed")
    assert done.output[1] == "True"


def test_a_buffer_is_not_reused_before_a_failed_transfer_has_ended(run: Script) -> None:
    done = run(
        """
        x, y = some(3_000_000), np.zeros(3_000_000, "u1")
        caught(kernels.move, x, cuda_ext.out(y), **one)
        """,
        fail="cuEventRecord=1@3",
    )
    backwards = done.calls[::-1]
    assert backwards.index("cuStreamSynchronize 500") < backwards.index(
        "cuMemcpyDtoHAsync 2097152 stream=500"
    )


def test_a_fault_of_the_kernel_is_reported_and_leaves_arrays_unchanged(run: Script) -> None:
    done = run(
        """
        x = np.zeros(10, "f4")
        caught(kernels.increment, x, **one)
        pending = kernels.increment(x, **one, wait=False)
        caught(pending.wait)
        caught(pending.wait)
        with cuda_ext.device_scope():
            kernels.increment(x, **one)
            del os.environ["FAKE_CUDA_FAIL"]
        print(x.sum() > 0)
        """,
        fail="cuMemcpyDtoHAsync=700,cuEventSynchronize=700",
    )
    first, *again, last = done.output
    assert "increment: cuMemcpyDtoHAsync failed: FAKE_ERROR_700 (700)" in first
    assert "the fault may be of earlier work on this GPU" in first
    assert all("increment: cuEventSynchronize failed" in line for line in again)
    assert len(again) == 2
    assert last == "True"


# Without waiting


def test_wait_copies_the_results_of_a_pending_launch(run: Script) -> None:
    done = run(
        """
        x, y = np.arange(3, dtype="f4"), np.zeros(3, "f4")
        pending = kernels.copy(x, y, **one, wait=False)
        print(y, pending.done, pending.done, y)
        pending.wait()
        print(y, pending.done)
        x[:], y[:] = 5, 6
        pending.wait()
        print(y)
        """
    )
    zeros, found = "[0. 0. 0.]", "[0. 1. 2.]"
    assert done.output == [f"{zeros} False True {zeros}", f"{found} True", "[6. 6. 6.]"]


def test_a_pending_launch_does_not_wait_for_later_ones(run: Script) -> None:
    done = run(
        """
        x, y = np.zeros(3, "u1"), np.zeros(3, "u1")
        first = kernels.move(np.ones(3, "u1"), x, **one, stream=7, wait=False)
        second = kernels.move(np.ones(3, "u1"), y, **one, stream=7, wait=False)
        first.wait()
        print(x, second.done)
        second.wait()
        print(y)
        """
    )
    assert done.output == ["[1 1 1] False", "[1 1 1]"]
    assert "cuStreamSynchronize 7" not in done.calls


def test_a_pending_launch_that_is_dropped_writes_nothing(run: Script) -> None:
    done = run(
        """
        x = np.zeros(100_000, "f4")
        kernels.increment(x, **one, wait=False)
        gc.collect()
        kernels.look(x, **one)
        print(x.any())
        """
    )
    assert done.output == ["False"]
    assert sum("cuEventDestroy" in call for call in done.calls) > 0


def test_a_pending_launch_keeps_the_arrays_that_it_writes(run: Script) -> None:
    done = run(
        """
        import weakref
        x = np.zeros(100_000, "f4")
        alive = weakref.ref(x)
        pending = kernels.increment(x, **one, wait=False)
        del x
        gc.collect()
        print(alive() is not None)
        pending.wait()
        print(alive() is None)
        """
    )
    assert done.output == ["True", "True"]


def test_any_launch_can_be_pending(run: Script) -> None:
    done = run(
        """
        with_context()
        there = int(driver.cuMemAlloc(4)[1])
        pending = kernels.increment(there, **one, wait=False)
        print(pending.done)
        pending.wait()
        print(pending.done)
        pending = kernels.look.bind(**one, wait=False)(there)
        pending.wait()
        kernels.look(there, **one)
        print(kernels.look(there, **one, wait=False).done)
        print(kernels.look(there, **one, wait=True))
        driver.cuStreamSynchronize(0)
        driver.cuMemFree(there)
        """
    )
    assert done.output == ["False", "True", "False", "None"]


def test_threads_may_wait_for_the_same_launch(run: Script) -> None:
    done = run(
        """
        x = np.zeros(3_000_000, "u1")
        pending = kernels.move(np.ones_like(x), x, **one, wait=False)
        found = []
        def wait():
            pending.wait()
            found.append(bool(x.all()))
        threads = [threading.Thread(target=wait) for _ in range(4)]
        for thread in threads: thread.start()
        for thread in threads: thread.join()
        print(found, pending.done)
        """
    )
    assert done.output == ["[True, True, True, True] True"]
    assert sum("cuEventDestroy" in call for call in done.calls) == 1


# Scopes


def test_in_a_scope_arrays_are_copied_once_each_way(run: Script) -> None:
    done = run(
        """
        x, y, z = np.ones(10, "f4"), np.zeros(10, "f4"), np.zeros(10, "f4")
        with cuda_ext.device_scope():
            kernels.copy(x, cuda_ext.out(y), **one)
            kernels.copy(y, z, **one)
            kernels.copy(x, y, **one)
            print(y.any(), z.any())
        print(y.all(), z.all())
        kernels.copy(x, y, **one)
        """
    )
    assert done.output == ["False False", "True True"]
    assert moves(done) == {"allocated": 3 + 2, "to the GPU": 2 + 2, "to the host": 2 + 1}


def test_arrays_in_a_scope_can_be_fetched(run: Script) -> None:
    done = run(
        """
        x, y = np.zeros(10, "u1"), np.zeros(10, "u1")
        with cuda_ext.device_scope() as scope:
            scope.fetch(x)
            kernels.move(np.ones(10, "u1"), x, **one)
            kernels.move(np.ones(10, "u1"), y, **one)
            scope.fetch(x[2:4])
            print(x, y)
            scope.fetch(x[::2])
            print(x, y)
            caught(scope.fetch, [1])
        print(y)
        """
    )
    ones = str([1] * 10).replace(",", "")
    zeros = ones.replace("1", "0")
    assert done.output == [
        f"[0 0 1 1 0 0 0 0 0 0] {zeros}",
        f"[1 1 1 1 1 1 1 1 1 0] {zeros}",
        "ArgumentError: fetch: expected a numpy array, found list",
        ones,
    ]


def test_a_scope_offers_only_fetch(run: Script) -> None:
    done = run(
        """
        with cuda_ext.device_scope() as scope:
            print([name for name in dir(scope) if not name.startswith("_")])
        """
    )
    assert done.output == ["['fetch']"]


def test_fetched_arrays_are_not_copied_again(run: Script) -> None:
    done = run(
        """
        x = np.zeros(10, "u1")
        with cuda_ext.device_scope() as scope:
            kernels.move(np.ones(10, "u1"), x, **one)
            scope.fetch(x)
            x[:] = 5
        print(x.sum())
        """
    )
    assert done.output == ["50"]


def test_views_of_arrays_in_a_scope_are_not_copied(run: Script) -> None:
    done = run(
        """
        x, y = np.arange(10, dtype="f4"), np.zeros(3, "f4")
        with cuda_ext.device_scope():
            kernels.copy(np.arange(10, 20, dtype="f4"), x, **one)
            kernels.copy(x[4:7], y, **one)
            caught(kernels.copy, x[::2], y, **one)
        print(x[0], y)
        with cuda_ext.device_scope():
            kernels.look(x[::2], **one)
            kernels.look(x[::2], **one)
            kernels.look(x[5:], **one)
            caught(kernels.look, x, **one)
        """
    )
    with_gaps, values, part_first = done.output
    assert with_gaps.startswith(
        "ArgumentError: argument 'x': expected a contiguous array in C order, since a"
    )
    assert values == "10.0 [14. 15. 16.]"
    assert part_first.startswith(
        "ArgumentError: argument 'x': a part of this array was an argument before it"
    )


def test_copies_of_strided_arrays_do_not_accumulate_in_a_scope(run: Script) -> None:
    done = run(
        """
        x = np.zeros(10, "f4")
        with cuda_ext.device_scope():
            for _ in range(3):
                kernels.look(x[::2], **one)
            print(sum(line.startswith("cuMemFreeAsync") for line in open(os.environ["FAKE_CUDA_LOG"])))
        """
    )
    assert done.output == ["3"]


def test_an_inner_scope_uses_arrays_of_the_outer(run: Script) -> None:
    done = run(
        """
        x, y, z = np.zeros(4, "u1"), np.zeros(4, "u1"), np.zeros(4, "u1")
        with cuda_ext.device_scope():
            kernels.move(np.full(4, 3, "u1"), x, **one)
            with cuda_ext.device_scope() as inner:
                kernels.move(x, y, **one)
                kernels.move(y, x, **one)
                inner.fetch(x)
                print(x, y)
            print(x, y)
            kernels.move(x, z, **one)
        print(z)
        """
    )
    assert done.output == ["[3 3 3 3] [0 0 0 0]", "[3 3 3 3] [3 3 3 3]", "[3 3 3 3]"]


def test_work_on_the_same_arrays_in_several_streams_is_ordered(run: Script) -> None:
    done = run(
        """
        x, y, z = np.full(4, 7, "u1"), np.zeros(4, "u1"), np.zeros(4, "u1")
        with cuda_ext.device_scope() as scope:
            kernels.move(x, y, **one, stream=7)
            kernels.move(y, z, **one, stream=8)
            scope.fetch(z)
            print(z)
            kernels.move(x, y, **one, stream=8)
        print(y)
        """
    )
    assert done.output == ["[7 7 7 7]", "[7 7 7 7]"]
    assert [call for call in done.calls if "WaitEvent" in call] == ["cuStreamWaitEvent stream=8"] * 2


def test_an_exception_ends_a_scope_like_any_exit(run: Script) -> None:
    done = run(
        """
        x = np.zeros(4, "u1")
        try:
            with cuda_ext.device_scope():
                kernels.move(np.ones(4, "u1"), x, **one)
                raise KeyError("mine")
        except KeyError as error:
            print(error, x)
        try:
            with cuda_ext.device_scope():
                kernels.move(np.zeros(4, "u1"), x, **one)
                os.environ["FAKE_CUDA_FAIL"] = "cuMemcpyDtoHAsync=700"
                raise KeyError("mine")
        except KeyError as error:
            print(error, x)
        """
    )
    assert done.output == ["'mine' [1 1 1 1]"] * 2


def test_a_scope_raises_if_copying_back_fails(run: Script) -> None:
    done = run(
        """
        x = np.zeros(4, "u1")
        def scope():
            with cuda_ext.device_scope():
                kernels.move(np.ones(4, "u1"), x, **one)
        caught(scope)
        print(x)
        """,
        fail="cuMemcpyDtoHAsync=1",
    )
    assert done.output[0].startswith("DriverCallError: cuMemcpyDtoHAsync failed")
    assert done.output[1] == "[0 0 0 0]"


def test_outputs_of_a_refused_launch_are_not_copied_back(run: Script) -> None:
    done = run(
        """
        x, y = np.ones(4, "f4"), np.zeros(4, "f4")
        with cuda_ext.device_scope():
            caught(kernels.copy, x, cuda_ext.out(y), **one)
            del os.environ["FAKE_CUDA_FAIL"]
            kernels.look(y, **one)
        print(y)
        """,
        fail="cuLaunchKernel=1",
    )
    assert done.output[1] == "[0. 0. 0. 0.]"
    assert moves(done) == {"allocated": 3, "to the GPU": 2}


def test_a_scope_belongs_to_its_thread_or_task(run: Script) -> None:
    done = run(
        """
        import asyncio, contextvars
        x, y = np.zeros(4, "u1"), np.zeros(4, "u1")
        ones = np.ones(4, "u1")
        with cuda_ext.device_scope():
            thread = threading.Thread(target=lambda: kernels.move(ones, x, **one))
            thread.start()
            thread.join()
            print(x)
            inside = contextvars.copy_context()
        inside.run(kernels.move, ones, y, **one)
        print(y)

        async def scoped(array):
            with cuda_ext.device_scope():
                await asyncio.sleep(0)
                kernels.move(ones, array, **one)
                await asyncio.sleep(0)
                return bool(array.any())

        async def both():
            return await asyncio.gather(scoped(x), scoped(y))

        x[:] = y[:] = 0
        print(asyncio.run(both()), x, y)
        """
    )
    assert done.output == ["[1 1 1 1]", "[1 1 1 1]", "[False, False] [1 1 1 1] [1 1 1 1]"]


def test_an_ended_scope_accepts_no_arrays(run: Script, messages: Messages) -> None:
    """Another thread may have ended it."""
    done = run(
        """
        from cuda_ext.runtime.arrays.device_scope import DeviceCopies
        copies = DeviceCopies()
        copies.release()
        caught(copies.place(None, 0, None, []).__enter__)
        """
    )
    messages(*done.output)


# Threads, GPUs, and the end


def test_threads_share_only_buffers(run: Script) -> None:
    done = run(
        """
        failures = []
        def work(seed):
            try:
                for size in (100, 70_000, 3_000_001, 9_000_000):
                    x, y = some(size, seed), np.zeros(size, "u1")
                    kernels.move(x, y, **one, stream=seed % 3 + 7)
                    assert np.array_equal(x, y), size
                    pending = kernels.move(some(size, seed + 99), y, **one, stream=seed % 3 + 7, wait=False)
                    pending.wait()
                    assert np.array_equal(some(size, seed + 99), y), size
            except BaseException as error:
                failures.append(repr(error))
        threads = [threading.Thread(target=work, args=(seed,)) for seed in range(8)]
        for thread in threads: thread.start()
        for thread in threads: thread.join()
        print(failures)
        """
    )
    assert done.output == ["[]"]


def test_arrays_are_copied_to_the_gpu_of_the_stream_or_of_other_arrays(
    run: Script, messages: Messages
) -> None:
    done = run(
        """
        class OnDevice:
            __cuda_array_interface__ = {"data": (16, False), "typestr": "<f4", "shape": (4,), "version": 3}
        x, y = np.ones(4, "f4"), np.zeros(4, "f4")
        kernels.copy(x, y, **one, stream=1009)
        print(y)
        kernels.copy(x, y, **one)
        kernels.look(OnDevice(), **one)
        with cuda_ext.device_scope():
            kernels.look(x, **one, stream=1009)
            kernels.copy(x, y, **one)
            caught(kernels.rest, x, OnDevice(), **one)
            kernels.look(np.ones(1, "f4"), **one)
        """,
        devices=2,
        memory="16+16@0",
    )
    messages(*done.output)
    devices = [launch.partition("device=")[2].split()[0] for launch in done.launches]
    assert devices == ["1", "0", "0", "1", "1", "0"]


def test_host_and_device_arrays_can_be_mixed(run: Script) -> None:
    """The stream is that of the device array's library."""
    done = run(
        """
        with_context()
        there = int(driver.cuMemAlloc(16)[1])
        class OnDevice:
            __cuda_array_interface__ = {
                "data": (there, False), "typestr": "<f4", "shape": (4,), "version": 3, "stream": 7
            }
        x, y = np.arange(4, dtype="f4"), np.zeros(4, "f4")
        for _ in range(2):
            kernels.copy(x, OnDevice(), **one)
            kernels.copy(OnDevice(), y, **one)
            kernels.copy(OnDevice(), OnDevice(), **one)
        print(y)
        driver.cuStreamSynchronize(7)
        driver.cuMemFree(there)
        """
    )
    assert done.output == ["[0. 1. 2. 3.]"]
    assert all("stream=7" in launch for launch in done.launches)


def test_launches_at_interpreter_shutdown_copy_arrays(run: Script) -> None:
    done = run(
        """
        import atexit
        def last():
            x, y = some(5_000_000), np.zeros(5_000_000, "u1")
            kernels.move(x, y, **one)
            print(np.array_equal(x, y))
        atexit.register(last)
        """
    )
    assert done.output == ["True"]


def test_debug_mode_copies_arrays(run: Script) -> None:
    done = run(
        """
        os.environ["CUDA_EXT_DEBUG"] = "1"
        x, y = np.ones(4, "f4"), np.zeros(4, "f4")
        kernels.copy(x, y, **one)
        print(y)
        """
    )
    assert done.output == ["[1. 1. 1. 1.]"]


def test_launches_without_host_arrays_import_no_copy_modules(with_driver: Script) -> None:
    done = with_driver(
        """
        from sample import kernels
        kernels.ns.fill(16, 1, grid=1, block=1)
        arrays = "cuda_ext.runtime.arrays"
        loaded = {"numpy", "concurrent.futures", f"{arrays}.staging", f"{arrays}.device_scope"}
        print(loaded & set(sys.modules))
        """
    )
    assert done.output == ["set()"]
