"""Every way to launch and to copy on one of several GPUs, where no context or that of another is current."""

from __future__ import annotations

import contextlib
import itertools
import os
import struct
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from cuda.bindings import driver

import cuda_ext
from cuda_ext.facts.candidates import Candidate, Variants
from cuda_ext.facts.kernels import Kernel, Parameter
from cuda_ext.facts.launches import FixedLaunch, HiddenParameter, TensorMap
from cuda_ext.facts.manifest import Unit
from cuda_ext.facts.sources import Source
from cuda_ext.facts.structures import Structure
from cuda_ext.facts.symbols import Symbol
from cuda_ext.formats.variant_conditions import parse
from cuda_ext.runtime.driver.driver import open_driver
from tests.fixtures.device_arrays import (
    Array,
    Buffer,
    CupyArray,
    Exchanged,
    Lent,
    Tensor,
    import_cupy,
    import_torch,
)
from tests.fixtures.loader import SAMPLE, Run, described, signature, single_image, write_package
from tests.fixtures.under_driver import calls, failure, fast, launches

pytestmark = [
    pytest.mark.host_compiler,
    pytest.mark.usefixtures("several"),
    pytest.mark.under_driver(kernels="several.kernels"),
]
in_c_and_in_python = pytest.mark.parametrize("in_c", [True, False])
two_and_eight = pytest.mark.parametrize(
    "count", [pytest.param(n, marks=pytest.mark.under_driver(devices=n)) for n in (2, 8)]
)
kernels: Any = None  # in the process of a test, the module
one: Any = {"grid": 1, "block": 1}

POINTER = signature("pointer 8 float* x", "integer 4 int n")
JOB = Structure(
    "Job",
    16,
    8,
    (Parameter("x", "float*", "pointer", 8, 0, "float"), Parameter("n", "long long", "integer", 8, 8)),
    units=(0,),
)
MAP = Parameter("x", "CUtensorMap", "struct", 128, 0, "float", alignment=64)
HIDDEN = HiddenParameter(1, 8, "scratch"), HiddenParameter(2, 8, "x.shape[0]")
FIXED = {
    "scratch": FixedLaunch((64,), shared=60_000, dependent=True, scratch=16),
    "clustered": FixedLaunch((64,), cluster=(2,), cooperative=True),
    "tiled": FixedLaunch((128,), tensor_maps={"x": TensorMap(7, 4, (8, 8))}),
}
KERNELS = (
    Kernel("pointer", "pointer", 0, POINTER),
    Kernel("other", "other", 0, POINTER),
    Kernel("t<float>", "t_f", 0, POINTER),
    Kernel("t<double>", "t_d", 0, signature("pointer 8 double* x", "integer 4 int n")),
    *(
        Kernel(
            f"sized<BLOCK={n}>", f"sized{n}", 0, POINTER, constants={"BLOCK": n}, order=("x", "BLOCK", "n")
        )
        for n in ("1", "2")
    ),
    Kernel("run", "run", 0, (Parameter("job", "Job", "struct", 16, 0, alignment=8),)),
    Kernel("scratch", "scratch", 0, POINTER[:1], HIDDEN),
    Kernel("clustered", "clustered", 0, POINTER[:1]),
    Kernel("tiled", "tiled", 0, (MAP,)),
    Kernel("pair", "pair", 0, signature("pointer 8 float* x", "pointer 8 float* y")),
    Kernel("copy", "copy", 0, signature("pointer 8 const float* x", "pointer 8 float* y")),
)
GEMM = Variants("gemm", (Candidate("pointer", parse("n >= 10")), Candidate("other")))
WEIGHTS = Symbol("weights", "weights", 0, "constant", "float[4]", 16)


@pytest.fixture
def several(with_driver: Callable[..., Run], tmp_path: Path) -> None:
    hidden = {"scratch": " 8 8", "copy": " copies 0 1"}
    text = "".join(f"{described(k).rstrip()}{hidden.get(k.lowered, '')}\n" for k in KERNELS)
    text += f"symbol weights {WEIGHTS.size}\n"
    image = single_image(text, "sm_90", "all.sm_90.cubin")
    module = SAMPLE._replace(
        module="several.kernels",
        units=(Unit((Source("device/all.cu"),), (image._replace(launches=FIXED),)),),
        kernels=KERNELS,
        symbols=(WEIGHTS,),
        variants=(GEMM,),
        structures=(JOB,),
    )
    write_package(tmp_path, module, {image.file: text.encode()})


