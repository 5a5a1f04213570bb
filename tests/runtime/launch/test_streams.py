"""The stream and the GPU of a launch: those of a stream, of an array, of ``like``, or of nothing."""

from __future__ import annotations

import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest

from cuda_ext.facts.kernels import Kernel, Parameter
from tests.fixtures.loader import Run, signature, write_module
from tests.fixtures.messages import Messages

WithDriver = Callable[..., Run]
pytestmark = pytest.mark.host_compiler


def _takes(name: str, *parameters: str) -> Kernel:
    return Kernel(name, name, 0, signature(*parameters))


KERNELS = (
    _takes("pointer", "pointer 8 float* x"),
    _takes("two", "pointer 8 float* x", "pointer 8 float* y"),
    _takes("structure", "struct 16 Params params", "integer 4 int n"),
    Kernel("opaque", "opaque", 0, (Parameter("data", "8 bytes", "opaque", 8, 0),)),
    _takes("small", "struct 4 Pair pair"),
    _takes("vector", "struct 16 float4 v", "struct 8 float2 w"),
    _takes("number", "unsigned 8 size_t n"),
)
PRELUDE = """
import contextlib, ctypes
import numpy
from cuda_ext.runtime.kernel import Kernel
from cuda_ext.runtime.launch.fast_launch import BoundLaunch
from tests.fixtures.device_arrays import Array, CupyArray, Exchanged, Tensor, import_cupy, import_torch
from streams import kernels as k

one = {"grid": 1, "block": 1}
floats = numpy.zeros(4, "f4")

@contextlib.contextmanager
def in_c():
    "Within it, no launch may be left to the careful launcher."
    kinds = (Kernel, BoundLaunch) if IN_C else ()
    careful = [kind.__launch_carefully__ for kind in kinds]
    for kind in kinds:
        kind.__launch_carefully__ = lambda *_, **__: print("carefully")
    yield
    for kind, method in zip(kinds, careful):
        kind.__launch_carefully__ = method

class Stream:
    def __init__(self, handle, **more):
        self.handle = handle
        vars(self).update(more)
    def __cuda_stream__(self):
        return 0, self.handle
"""


@pytest.fixture(params=["in C", "in Python"])
def streams(request: pytest.FixtureRequest, with_driver: WithDriver, tmp_path: Path) -> WithDriver:
    """Runs a script with the kernels above as ``k``, with launches in C and without them."""
    write_module(tmp_path, "streams.kernels", KERNELS)
    in_c = request.param == "in C"
    prelude = f"IN_C = {in_c}\n" + ("" if in_c else 'sys.modules["cuda_ext.runtime.launch._launch"] = None\n')

    def run(script: str, **settings: str | int) -> Run:
        return with_driver(prelude + PRELUDE + textwrap.dedent(script), imports=("numpy",), **settings)

    return run


def _places(run: Run) -> list[tuple[str, str]]:
    """The streams and devices of launches."""
    words = [dict(word.split("=") for word in line.split() if "=" in word) for line in run.launches]
    return [(each["stream"], each["device"]) for each in words]


def test_a_stream_object_brings_its_gpu(streams: WithDriver) -> None:
    run = streams(
        """
        import_torch({})
        torch = sys.modules["torch"]
        given = [torch.cuda.current_stream(1), torch.cuda.current_stream(0), Stream(0, device_id=1),
                 Stream(1009), Stream(0, device_id=-1), Stream(2, device_index=1), Stream(1)]
        for launch in (k.number, k.pointer, k.vector):
            value = (bytes(16), 1j) if launch is k.vector else (0x1000,)
            bound = [launch.bind(stream=stream, **one) for stream in given]
            for each in range(2):
                with in_c() if each else contextlib.nullcontext():
                    for stream, same in zip(given, bound):
                        launch(*value, stream=stream, **one)
                        same(*value)
        """,
        devices=2,
    )
    assert run.output == []
    each = [("0", "1"), ("0", "0"), ("0", "1"), ("1009", "1"), ("0", "0"), ("2", "1"), ("1", "0")]
    assert _places(run) == [place for place in each for _ in range(2)] * 6


def test_like_gives_the_stream_and_the_gpu(streams: WithDriver) -> None:
    run = streams(
        """
        current = {0: 7, 1: 1007}
        import_torch(current)
        first, second = Tensor(floats), Tensor(floats, device=1)
        params = bytes([1]) * 16
        bound = k.structure.bind(like=second, **one)
        def launch():
            k.structure(params, 3, like=first, **one)
            k.structure(params, n=3, like=second, **one)
            k.pointer(0x1000, like=second, **one)
            k.pointer(second, like=second, **one)
            k.pointer(second, like=None, **one)
            bound(params, 3)
        launch()
        with in_c():
            launch()
            current.update({0: 0, 1: 1008})
            launch()
        # The library of `like` comes before that of an array, and any array in device memory will do.
        k.pointer(Tensor(floats), like=Array(floats, stream=9), **one)
        k.pointer(0x1000, like=Exchanged(floats, device=1), **one)
        """,
        devices=2,
    )
    assert run.output == []
    before = [("7", "0")] + [("1007", "1")] * 5
    after = [("0", "0")] + [("1008", "1")] * 5
    assert _places(run) == [*before, *before, *after, ("9", "0"), ("1007", "1")]


