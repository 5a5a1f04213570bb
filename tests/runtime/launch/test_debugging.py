"""``CUDA_EXT_DEBUG=1``: arrays are checked before a launch, and faults are reported right after it."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cuda_ext.errors import LaunchError
from cuda_ext.facts.kernels import Kernel
from cuda_ext.runtime.arrays.dtypes import alignment
from tests.fixtures.device_arrays import Array, Buffer, Exchanged, Lent, Tensor
from tests.fixtures.loader import Run, signature, write_module
from tests.fixtures.under_driver import calls, failure, launches

pytestmark = [pytest.mark.host_compiler, pytest.mark.usefixtures("debugged")]
under_driver = pytest.mark.under_driver(kernels="pointers.kernels")
with_messages = pytest.mark.usefixtures("messages")
kernels: Any = None  # in the process of a test, the module

POINTERS = {
    "floats": "float*",
    "quads": "float4*",
    "triples": "const float3*",
    "halves": "__half2*",
    "anything": "void*",
    "call": "void(int)*",
}
KERNELS = tuple(Kernel(name, name, 0, signature(f"pointer 8 {type_} x")) for name, type_ in POINTERS.items())


@pytest.mark.parametrize(
    ("element", "expected"),
    [
        ("char", 1),
        ("char3", 1),
        ("uchar4", 4),
        ("short3", 2),
        ("__half", 2),
        ("__half2", 4),
        ("__nv_bfloat162", 4),
        ("int[4]", 4),
        ("float3", 4),
        ("float2", 8),
        ("float4", 16),
        ("ulonglong2", 16),
        ("longlong3", 8),
        ("double", 8),
        ("double4", 16),
        ("double4_16a", 16),
        ("double4_32a", 32),
        ("complex<float>", 8),
        ("complex<double>", 16),
        ("cuda::std::complex<float>", 8),
        ("std::complex<float>", 4),
        ("std::complex<double>", 8),
        ("float*", 8),
        ("bool", 1),
        ("void", 1),
        ("Particle", 1),
    ],
)
def test_elements_are_aligned_as_cuda_aligns_them(element: str, expected: int) -> None:
    assert alignment(element) == expected


@pytest.fixture
def debugged(with_driver: Callable[..., Run], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_module(tmp_path, "pointers.kernels", KERNELS)
    monkeypatch.setenv("CUDA_EXT_DEBUG", "1")


launch: Any = {"grid": (4, 2), "block": 32}


def at(address: int, count: int = 64, type_: str = "f4") -> Tensor:
    """Return a tensor whose memory is not read."""
    return Tensor(np.zeros(count, type_), address=address)


def sample() -> Any:
    from sample import kernels  # type: ignore[import-not-found]

    return kernels


@under_driver.with_args(memory="0x1000+0x1000@0")
def test_correct_arrays_are_launched() -> None:
    k = kernels
    for array in (at(0x1000), at(0x1F00), at(0x1FFC, 1), at(0x3000, 0), at(7, 0), 0x1000, 0x1FFC, 0, None):
        k.floats(array, **launch)
        k.floats.bind(**launch)(array)
    for array in (at(0x1004), 0x1004):
        k.triples(array, **launch)
    k.quads(at(0x1010), **launch)
    k.anything(at(0x1001, type_="u1"), **launch)
    k.anything(0x1001, **launch)
    k.call(0x77, **launch)
    for made in (Array, Buffer, Lent, Exchanged):
        numbers = np.zeros((4, 1, 8), "f4")
        os.environ["FAKE_CUDA_MEMORY"] = f"{numbers.ctypes.data}+128@0"
        k.floats(made(numbers), **launch)
        if made is not Buffer:
            k.floats(made(numbers.swapaxes(0, 1)), **launch)
    assert len(launches()) == 18 + 2 + 1 + 2 + 1 + 7


@under_driver
def test_strided_arrays_are_checked_from_their_lowest_to_their_highest_element() -> None:
    square = np.zeros((4, 4), "f4")  # of 64 bytes
    start = square.ctypes.data
    views = square[:, ::2], square.T[1:], square[::-1], square[::-1, 2::-2], square[3:, :0]
    beyond = (
        r"ArgumentError: argument 'x': expected an array within its allocation, found one of {} bytes at "
        r"0x\w+, which {} the 60 bytes at 0x\w+   in a launch of floats\(float\* x\)"
    )
    for made in (Array, Tensor, Lent, Exchanged):
        os.environ["FAKE_CUDA_MEMORY"] = f"{start}+64@0"
        for view in views:
            kernels.floats(made(view), **launch)
        os.environ["FAKE_CUDA_MEMORY"] = f"{start}+60@0"
        for view, size in zip(views, (None, 60, 64, None, None), strict=True):
            if size:  # it has the last of 16 elements
                wrong = beyond.format(size, "ends 4 bytes behind")
                assert re.fullmatch(wrong, failure(kernels.floats, made(view), **launch))
            else:
                kernels.floats(made(view), **launch)
    os.environ["FAKE_CUDA_MEMORY"] = f"{start + 4}+60@0"
    refused = failure(kernels.floats.bind(**launch), Tensor(square[::-1]))
    assert re.fullmatch(beyond.format(64, "begins 4 bytes before"), refused)
    kernels.floats.bind(**launch)(Tensor(square[::-1, 1:]))


@under_driver
@with_messages
def test_misaligned_arrays_are_reported() -> None:
    print(failure(kernels.floats, 0x1002, **launch))
    print(failure(kernels.quads, at(0x1008), **launch))
    print(failure(kernels.halves, at(0x1002, type_="f2"), **launch))
    print(failure(kernels.triples, at(0x1001), **launch))
    assert launches() == []


@under_driver.with_args(memory="0x1000+0x1000@0")
@with_messages
def test_unallocated_memory_is_reported() -> None:
    for array in (0x3000, at(0xFFC), at(0x1F04), 0x2000):
        print(failure(kernels.floats, array, **launch))
    print(failure(kernels.anything, at(0x1FFF, 2, "u1"), **launch))
    assert launches() == []


@under_driver.with_args(memory="0x1000+0x1000@0,0x2000+0x1000@1", devices=2)
@with_messages
def test_memory_of_another_gpu_is_reported() -> None:
    kernels.floats(0x1000, **launch)
    print(failure(kernels.floats, 0x2000, **launch))
    kernels.floats(0x2000, stream=1009, **launch)
    assert [line.split(" 00")[0].rpartition("device=")[2] for line in launches()] == ["0", "1"]


@under_driver.with_args(capturing=9)
def test_every_launch_is_synchronized_unless_it_is_captured() -> None:
    for _ in range(2):
        kernels.floats(0x1000, stream=5, **launch)
    kernels.floats.bind(stream=6, **launch)(0x1000)
    kernels.floats(0x1000, stream=9, **launch)
    order = [call.split()[0] for call in calls() if call.startswith(("cuLaunch", "cuStreamSynchronize"))]
    assert order == ["cuLaunchKernel", "cuStreamSynchronize"] * 3 + ["cuLaunchKernel"]


@under_driver
@pytest.mark.parametrize("off", ["", "0"])
def test_without_debug_mode_nothing_is_synchronized(off: str) -> None:
    os.environ["CUDA_EXT_DEBUG"] = off
    sample()["ov(float, int*)"](1, 0x1003, grid=1, block=1)
    assert len(launches()) == 1
    assert calls("cuStreamSynchronize") == []


@under_driver.with_args(fail="cuStreamSynchronize=700")
@with_messages
def test_a_fault_is_reported_with_the_whole_launch() -> None:
    x = Lent(np.zeros(3, "f4"), data=0x1000)
    with pytest.raises(LaunchError) as raised:
        sample().axpy["float"](3, 2.5, x, 0x2000, shared=16, stream=5, **launch)
    print(raised.value)


@under_driver
@with_messages
def test_numpy_arrays_are_launched_and_reported() -> None:
    axpy = sample().axpy["float"]
    x, y = np.ones((4, 4), "f4"), np.ones(4, "f4")
    for array in (x, x.T, x[::2]):  # what is copied has no gaps
        axpy(4, 2.5, array, y, **launch)
    os.environ["FAKE_CUDA_FAIL"] = "cuLaunchKernel=1"
    print(failure(axpy, 4, 2.5, x.T, y, **launch))
    assert len(launches()) == 4


@under_driver.with_args(fail="cuLaunchKernel=1")
@with_messages
def test_a_refused_launch_is_reported_with_its_arguments() -> None:
    print(failure(sample().ns.fill, None, value=7, **launch))
    print(failure(sample().plain, **launch))


@under_driver.with_args(fail="cuPointerGetAttributes=700")
@with_messages
def test_a_fault_of_earlier_work_can_appear_when_checking_arrays() -> None:
    print(failure(kernels.floats, at(0x1000), **launch))


FIRST = {
    "a launch": ("cuLaunchKernel", "axpy<float>: "),
    "a warm launch": ("cuLaunchKernel", "floats: "),
    "a bound launch": ("cuLaunchKernel", "floats: "),
    "a copy": ("cuMemcpyHtoDAsync", ""),
    "waiting": ("cuStreamSynchronize", ""),
}
FAILING = (
    "cuLaunchKernel cuLaunchKernelEx cuMemcpyHtoDAsync cuMemcpyDtoHAsync cuStreamSynchronize "
    "cuCtxSynchronize cuLibraryLoadData cuLibraryGetGlobal cuKernelGetFunction cuDeviceGetAttribute"
)


@under_driver
@pytest.mark.parametrize("first", FIRST)
def test_every_error_after_a_fault_names_it(first: str) -> None:
    os.environ["CUDA_EXT_DEBUG"] = ""
    one: Any = {"grid": 1, "block": 1}
    axpy, weights, floats = sample().axpy["float"], sample().weights, kernels.floats
    bound = floats.bind(**one)
    uses: dict[str, Callable[[], Any]] = {
        "a launch": lambda: axpy(3, 2.5, 0, 0, **one),
        "a warm launch": lambda: floats(0, **one),
        "a bound launch": lambda: bound(0),
        "a copy": lambda: weights.copy_from(bytes(36)),
        "waiting": weights.tobytes,
    }
    others = [
        lambda: kernels.quads(0, **one),
        lambda: sample().gemm(**one),
        lambda: weights.address,
        lambda: floats.occupancy(2048),
    ]
    for use in uses.values():
        use()
    function, kernel = FIRST[first]
    os.environ["FAKE_CUDA_FAIL"] = f"{function}=700"
    message = failure(uses[first])
    cause = "FAKE_ERROR_700 (700): fake description of 700"
    assert cause in message
    assert "any more" not in message
    assert ("; the fault may be of earlier work on this GPU" in message) == ("launch" in first)
    os.environ["FAKE_CUDA_FAIL"] = ",".join(f"{name}=700" for name in FAILING.split())
    for use in (*uses.values(), *others):
        later = failure(use)
        assert cause in later
        since = f"no work on the GPU succeeds in this process any more since {kernel}"
        assert later.count(since) == 1, later
        assert "; start another" in later
    wrong = failure(axpy, 3.5, 2.5, 0, 0, **one)
    assert wrong.startswith("ArgumentError: argument 'n': expected int, found 3.5")
