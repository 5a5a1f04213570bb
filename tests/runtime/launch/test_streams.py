"""The stream and the GPU of a launch: those of a stream, of an array, of ``like``, or of nothing."""

from __future__ import annotations

import contextlib
import ctypes  # noqa: F401 - HIDING uses it
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cuda_ext.facts.kernels import Kernel, Parameter
from tests.fixtures.device_arrays import Array, Exchanged, Tensor, import_cupy, import_torch
from tests.fixtures.loader import Run, signature, write_module
from tests.fixtures.under_driver import failure, fast, launches

pytestmark = [
    pytest.mark.host_compiler,
    pytest.mark.usefixtures("streams"),
    pytest.mark.under_driver(kernels="streams.kernels"),
    pytest.mark.parametrize("in_c", [True, False]),
]
kernels: Any = None  # in the process of a test, the module
one: Any = {"grid": 1, "block": 1}
floats = np.zeros(4, "f4")


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


@pytest.fixture
def streams(with_driver: Callable[..., Run], tmp_path: Path) -> None:
    write_module(tmp_path, "streams.kernels", KERNELS)


class Stream:
    def __init__(self, handle: int, **more: object) -> None:
        self.handle = handle
        vars(self).update(more)

    def __cuda_stream__(self) -> tuple[int, int]:
        return 0, self.handle


def places() -> list[tuple[str, str]]:
    """Return the streams and devices of launches."""
    words = [dict(word.split("=") for word in line.split() if "=" in word) for line in launches()]
    return [(each["stream"], each["device"]) for each in words]


def run(*expressions: str, **names: object) -> None:
    for expression in expressions:
        eval(expression, {**globals(), "k": kernels, **names})


@pytest.mark.under_driver(devices=2)
def test_a_stream_object_brings_its_gpu(in_c: bool) -> None:
    import_torch({})
    current = sys.modules["torch"].cuda.current_stream
    made = Stream(0, device_id=1), Stream(1009), Stream(0, device_id=-1), Stream(2, device_index=1), Stream(1)
    given = [current(1), current(0), *made]
    for launch in (kernels.number, kernels.pointer, kernels.vector):
        value = (bytes(16), 1j) if launch is kernels.vector else (0x1000,)
        bound = [launch.bind(stream=stream, **one) for stream in given]
        for manner in (contextlib.nullcontext(), fast(in_c)):
            with manner:
                for stream, same in zip(given, bound, strict=True):
                    launch(*value, stream=stream, **one)
                    same(*value)
    each = [("0", "1"), ("0", "0"), ("0", "1"), ("1009", "1"), ("0", "0"), ("2", "1"), ("1", "0")]
    assert places() == [place for place in each for _ in range(2)] * 6


@pytest.mark.under_driver(devices=2)
def test_like_gives_the_stream_and_the_gpu(in_c: bool) -> None:
    current = {0: 7, 1: 1007}
    import_torch(current)
    first, second = Tensor(floats), Tensor(floats, device=1)
    params = bytes([1]) * 16
    bound = kernels.structure.bind(like=second, **one)

    def launch() -> None:
        kernels.structure(params, 3, like=first, **one)
        kernels.structure(params, n=3, like=second, **one)
        kernels.pointer(0x1000, like=second, **one)
        kernels.pointer(second, like=second, **one)
        kernels.pointer(second, like=None, **one)
        bound(params, 3)

    launch()
    with fast(in_c):
        launch()
        current.update({0: 0, 1: 1008})
        launch()
    # The library of `like` comes before that of an array, and any array in device memory will do.
    kernels.pointer(Tensor(floats), like=Array(floats, stream=9), **one)
    kernels.pointer(0x1000, like=Exchanged(floats, device=1), **one)
    before = [("7", "0")] + [("1007", "1")] * 5
    after = [("0", "0")] + [("1008", "1")] * 5
    assert places() == [*before, *before, *after, ("9", "0"), ("1007", "1")]