class TensorDescriptor:
    """A descriptor like that of Triton, of a whole tensor."""

    def __init__(self, base: Tensor, block_shape: list[int]) -> None:
        self.base, self.shape, self.strides = base, [*base.shape], [*base.stride()]
        self.block_shape = block_shape


class On:
    """What tests use on the GPU `device`: arrays of several libraries, and streams."""

    def __init__(self, device: int) -> None:
        memory = np.zeros((32, 32), "f4")
        self.device, self.handle = device, 1000 * device + 9
        self.tensor, self.double = Tensor(memory, device), Tensor(np.zeros(4), device)
        self.cupy, self.plain = CupyArray(memory, device), Array(memory)
        self.lent, self.exchanged = Lent(memory, device=device), Exchanged(memory, device=device)
        self.buffer = Buffer(memory)
        self.buffer.device_id = device
        self.default = SimpleNamespace(cuda_stream=0, device_index=device)
        self.stream = SimpleNamespace(__cuda_stream__=lambda: (0, self.handle))
        self.address: int = memory.ctypes.data
        self.job = struct.pack("qq", self.address, 3)
        # The fake driver knows other memory as that of the host.
        known = os.environ.get("FAKE_CUDA_MEMORY")
        places = [f"{array.ctypes.data:#x}+{array.nbytes}@{device}" for array in (memory, self.double.array)]
        os.environ["FAKE_CUDA_MEMORY"] = ",".join([*filter(None, [known]), *places])
        self.bound = {
            "array": kernels.pointer.bind(**one),
            "like": kernels.pointer.bind(like=self.tensor, **one),
            "stream": kernels.run.bind(stream=self.default, **one),
            "handle": kernels.pointer.bind(stream=self.handle, **one),
            "threads": kernels.pointer.bind(threads=100),
            "cluster": kernels.pointer.bind(grid=4, block=1, cluster=2),
            "scratch": kernels.scratch.bind(grid=2),
        }


# Each launches once on the GPU of `at`. Those of the second kind are for the careful launcher.
IN_C = (
    "k.pointer(at.tensor, 3, **one)",
    "k.pointer(at.cupy, 3, **one)",
    "k.pointer(at.exchanged, 3, **one)",
    "k.pointer(x=at.tensor, n=3, **one)",
    "k.pointer(at.address, 3, like=at.tensor, **one)",
    "k.pointer(at.address, 3, stream=at.default, **one)",
    "k.pointer(at.address, 3, stream=at.stream, **one)",
    "k.pointer(at.address, 3, stream=at.handle, **one)",
    "k.pointer(at.tensor, 3, stream=0, **one)",
    "k.pointer(at.tensor, 3, stream=at.handle, **one)",
    "k.pointer(at.tensor, 3, threads=100)",
    "k.pointer(at.tensor, 3, grid=1, block=1, shared=50_000)",
    "k.pointer(at.tensor, 3, grid=(1, 2), block=(1, 2, 3))",
    "k.t(at.tensor, 3, **one)",
    "k.t(at.double, 3, **one)",
    "k.t['float'](at.tensor, 3, **one)",
    "k.sized(at.tensor, 3, BLOCK=2, **one)",
    "k.sized(at.tensor, 2, 3, **one)",
    "k.gemm(at.tensor, 10, **one)",
    "k.gemm(at.tensor, 1, **one)",
    "k.run(at.job, like=at.tensor, **one)",
    "k.run(at.job, stream=at.handle, **one)",
    "k.run(k.Job(x=at.tensor, n=3), **one)",
    "k.scratch(at.tensor, grid=2)",
    "k.scratch(at.tensor, grid=2, stream=at.handle)",
    "at.bound['array'](at.tensor, 3)",
    "at.bound['like'](at.address, 3)",
    "at.bound['stream'](at.job)",
    "at.bound['handle'](at.address, 3)",
    "at.bound['threads'](at.tensor, 3)",
    "at.bound['cluster'](at.tensor, 3)",
    "at.bound['scratch'](at.tensor)",
)
CAREFUL = (
    "k.pointer(at.plain, 3, **one)",
    "k.pointer(at.lent, 3, **one)",
    "k.pointer(at.buffer, 3, **one)",
    "k.pointer(at.address, 3, like=at.plain, **one)",
    "k.pointer(at.tensor, 3, grid=lambda given: given['n'], block=1)",
    "k.pointer(at.tensor, 3, grid=4, block=1, cluster=2)",
    "k.pointer(at.tensor, 3, grid=16, block=1, cluster=16)",
    "k.pointer(at.tensor, 3, cooperative=True, **one)",
    "k.pointer(at.tensor, 3, dependent=True, **one)",
    "k.pointer(at.tensor, 3, wait=False, **one)",
    "k.clustered(at.tensor, grid=2)",
    "k.tiled(at.tensor, grid=2)",
    "k.tiled(at.tensor, grid=2, stream=at.handle)",
    "k.tiled(TensorDescriptor(at.tensor, [8, 8]), grid=2)",
    "copied(at, stream=at.handle)",
    "copied(at, stream=at.default)",
    "copied(at, like=at.tensor)",
    "copied(at, stream=at.handle, wait=False)",
    "in_scope(at)",
    "debugged(at)",
)


