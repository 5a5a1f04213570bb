"""``CUDA_EXT_DEBUG=1``: arrays are checked before a launch, and faults are reported right after it."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest

from cuda_ext.facts.kernels import Kernel
from cuda_ext.runtime.arrays.dtypes import alignment
from tests.fixtures.loader import AXPY, Run, signature, write_module
from tests.fixtures.messages import Messages

WithDriver = Callable[..., Run]
host_compiler = pytest.mark.host_compiler

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
def debugged(with_driver: WithDriver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> WithDriver:
    """Runs a script in debug mode; ``k`` are the kernels above, and ``axpy`` is the sample's."""
    write_module(tmp_path, "pointers.kernels", KERNELS)
    monkeypatch.setenv("CUDA_EXT_DEBUG", "1")
    prelude = """
import os
import numpy
from pointers import kernels as k
from sample import kernels as sample
from tests.fixtures.device_arrays import Array, Buffer, Exchanged, Lent, Tensor

axpy = sample.axpy["float"]
# Addresses that are those of the arrays that stand for device memory, and are not read.
at = lambda address, count=64, type="f4", **more: Tensor(numpy.zeros(count, type), address=address, **more)
launch = {"grid": (4, 2), "block": 32}
"""

    def run(script: str, **settings: str | int) -> Run:
        return with_driver(prelude + textwrap.dedent(script), **settings)

    return run


@host_compiler
def test_correct_arrays_are_launched(debugged: WithDriver) -> None:
    run = debugged(
        """
        right = [at(0x1000), at(0x1f00), at(0x1ffc, 1), at(0x3000, 0), at(7, 0)]
        for array in (*right, 0x1000, 0x1ffc, 0, None):
            k.floats(array, **launch)
            k.floats.bind(**launch)(array)
        for array in (at(0x1004), 0x1004):
            k.triples(array, **launch)
        k.quads(at(0x1010), **launch)
        k.anything(at(0x1001, type="u1"), **launch)
        k.anything(0x1001, **launch)
        k.call(0x77, **launch)
        for made in (Array, Buffer, Lent, Exchanged):
            numbers = numpy.zeros((4, 1, 8), "f4")
            os.environ["FAKE_CUDA_MEMORY"] = f"{numbers.ctypes.data}+128@0"
            k.floats(made(numbers), **launch)
            if made is not Buffer:
                k.floats(made(numbers.swapaxes(0, 1)), **launch)
        """,
        memory="0x1000+0x1000@0",
    )
    assert run.output == []
    assert len(run.launches) == 18 + 2 + 1 + 2 + 1 + 7


@host_compiler
def test_strided_arrays_are_checked_from_their_lowest_to_their_highest_element(debugged: WithDriver) -> None:
    run = debugged(
        """
        square = numpy.zeros((4, 4), "f4")  # of 64 bytes
        start = square.ctypes.data
        views = square[:, ::2], square.T[1:], square[::-1], square[::-1, 2::-2], square[3:, :0]
        for size in (64, 60):
            os.environ["FAKE_CUDA_MEMORY"] = f"{start}+{size}@0"
            for made in (Array, Tensor, Lent, Exchanged):
                for view in views:
                    caught(k.floats, made(view), **launch)
        os.environ["FAKE_CUDA_MEMORY"] = f"{start + 4}+60@0"
        caught(k.floats.bind(**launch), Tensor(square[::-1]))
        caught(k.floats.bind(**launch), Tensor(square[::-1, 1:]))
        """
    )
    right = ["nothing raised"]
    behind = (
        r"ArgumentError: argument 'x': expected an array within its allocation, found one of {} bytes at "
        r"0x\w+, which ends {} bytes behind the 60 bytes at 0x\w+   in a launch of floats\(float\* x\)"
    )
    # The last of 16 elements is in the second view and the third.
    wrong = [behind.format(size, 4) for size in (60, 64)]
    patterns = 4 * 5 * right + 4 * [*right, *wrong, *right, *right]
    before = behind.replace("ends {} bytes behind", "begins 4 bytes before").format(64)
    patterns += [before, *right]
    assert len(run.output) == len(patterns)
    for line, pattern in zip(run.output, patterns, strict=True):
        assert re.fullmatch(pattern, line), (line, pattern)