def test_contradictions_are_refused(streams: WithDriver) -> None:
    run = streams(
        """
        import_torch({})
        here, there = Tensor(floats), Tensor(floats, device=1)
        there_too = Stream(0, device_index=1)
        k.pointer(here, **one)
        k.pointer(there, **one)
        for _ in range(2):
            caught(k.pointer, here, stream=there_too, **one)
            caught(k.pointer.bind(stream=there_too, **one), here)
            caught(k.pointer, here, like=there, **one)
            caught(k.pointer.bind(like=there, **one), here)
            caught(k.pointer, here, like=here, stream=0, **one)
            caught(k.pointer.bind, like=here, stream=0, **one)
            for wrong in (floats, 0x1000, "x"):
                caught(k.pointer, 0x1000, like=wrong, **one)
                caught(k.pointer.bind, like=wrong, **one)
            caught(k.pointer, 0x1000, like=Tensor(floats, device=-1), **one)
        """,
        devices=2,
    )
    in_launch = "   in a launch of pointer(float* x)"
    stream = f"ArgumentError: stream: is on GPU 1, and 'x' is on GPU 0; a kernel runs on one{in_launch}"
    both = "ArgumentError: like: says the stream and the GPU; give either that or stream"
    wrong = "ArgumentError: like: expected an array in device memory, found {}"
    kinds = [wrong.format(kind) for kind in ("ndarray", "int", "str")]
    host = 'ArgumentError: like: expected device memory, found a tensor on cpu; move it with .to("cuda")'
    expected = [stream, stream, *[stream.replace("stream", "like", 1)] * 2, both + in_launch, both]
    expected += [line for kind in kinds for line in (kind + in_launch, kind)]
    assert run.output == [*expected, host + in_launch] * 2
    assert len(run.launches) == 2


HIDING = {
    "k.pointer(0x1000, **W)": "x",
    "k.two(None, 0x1000, **W)": "y",
    "k.two(x=0x1000, y=None, **W)": "x",
    "k.structure(bytes(15) + bytes([1]), 3, **W)": "params",
    "k.structure((ctypes.c_longlong * 2)(1, 2), 3, **W)": "params",
    "k.opaque(numpy.uint64(0x1000), **W)": "data",
    "k.opaque(0x1000, **W)": "data",
}
PLAIN = (
    "k.number(0x1000, **W)",
    "k.small(bytes([1]) * 4, **W)",
    "k.vector(bytes([1]) * 16, 2 + 1j, **W)",
    "k.pointer(None, **W)",
    "k.pointer(0, **W)",
    "k.two(0, None, **W)",
    "k.two(0x1000, Tensor(floats), **W)",
    "k.two(0x1000, floats, **W)",
)


@pytest.mark.parametrize("library", ["PyTorch", "CuPy"])
def test_addresses_without_a_stream_are_refused_if_a_library_has_one(
    streams: WithDriver, library: str
) -> None:
    load = "import_torch({})" if library == "PyTorch" else "import_cupy()"
    bound = [each.replace("(", ".bind(**W)(", 1).replace(", **W", "") for each in HIDING]
    lines = [f"        caught(lambda: {each})\n" for each in (*HIDING, *bound)]
    lines += [f"        {each.replace('**W', '**W, stream=0')}\n" for each in HIDING]
    lines += [f"        {each.replace('**W', '**W, like=Array(floats)')}\n" for each in HIDING]
    lines += [f"        {each.replace('**W', '**W, stream=0')}\n" for each in bound]
    lines += [f"        {each}\n" for each in PLAIN]
    run = streams(
        f"""
        W = one
        k.pointer(0x1000, **one)  # nothing is loaded yet
        k.structure(bytes([1]) * 16, 3, **one)
        {load}
        for _ in range(2):
{"".join("    " + line for line in lines)}
        """
    )
    spelled = {"PyTorch": "torch.cuda.current_stream()", "CuPy": "cupy.cuda.get_current_stream()"}[library]
    refusal = (
        "ArgumentError: argument '{}': may hold an address of memory that {} uses in its current stream, and "
        "no array says in which stream to launch; give stream={}, or one of the arrays as like="
    )
    refused = [refusal.format(name, library, spelled) for name in HIDING.values()]
    assert [line.partition("   in a launch")[0] for line in run.output] == refused * 4
    assert len(run.launches) == 2 + 2 * (3 * len(HIDING) + len(PLAIN))
    assert {device for _, device in _places(run)} == {"0"}


@pytest.mark.parametrize("load", ["import_torch()", "import_torch(); del sys.modules['torch'].cuda", ""])
def test_without_a_library_that_has_a_stream_addresses_are_launched(streams: WithDriver, load: str) -> None:
    launches = "".join(f"            {each}\n" for each in (*HIDING, *PLAIN))
    run = streams(
        f"""
        W = one
        {load}
        for _ in range(2):
{launches}
        """
    )
    assert run.output == []
    assert set(_places(run)) == {("0", "0")}
    assert len(run.launches) == 2 * (len(HIDING) + len(PLAIN))


def test_a_copy_of_a_variable_takes_the_gpu_of_its_stream(streams: WithDriver, messages: Messages) -> None:
    run = streams(
        """
        from sample import kernels
        weights = kernels.weights
        there = Stream(0, device_index=1)
        weights.copy_from(b"\\1" * 36, stream=there)
        weights.copy_from(b"\\2" * 36, stream=0)
        print(weights.tobytes(device=0)[0], weights.tobytes(device=1)[0])
        caught(weights.copy_from, bytes(36), stream=there, device=0)
        caught(weights.copy_from, Tensor(numpy.zeros(9, "f4")), stream=there)
        """,
        devices=2,
    )
    values, *refused = run.output
    assert values == "2 1"
    messages(refused)