@pytest.mark.under_driver(devices=2)
@pytest.mark.usefixtures("messages")
def test_contradictions_are_refused(in_c: bool) -> None:
    import_torch({})
    here, there = Tensor(floats), Tensor(floats, device=1)
    there_too = Stream(0, device_index=1)
    kernel, bind = kernels.pointer, kernels.pointer.bind
    kernel(here, **one)
    kernel(there, **one)
    cold, warm = (
        [
            failure(kernel, here, stream=there_too, **one),
            failure(bind(stream=there_too, **one), here),
            failure(kernel, here, like=there, **one),
            failure(bind(like=there, **one), here),
            failure(kernel, here, like=here, stream=0, **one),
            failure(bind, like=here, stream=0, **one),
            *(failure(kernel, 0x1000, like=wrong, **one) for wrong in (floats, 0x1000, "x")),
            *(failure(bind, like=wrong, **one) for wrong in (floats, 0x1000, "x")),
            failure(kernel, 0x1000, like=Tensor(floats, device=-1), **one),
        ]
        for _ in range(2)
    )
    assert cold == warm
    print(*cold, sep="\n")
    assert len(launches()) == 2


HIDING = {
    "k.pointer(0x1000, **W)": "x",
    "k.two(None, 0x1000, **W)": "y",
    "k.two(x=0x1000, y=None, **W)": "x",
    "k.structure(bytes(15) + bytes([1]), 3, **W)": "params",
    "k.structure((ctypes.c_longlong * 2)(1, 2), 3, **W)": "params",
    "k.opaque(np.uint64(0x1000), **W)": "data",
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
def test_addresses_without_a_stream_are_refused_if_a_library_has_one(in_c: bool, library: str) -> None:
    kernels.pointer(0x1000, **one)  # nothing is loaded yet
    kernels.structure(bytes([1]) * 16, 3, **one)
    if library == "PyTorch":
        import_torch({})
        spelled = "torch.cuda.current_stream()"
    else:
        import_cupy()
        spelled = "cupy.cuda.get_current_stream()"
    bound = [each.replace("(", ".bind(**W)(", 1).replace(", **W", "") for each in HIDING]
    for _ in range(2):
        for hiding, name in zip((*HIDING, *bound), (*HIDING.values(), *HIDING.values()), strict=True):
            assert failure(run, hiding, W=one).partition("   in a launch")[0] == (
                f"ArgumentError: argument '{name}': may hold an address of memory that {library} uses in its "
                "current stream, and no array says in which stream to launch; "
                f"give stream={spelled}, or one of the arrays as like="
            )
        run(*HIDING, *bound, W={**one, "stream": 0})
        run(*HIDING, W={**one, "like": Array(floats)})
        run(*PLAIN, W=one)
    assert len(launches()) == 2 + 2 * (3 * len(HIDING) + len(PLAIN))
    assert {device for _, device in places()} == {"0"}


@pytest.mark.parametrize("load", ["import_torch()", "import_torch(); del sys.modules['torch'].cuda", ""])
def test_without_a_library_that_has_a_stream_addresses_are_launched(in_c: bool, load: str) -> None:
    exec(load)
    for _ in range(2):
        run(*HIDING, *PLAIN, W=one)
    assert set(places()) == {("0", "0")}
    assert len(launches()) == 2 * (len(HIDING) + len(PLAIN))


@pytest.mark.under_driver(kernels="sample.kernels", devices=2)
@pytest.mark.usefixtures("messages")
def test_a_copy_of_a_variable_takes_the_gpu_of_its_stream(in_c: bool) -> None:
    weights = kernels.weights
    there = Stream(0, device_index=1)
    weights.copy_from(b"\1" * 36, stream=there)
    weights.copy_from(b"\2" * 36, stream=0)
    assert (weights.tobytes(device=0)[0], weights.tobytes(device=1)[0]) == (2, 1)
    print(failure(weights.copy_from, bytes(36), stream=there, device=0))
    print(failure(weights.copy_from, Tensor(np.zeros(9, "f4")), stream=there))