@host_compiler
def test_misaligned_arrays_are_reported(debugged: WithDriver) -> None:
    run = debugged(
        """
        caught(k.floats, 0x1002, **launch)
        caught(k.quads, at(0x1008), **launch)
        caught(k.halves, at(0x1002, type="f2"), **launch)
        caught(k.triples, at(0x1001), **launch)
        """
    )
    assert [line.partition("   in")[0] for line in run.output] == [
        f"ArgumentError: argument 'x': expected an address that is a multiple of {multiple}, as {element} is "
        f"aligned, found {found}"
        for multiple, element, found in (
            (4, "float", "0x1002"),
            (16, "float4", "0x1008"),
            (4, "__half2", "0x1002"),
            (4, "float3", "0x1001"),
        )
    ]
    assert run.launches == []


@host_compiler
def test_unallocated_memory_is_reported(debugged: WithDriver) -> None:
    run = debugged(
        """
        caught(k.floats, 0x3000, **launch)
        caught(k.floats, at(0xffc), **launch)
        caught(k.floats, at(0x1f04), **launch)
        caught(k.floats, 0x2000, **launch)
        caught(k.anything, at(0x1fff, 2, "u1"), **launch)
        """,
        memory="0x1000+0x1000@0",
    )
    none = "expected memory on GPU 0, found {}, which is in no allocation; perhaps it has been freed"
    beyond = (
        "expected an array within its allocation, found one of {} bytes at {}, which ends {} bytes behind "
        "the 4096 bytes at 0x1000"
    )
    assert [line.partition("   in")[0] for line in run.output] == [
        f"ArgumentError: argument 'x': {problem}"
        for problem in (
            none.format("0x3000"),
            none.format("0xffc"),
            beyond.format(256, "0x1f04", 4),
            none.format("0x2000"),
            beyond.format(2, "0x1fff", 1),
        )
    ]
    assert run.launches == []


@host_compiler
def test_memory_of_another_gpu_is_reported(debugged: WithDriver, messages: Messages) -> None:
    run = debugged(
        """
        k.floats(0x1000, **launch)
        caught(k.floats, 0x2000, **launch)
        k.floats(0x2000, stream=1009, **launch)
        """,
        memory="0x1000+0x1000@0,0x2000+0x1000@1",
        devices=2,
    )
    messages(*run.output)
    assert [line.split(" 00")[0].rpartition("device=")[2] for line in run.launches] == ["0", "1"]


@host_compiler
def test_every_launch_is_synchronized_unless_it_is_captured(debugged: WithDriver) -> None:
    run = debugged(
        """
        for _ in range(2):
            k.floats(0x1000, stream=5, **launch)
        k.floats.bind(stream=6, **launch)(0x1000)
        k.floats(0x1000, stream=9, **launch)
        """,
        capturing=9,
    )
    order = [call.split()[0] for call in run.calls if call.startswith(("cuLaunch", "cuStreamSynchronize"))]
    assert order == ["cuLaunchKernel", "cuStreamSynchronize"] * 3 + ["cuLaunchKernel"]


