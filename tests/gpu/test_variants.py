"""Variants on a real GPU: the candidate that was chosen is the one that computed."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import cuda_ext
from cuda_ext.builder.config.resolve_variants import resolve_variants
from cuda_ext.facts.candidates import Candidate, Variants
from cuda_ext.formats.variant_conditions import parse
from cuda_ext.runtime.driver.driver import Device
from cuda_ext.runtime.driver.functions import OUT
from cuda_ext.runtime.module import library_of, module_from

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not cuda_ext.gpu_available(), reason="there is no GPU that can be used"),
]

SOURCE = """
extern "C" __global__ void special(int n, int* which) { *which = 1; }
extern "C" __global__ void large(int n, int* which) { *which = 2; }
extern "C" __global__ void even(int n, int* which) { *which = 3; }
extern "C" __global__ void simple(int n, int* which) { *which = 4; }
"""


@pytest.fixture
def launched(device: Device) -> Iterator[Callable[..., int]]:
    """Call with the address of an int on the GPU; return the number that it writes."""
    call = device.driver.call
    (address,) = call("cuMemAlloc", OUT, 4)

    def number(launch: Callable[[int], object]) -> int:
        found = ctypes.c_int(0)
        call("cuMemcpyHtoD", address, ctypes.addressof(found), 4)
        launch(address)
        call("cuCtxSynchronize")
        call("cuMemcpyDtoH", ctypes.addressof(found), address, 4)
        return found.value

    yield number
    call("cuMemFree", address)


def kernels(*architectures: str, special: str) -> Any:
    """Return the kernels above as variants; `special` is the condition of the first."""
    library = library_of(cuda_ext.compile(SOURCE, architectures=architectures))  # type: ignore[arg-type]
    conditions = {"special": special, "large": "sm >= 50 and n >= 1000", "even": "n % 2 == 0", "simple": None}
    variants = Variants(
        "which", tuple(Candidate(kernel, parse(when) if when else ()) for kernel, when in conditions.items())
    )
    return module_from(resolve_variants(library.manifest, [variants], "variants"), library.read)


CHOSEN = {1: 4, 2: 3, 999: 4, 1000: 2, 1001: 2}


def test_arguments_choose(launched: Callable[..., int]) -> None:
    which = kernels("native", special="n == 7 and sm < 50").which
    bound = which.bind(grid=1, block=1, stream=0)
    for _ in range(2):
        for n, number in {**CHOSEN, 7: 4}.items():
            assert launched(lambda x, n=n: which(n, x, grid=1, block=1, stream=0)) == number
            assert launched(lambda x, n=n: which(n=np.int32(n), which=x, threads=1, stream=0)) == number
            assert launched(lambda x, n=n: bound(n, x)) == number


def test_the_gpu_chooses(device: Device, launched: Callable[..., int]) -> None:
    for special, number in ((f"sm_{device.capability}", 1), (f"sm != {device.capability}", 4)):
        which = kernels("native", special=special).which
        for _ in range(2):
            assert launched(lambda x, which=which: which(1, x, grid=1, block=1, stream=0)) == number


def test_the_image_chooses(
    device: Device, launched: Callable[..., int], capsys: pytest.CaptureFixture[str]
) -> None:
    if device.capability < 90:
        pytest.skip("targets such as sm_90a came with compute capability 9.0")
    target = f"sm_{device.capability}a"
    for built, number in ((target, 1), (f"sm_{device.capability}", 4)):
        which = kernels(built, special=target).which
        assert launched(lambda x, which=which: which(1, x, grid=1, block=1, stream=0)) == number
        which.explain(1, None)
        first, line, *_ = capsys.readouterr().out.splitlines()
        assert first == f"which(int n, int* which) on GPU 0, {device}:"
        assert line.split() == [
            *("special", "if", target),
            *("taken:" if number == 1 else "not taken:").split(),
            *("this", "GPU", "takes", built),
        ]


def test_numpy_arrays_are_copied_as_for_a_kernel() -> None:
    which = kernels("native", special="n < 0").which
    found = np.zeros(1, np.int32)
    for n, number in CHOSEN.items():
        which(n, found, grid=1, block=1)
        assert found[0] == number


TEMPLATES = """
struct Params { int width; const float* bias; };
template <int kWidth, bool kHasBias> __global__ void fwd(Params p, int* which) {
  *which = 10 * kWidth + (kHasBias && p.bias == nullptr);
}
"""


def test_template_parameters_and_members_choose(launched: Callable[..., int]) -> None:
    built = [f"fwd<{width}, {bias}>" for width in (2, 4) for bias in ("true", "false")]
    library = library_of(cuda_ext.compile(TEMPLATES, architectures=["native"], instantiate=built))
    candidates = (
        Candidate("fwd<4, true>", parse("p.width >= 4 and p.bias == null")),
        Candidate("fwd<2, false>", parse("p.bias != null")),
        Candidate("fwd<4, false>"),
    )
    manifest = resolve_variants(library.manifest, [Variants("best", candidates)], "variants")
    module: Any = module_from(manifest, library.read)
    one: Any = {"grid": 1, "block": 1, "stream": 0}
    for width, bias in ((2, True), (4, False), (4, True)) * 2:
        launch = module.fwd.choose(kWidth=width, kHasBias=bias)
        assert launched(lambda at, launch=launch: launch({"width": 1}, at, **one)) == 10 * width + bias
    for _ in range(2):
        assert launched(lambda at: module.fwd({}, at, kWidth=8, kHasBias=True, **one)) == 81  # on demand
        for params, expected in (({"width": 4}, 41), ({"width": 3}, 40), ({"bias": 4096}, 20)):
            assert launched(lambda at, params=params: module.best(params, at, **one)) == expected
