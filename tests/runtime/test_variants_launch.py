"""Variants under the fake driver: the candidate that a launch takes, and its explanation."""

from __future__ import annotations

import contextlib
import copy
import hashlib
import io
import os
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cuda_ext.facts.candidates import Candidate, Variants
from cuda_ext.facts.kernels import Kernel
from cuda_ext.facts.manifest import Image, Unit
from cuda_ext.formats.variant_conditions import parse
from tests.fixtures.loader import SAMPLE, Run, described, fatbin, signature, unit, write_package
from tests.fixtures.under_driver import calls, failure, in_child, launches

under_driver = pytest.mark.under_driver
with_messages = pytest.mark.usefixtures("messages")
pytestmark = [
    pytest.mark.host_compiler,
    pytest.mark.usefixtures("many"),
    under_driver(kernels="many.kernels"),
]
kernels: Any = None  # in the process of a test, the module
one: Any = {"grid": 1, "block": 1}

PARAMETERS = signature(
    "integer 4 int n", "float 4 float a", "unsigned 8 unsigned long m", "pointer 8 float* x"
)
# What each kernel is built for.
BUILT = {
    "hopper": ("sm_90a", "sm_100f"),
    "large": ("sm_80", "sm_90"),
    "even": ("sm_80", "sm_90", "sm_100"),
    "simple": ("sm_70", "sm_80", "sm_90", "sm_100", "sm_120"),
}
KERNELS = {name: Kernel(name, name, i, PARAMETERS) for i, name in enumerate(BUILT)}
GEMM = Variants(
    "gemm",
    (
        Candidate("hopper", parse("sm_90a and n >= 1_000_000")),
        Candidate("hopper", parse("sm_100f and n >= 1_000_000")),
        Candidate("large", parse("sm >= 80 and n >= 65536")),
        Candidate("even", parse("sm_80")),
        Candidate("even", parse("n % 4 == 0 and m <= 10")),
        Candidate("simple"),
    ),
)
VARIANTS = (
    GEMM,
    Variants("ns::special", (Candidate("hopper", parse("sm_90a")), Candidate("simple"))),
    Variants("only", (Candidate("hopper"),)),
)


def _unit(name: str, content: bytes) -> Unit:
    # sm_80 has no `large`, though there is an image.
    missing: dict[str, dict[str, str | None]] = {"sm_80": {"large": None}}
    made = unit(f"device/{name}.cu", *BUILT[name], names=missing)

    def whole(image: Image) -> Image:
        return image._replace(sha256=hashlib.sha256(content).hexdigest())

    return made._replace(images=tuple(map(whole, made.images)))


@pytest.fixture
def many(with_driver: Callable[..., Run], tmp_path: Path) -> None:
    files = {f"{name}.fatbin": fatbin(described(kernel)) for name, kernel in KERNELS.items()}
    module = SAMPLE._replace(
        module="many.kernels",
        units=tuple(_unit(name, files[f"{name}.fatbin"]) for name in KERNELS),
        kernels=tuple(KERNELS.values()),
        symbols=(),
        variants=VARIANTS,
    )
    write_package(tmp_path, module, files)


def launched() -> list[str]:
    """Return the kernels that were launched."""
    return [launch.split()[1] for launch in launches()]


# By n and m, what is launched on each GPU.
CHOSEN = {
    "90": {
        (1, 0): "simple",
        (4, 0): "even",
        (4, 10): "even",
        (4, 11): "simple",
        (65535, 0): "simple",
        (65536, 0): "large",
        (999_999, 0): "large",
        (1_000_000, 0): "hopper",
        (-4, 0): "even",
    },
    "80": {(1, 99): "even", (65537, 99): "even", (2_000_000, 0): "even"},
    "86": {(1, 0): "simple", (65537, 0): "simple", (4, 0): "even"},
    "70": {(1, 0): "simple", (4, 0): "simple", (2_000_000, 0): "simple"},
    "100": {(1, 0): "simple", (65537, 0): "simple", (1_000_001, 0): "hopper", (4, 0): "even"},
    "103": {(1, 0): "simple", (1_000_001, 0): "hopper", (4, 0): "even"},
    "120": {(4, 0): "simple", (2_000_000, 0): "simple"},
}