@host_compiler
def test_without_debug_mode_nothing_is_synchronized(
    with_driver: WithDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    for off in ("", "0"):
        monkeypatch.setenv("CUDA_EXT_DEBUG", off)
        run = with_driver(
            'from sample import kernels; kernels["ov(float, int*)"](1, 0x1003, grid=1, block=1)'
        )
        assert len(run.launches) == 1
        assert not any(call.startswith("cuStreamSynchronize") for call in run.calls)


@host_compiler
def test_a_fault_is_reported_with_the_whole_launch(debugged: WithDriver) -> None:
    run = debugged(
        """
        try:
            axpy(3, 2.5, Lent(numpy.zeros(3, "f4"), data=0x1000), 0x2000, shared=16, stream=5, **launch)
        except errors.LaunchError as error:
            print(error)
        """,
        fail="cuStreamSynchronize=700",
    )
    assert run.output == [
        "axpy<float>: cuStreamSynchronize failed: FAKE_ERROR_700 (700): fake description of 700; "
        "launched with grid (4, 2, 1), block (32, 1, 1), 16 bytes of dynamic shared memory in stream 0x5",
        f"  in a launch of {AXPY.signature}",
        "    n = 3",
        "    a = 2.5",
        "    x = float32 array of shape (3,) at 0x1000 on GPU 0",
        "    y = 0x2000 on GPU 0",
    ]


@host_compiler
def test_numpy_arrays_are_launched_and_reported(debugged: WithDriver) -> None:
    run = debugged(
        """
        x, y = numpy.ones((4, 4), "f4"), numpy.ones(4, "f4")
        for array in (x, x.T, x[::2]):  # what is copied has no gaps
            axpy(4, 2.5, array, y, **launch)
        os.environ["FAKE_CUDA_FAIL"] = "cuLaunchKernel=1"
        caught(axpy, 4, 2.5, x.T, y, **launch)
        """
    )
    assert len(run.launches) == 4
    x, y = (
        f"{name} = float32 array of shape {shape} in host memory"
        for name, shape in (("x", (4, 4)), ("y", (4,)))
    )
    assert run.output[0].endswith(f"{x}     {y}")


@host_compiler
def test_a_refused_launch_is_reported_with_its_arguments(debugged: WithDriver) -> None:
    run = debugged(
        "caught(sample.ns.fill, None, value=7, **launch); caught(sample.plain, **launch)",
        fail="cuLaunchKernel=1",
    )
    message = "{}: cuLaunchKernel failed: FAKE_ERROR_1 (1): fake description of 1; launched with grid "
    message += "(4, 2, 1), block (32, 1, 1) in stream 0x0   in a launch of {}"
    fill, plain = run.output
    assert fill == "LaunchError: " + message.format(
        "ns::fill<int, 256>", "ns::fill<int, 256>(int* x, int value)     x = None     value = 7"
    )
    assert plain == "LaunchError: " + message.format("plain", "plain()")


@host_compiler
def test_a_fault_of_earlier_work_can_appear_when_checking_arrays(debugged: WithDriver) -> None:
    run = debugged("caught(k.floats, at(0x1000), **launch)", fail="cuPointerGetAttributes=700")
    (line,) = run.output
    assert line.startswith("LaunchError: floats: cuPointerGetAttributes failed: FAKE_ERROR_700 (700)")
    assert line.endswith("; the fault may be of earlier work on this GPU")


FIRST = {
    "a launch": ("axpy(3, 2.5, 0, 0, **launch)", "cuLaunchKernel", "axpy<float>: "),
    "a warm launch": ("k.floats(0, **launch)", "cuLaunchKernel", "floats: "),
    "a bound launch": ("bound(0)", "cuLaunchKernel", "floats: "),
    "a copy": ("sample.weights.copy_from(bytes(36))", "cuMemcpyHtoDAsync", ""),
    "waiting": ("sample.weights.tobytes()", "cuStreamSynchronize", ""),
}


@host_compiler
@pytest.mark.parametrize("first", FIRST)
def test_every_error_after_a_fault_names_it(with_driver: WithDriver, tmp_path: Path, first: str) -> None:
    write_module(tmp_path, "pointers.kernels", KERNELS)
    statement, function, kernel = FIRST[first]
    failing = (
        "cuLaunchKernel cuLaunchKernelEx cuMemcpyHtoDAsync cuMemcpyDtoHAsync cuStreamSynchronize "
        "cuCtxSynchronize cuLibraryLoadData cuLibraryGetGlobal cuKernelGetFunction cuDeviceGetAttribute"
    )
    run = with_driver(
        f"""
        import os
        from sample import kernels as sample
        from pointers import kernels as k
        launch = {{"grid": 1, "block": 1}}
        axpy, bound = sample.axpy["float"], k.floats.bind(**launch)
        axpy(3, 2.5, 0, 0, **launch)
        k.floats(0, **launch)
        bound(0)
        sample.weights.copy_from(bytes(36))
        os.environ["FAKE_CUDA_FAIL"] = "{function}=700"
        caught(lambda: {statement})
        os.environ["FAKE_CUDA_FAIL"] = ",".join(f"{{name}}=700" for name in "{failing}".split())
        caught(axpy, 3, 2.5, 0, 0, **launch)
        caught(k.floats, 0, **launch)
        caught(bound, 0)
        caught(k.quads, 0, **launch)
        caught(sample.gemm, **launch)
        caught(sample.weights.copy_from, bytes(36))
        caught(sample.weights.tobytes)
        caught(lambda: sample.weights.address)
        caught(k.floats.occupancy, 2048)
        caught(axpy, 3.5, 2.5, 0, 0, **launch)
        """
    )
    (message, *later), of_argument = run.output[:-1], run.output[-1]
    cause = "FAKE_ERROR_700 (700): fake description of 700"
    assert cause in message
    assert "any more" not in message
    assert ("; the fault may be of earlier work on this GPU" in message) == ("launch" in first)
    assert len(later) == 9
    for line in later:
        assert cause in line
        since = f"no work on the GPU succeeds in this process any more since {kernel}"
        assert line.count(since) == 1, line
        assert "; start another" in line
    assert of_argument.startswith("ArgumentError: argument 'n': expected int, found 3.5")