def copied(at: On, **options: Any) -> None:
    """Launch with numpy arrays."""
    x, y = np.arange(4, dtype="f4"), np.zeros(4, "f4")
    pending = kernels.copy(x, y, **options, **one)
    if pending:
        while not pending.done:
            pass
        pending.wait()
    assert y.tolist() == x.tolist()


def in_scope(at: On) -> None:
    x, y = np.arange(4, dtype="f4"), np.zeros(4, "f4")
    with cuda_ext.device_scope() as scope:
        kernels.copy(x, y, stream=at.handle, **one)
        scope.fetch(y)
        assert y.tolist() == x.tolist()


def debugged(at: On) -> None:
    os.environ["CUDA_EXT_DEBUG"] = "1"
    kernels.pointer(at.tensor, 3, stream=at.handle, **one)
    del os.environ["CUDA_EXT_DEBUG"]


def current() -> int:
    return int(driver.cuCtxGetCurrent()[1])


def placed() -> list[int]:
    """Return the devices of all launches."""
    return [int(launch.partition("device=")[2].split()[0]) for launch in launches()]


@contextlib.contextmanager
def in_context_of(device: int | None) -> Iterator[None]:
    """Within it, the context of `device` is current, and nothing else may be when it ends."""
    with contextlib.nullcontext() if device is None else open_driver().device(device).current():
        before = current()
        assert bool(before) == (device is not None)
        yield
        assert current() == before


def check_contexts(count: int) -> None:
    """The context of each GPU was retained once, and each that became current was removed again."""
    retained = calls("cuDevicePrimaryCtxRetain")
    assert sorted(retained) == [f"cuDevicePrimaryCtxRetain {device}" for device in range(count)]
    assert len(calls("cuCtxPushCurrent")) == len(calls("cuCtxPopCurrent"))
    assert calls("cuCtxSetCurrent") == []


@two_and_eight
@in_c_and_in_python
def test_every_launch_runs_on_its_gpu(count: int, in_c: bool) -> None:
    import_torch({})
    import_cupy()
    places = [On(device) for device in range(count)]
    expected = []
    for at in (places[-1], *places):
        others = [None, at.device - 1 if at.device else count - 1]
        for other, (call, is_fast) in itertools.product(
            others,
            [*((call, False) for call in (*IN_C, *CAREFUL)), *((call, in_c) for call in IN_C)],
        ):
            with in_context_of(other), fast(is_fast):
                eval(call, {**globals(), "k": kernels, "at": at})
            expected.append((call, at.device))
    assert list(zip([call for call, _ in expected], placed(), strict=True)) == expected
    check_contexts(count)
    assert calls().count("cuLibraryLoadData") == 1