def ways() -> list[Callable[[int, int], None]]:
    gemm = kernels.gemm
    bound = gemm.bind(**one)
    return [
        lambda n, m: gemm(n, 2.0, m, None, **one),
        lambda n, m: gemm(x=None, m=m, a=2.0, n=n, **one),
        lambda n, m: gemm(n, 2.0, x=None, m=m, **one),
        lambda n, m: gemm(np.int32(n), 2.0, np.uint64(m), None, **one),
        lambda n, m: gemm(n, 2.0, m, None, threads=100),
        lambda n, m: gemm(n, 2.0, m, None, **one, cooperative=True),
        lambda n, m: bound(n, 2.0, m, None),
        lambda n, m: bound(n=n, a=2.0, m=m, x=None),
    ]


@pytest.mark.parametrize("capability", CHOSEN)
def test_the_first_variant_with_a_true_condition_is_launched(capability: str) -> None:
    os.environ["FAKE_CUDA_CAPABILITY"] = capability
    cases = CHOSEN[capability]
    for launch in ways():
        for _ in range(2):  # the first launch of a kernel takes another path than later ones
            for n, m in cases:
                launch(n, m)
    assert launched() == list(cases.values()) * 2 * len(ways())


def test_the_arguments_and_the_launch_are_those_of_the_call() -> None:
    for _ in range(2):
        kernels.gemm(65536, 2.5, 7, 0x10, grid=(4, 5), block=(32, 2, 3), stream=9, shared=100)
    launch = (
        "cuLaunchKernel large grid=4,5,1 block=32,2,3 shared=100 stream=9 device=0 "
        "00000100 00002040 0700000000000000 1000000000000000"
    )
    assert launches() == [launch, launch]


def test_variants_that_are_not_launched_are_not_loaded() -> None:
    for n in (1, 1, 3, 3):
        kernels.gemm(n, 2.0, 0, None, **one)
    assert calls("cuLibrary") == ["cuLibraryLoadData", "cuLibraryGetKernel simple"]


def test_naming_a_candidate_takes_control_back() -> None:
    kernels.gemm(65536, 2.0, 0, None, **one)
    kernels.simple(65536, 2.0, 0, None, **one)
    for kernel, _ in kernels.gemm.candidates:
        kernel(65536, 2.0, 0, None, **one)
    kernels.ns.special(1, 2.0, 0, None, **one)
    candidates = ["hopper", "hopper", "large", "even", "even", "simple"]
    assert launched() == ["large", "simple", *candidates, "hopper"]


@under_driver(capability=80)
def test_a_default_without_an_image_is_reported_like_any_kernel() -> None:
    refused = failure(kernels.only, 1, 2.0, 0, None, **one)
    assert refused.startswith("NoImageError: many.kernels: device/hopper.cu has no image for this GPU")


@with_messages
def test_wrong_arguments_never_reach_the_driver() -> None:
    gemm = kernels.gemm

    def refused() -> list[str]:
        found = [
            failure(gemm, 1 << 31, 2.0, 0, None, **one),
            failure(gemm, "1", 2.0, 0, None, **one),
            failure(gemm, 1, 2.0, -1, None, **one),
            failure(gemm, 1, 2.0, 0, **one),
            failure(gemm, 1, 2.0, 0, None, grid=0, block=1),
            failure(gemm.bind(**one), 1 << 31, 2.0, 0, None),
        ]
        gemm(1, 2.0, 0, None, **one)
        return found

    cold = refused()
    assert cold == refused()
    print(*cold, failure(gemm.attributes), sep="\n")
    assert launched() == ["simple", "simple"]


@pytest.mark.parametrize("function", ["cuLaunchKernel", "cuLaunchKernelEx"])
@pytest.mark.parametrize("before", [0, 1])
def test_a_refused_launch_is_reported(function: str, before: int) -> None:
    gemm = kernels.gemm
    bound = gemm.bind(grid=1, block=32, stream=9, cooperative=True)

    def launch() -> None:
        if function == "cuLaunchKernel":
            gemm(65536, 2.0, 0, None, grid=1, block=32, stream=9)
        else:
            bound(65536, 2.0, 0, None)

    for _ in range(before):
        launch()
    os.environ["FAKE_CUDA_FAIL"] = f"{function}=701"
    refused = failure(launch)
    assert refused.startswith(f"LaunchError: large: {function} failed: FAKE_ERROR_701")
    assert "launched with grid (1, 1, 1), block (32, 1, 1)" in refused