@two_and_eight
def test_a_variable_is_read_and_written_on_its_gpu(count: int) -> None:
    import_torch({})
    weights = kernels.weights
    ways: tuple[Callable[[Any, On], object], ...] = (
        lambda value, at: weights.copy_from(value.tobytes(), device=at.device),
        lambda value, at: weights.copy_from(value, stream=at.handle),
        lambda value, at: weights.copy_from(value, stream=at.default),
        lambda value, at: weights.copy_from(Tensor(value, at.device)),
        lambda value, at: weights.copy_from(Tensor(value, at.device), stream=at.handle),
    )
    places = [On(device) for device in range(count)]
    for number, write in enumerate(ways):
        values = [np.full(4, 10 * number + at.device, "f4") for at in places]
        for value, at in zip(values, places, strict=True):
            with in_context_of(None if number % 2 else count - 1 - at.device):
                write(value, at)
                driver.cuStreamSynchronize(at.handle)
        for value, at in zip(values, places, strict=True):
            with in_context_of(count - 1 - at.device if number % 2 else None):
                assert weights.tobytes(device=at.device) == value.tobytes()
                assert weights.numpy(device=at.device).tolist() == value.tolist()
                found = np.zeros((2, 4), "f4")
                weights.copy_to(found[0], stream=at.handle)
                weights.copy_to(Tensor(found[1], at.device))
                driver.cuStreamSynchronize(at.handle)
                assert found.tolist() == [value.tolist()] * 2
                assert weights.address_on(at.device) != weights.address_on((at.device + 1) % count)
    check_contexts(count)


@two_and_eight
def test_a_kernel_is_asked_about_each_gpu(count: int) -> None:
    kernel = kernels.pointer
    for device in range(count):
        with in_context_of(None if device % 2 else count - 1 - device):
            assert kernel.attributes(device=device).most_threads == 1024
            assert kernel.occupancy(256, device=device) == 1
            assert kernel.occupancy(1024, shared=50_000, device=device) == 1
    assert calls("cuKernelSetAttribute") == [
        f"cuKernelSetAttribute pointer 8 50000 {device}" for device in range(count)
    ]
    check_contexts(count)


@pytest.mark.usefixtures("messages")
@pytest.mark.under_driver(devices=2)
@in_c_and_in_python
def test_what_is_on_two_gpus_is_refused(in_c: bool) -> None:
    """After launches on both, too."""
    import_torch({})
    here, there = On(0), On(1)
    job = kernels.Job(x=there.tensor)
    host = np.zeros(4, "f4")
    # Before launches in C, in which the driver is the one to refuse such a stream.
    print(failure(kernels.pair, here.tensor, here.tensor, stream=there.handle, **one))
    print(failure(kernels.pair, here.tensor, here.tensor, stream=there.stream, **one))
    for at in (here, there):
        kernels.run(kernels.Job(x=at.tensor), **one)
        kernels.pair(at.tensor, at.tensor, **one)
    ways: tuple[Callable[[], object], ...] = (
        lambda: kernels.pair(here.tensor, there.tensor, **one),
        lambda: kernels.pair(here.lent, there.exchanged, **one),
        lambda: kernels.pair(here.plain, there.plain, **one),
        lambda: kernels.run(job, stream=here.default, **one),
        lambda: kernels.run(job, like=here.tensor, **one),
        lambda: here.bound["stream"](job),
        lambda: kernels.pair(host, there.tensor, stream=here.default, **one),
        lambda: kernels.scratch(there.tensor, grid=2, stream=here.default),
        lambda: kernels.tiled(there.tensor, grid=2, stream=here.default),
    )
    for way in ways:
        for other in (None, 0, 1):
            with in_context_of(other):
                refused = failure(way)
        print(refused)
    assert placed() == [0, 0, 1, 1]


@pytest.mark.under_driver(devices=1)
def test_a_descriptor_of_triton_has_the_blocks_of_the_tensor_map() -> None:
    x = On(0).tensor
    kernels.tiled(TensorDescriptor(x, [16, 8]), grid=2)  # in two boxes
    assert "was compiled for boxes of (8, 8), found blocks of (4, 8)" in failure(
        kernels.tiled, TensorDescriptor(x, [4, 8]), grid=2
    )
    assert len(launches()) == 1


@pytest.mark.under_driver(devices=8, loading=5)
@in_c_and_in_python
def test_threads_use_all_gpus_at_once(in_c: bool) -> None:
    import_torch({})
    places = [On(device) for device in range(8)]
    start = threading.Barrier(32)
    failures: list[BaseException] = []

    def work(number: int) -> None:
        try:
            start.wait()
            for turn in range(16):
                at = places[(number + turn) % 8]
                kernels.pointer(at.tensor, 3, **one)
                kernels.scratch(at.tensor, grid=2)
                if turn % 8 == 0:
                    kernels.weights.tobytes(device=at.device)
                    copied(at, stream=at.handle)
            assert current() == 0
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(32)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert sorted(placed()) == sorted([*range(8)] * (2 * 32 * 2 + 8))
    check_contexts(8)
    assert calls().count("cuLibraryLoadData") == 1