@pytest.mark.parametrize(
    ("capability", "arguments"),
    [
        ("90", {"n": 65536, "a": 2.0, "m": 0, "x": None, "grid": 1, "block": 1}),
        ("90", {"n": 6, "a": 2.0, "m": 0, "x": None}),
        ("103", {"n": 1_000_000, "a": 2.0, "m": 0, "x": None}),
        ("80", {"n": 1_000_000, "a": 2.0, "m": 0, "x": None}),
    ],
    ids=["large", "simple", "family", "older"],
)
@with_messages
def test_every_candidate_is_explained(capability: str, arguments: dict[str, Any]) -> None:
    os.environ["FAKE_CUDA_CAPABILITY"] = capability
    assert kernels.gemm.explain(**arguments) is None
    assert launches() == []


@with_messages
def test_arguments_without_an_explanation_are_refused() -> None:
    print(failure(kernels.gemm.explain, 1.5, 2.0, 0, None))
    print(failure(kernels.gemm.explain, 1, m=2))


def test_variants_are_pickled_by_name() -> None:
    gemm, special = kernels.gemm, kernels.ns.special
    for _ in range(2):
        assert pickle.loads(pickle.dumps(gemm)) is gemm is copy.deepcopy(gemm)
        assert pickle.loads(pickle.dumps(special)) is special
        gemm(1, 2.0, 0, None, **one)


def test_debugging_changes_nothing() -> None:
    os.environ["CUDA_EXT_DEBUG"] = "1"
    launch = kernels.gemm.bind(**one, stream=9)
    for n in (1, 4, 65536, 1, 4, 65536):
        kernels.gemm(n, 2.0, 0, None, **one, stream=9)
        launch(n, 2.0, 0, None)
    each = [name for name in ("simple", "even", "large") for _ in range(2)]
    assert launched() == each * 2


# ---------------------------------------------------------------------------------------- several GPUs


class On:
    is_device_accessible = True
    handle = 0x100

    def __init__(self, device: int) -> None:
        self.device_id = device


@pytest.mark.parametrize("capability", ["90", "90,80,90"])
@under_driver(devices=3)
def test_the_gpu_that_counts_is_the_one_of_the_launch(capability: str) -> None:
    os.environ["FAKE_CUDA_CAPABILITY"] = capability
    launch = kernels.gemm.bind(**one)
    # One that is ready everywhere could be launched everywhere.
    for device in (0, 1, 2):
        kernels.even(65536, 2.0, 0, On(device), **one)
    for _ in range(3):
        for device in (0, 1, 2):
            kernels.gemm(65536, 2.0, 0, On(device), **one, stream=1000 * device + 9)
            launch(65536, 2.0, 0, On(device))
            kernels.gemm(65536, 2.0, 0, None, **one, stream=1000 * device + 9)
    of_1 = "even" if "80" in capability else "large"
    assert launched()[3:] == [*["large"] * 3, *[of_1] * 3, *["large"] * 3] * 3
    assert [call.split("device=")[1][0] for call in launches()[3:]] == [*"000111222"] * 3
    with contextlib.redirect_stdout(io.StringIO()) as explained:
        kernels.gemm.explain(65536, 2.0, 0, On(1))
    where = explained.getvalue().splitlines()[0]
    assert where.endswith(f"on GPU 1, sm_{capability.split(',')[-2:][0]}:")


# ------------------------------------------------------------------------------------------- processes


def test_a_forked_child_gets_an_error() -> None:
    kernels.gemm(1, 2.0, 0, None, **one)
    refused = in_child(lambda: failure(kernels.gemm, 1, 2.0, 0, None, **one))
    assert refused.startswith("DriverError: CUDA was used before this process was forked")
