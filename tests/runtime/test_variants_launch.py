"""Variants under the fake driver: the candidate that a launch takes, and its explanation."""

from __future__ import annotations

import hashlib
import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest

from cuda_ext.facts.candidates import Candidate, Variants
from cuda_ext.facts.kernels import Kernel
from cuda_ext.facts.manifest import Image, Unit
from cuda_ext.formats.variant_conditions import parse
from tests.fixtures.loader import SAMPLE, Run, described, fatbin, signature, unit, write_package
from tests.fixtures.messages import Messages

pytestmark = pytest.mark.host_compiler

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


WithVariants = Callable[..., Run]


@pytest.fixture
def with_variants(with_driver: Callable[..., Run], tmp_path: Path) -> WithVariants:
    """Runs a script under the fake driver with the module above as ``kernels``."""
    files = {f"{name}.fatbin": fatbin(described(kernel)) for name, kernel in KERNELS.items()}
    module = SAMPLE._replace(
        module="many.kernels",
        units=tuple(_unit(name, files[f"{name}.fatbin"]) for name in KERNELS),
        kernels=tuple(KERNELS.values()),
        symbols=(),
        variants=VARIANTS,
    )
    write_package(tmp_path, module, files)

    def run(script: str, **settings: str | int) -> Run:
        return with_driver(f"from many import kernels\n{textwrap.dedent(script)}", **settings)

    return run


def launched(run: Run) -> list[str]:
    """The kernels that were launched."""
    return [launch.split()[1] for launch in run.launches]


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

WAYS = """
import numpy
def by_position(n, m): kernels.gemm(n, 2.0, m, None, grid=1, block=1)
def by_name(n, m): kernels.gemm(x=None, m=m, a=2.0, n=n, grid=1, block=1)
def in_part_by_name(n, m): kernels.gemm(n, 2.0, x=None, m=m, grid=1, block=1)
def of_numpy(n, m): kernels.gemm(numpy.int32(n), 2.0, numpy.uint64(m), None, grid=1, block=1)
def as_many_threads(n, m): kernels.gemm(n, 2.0, m, None, threads=100)
def cooperatively(n, m): kernels.gemm(n, 2.0, m, None, grid=1, block=1, cooperative=True)
launch = kernels.gemm.bind(grid=1, block=1)
def bound(n, m): launch(n, 2.0, m, None)
def bound_by_name(n, m): launch(n=n, a=2.0, m=m, x=None)
"""


@pytest.mark.parametrize("capability", CHOSEN)
def test_the_first_variant_with_a_true_condition_is_launched(
    with_variants: WithVariants, capability: str
) -> None:
    cases = CHOSEN[capability]
    ways = [line.split("(")[0].removeprefix("def ") for line in WAYS.splitlines() if line.startswith("def")]
    script = f"{WAYS}\nfor way in {', '.join(ways)}:\n"
    # The first launch of a kernel takes another path than later ones.
    script += "".join(f"    for n, m in {list(cases)}: way(n, m)\n" for _ in range(2))
    run = with_variants(script, capability=capability)
    assert launched(run) == list(cases.values()) * 2 * len(ways)


def test_the_arguments_and_the_launch_are_those_of_the_call(with_variants: WithVariants) -> None:
    run = with_variants(
        """
        for _ in range(2):
            kernels.gemm(65536, 2.5, 7, 0x10, grid=(4, 5), block=(32, 2, 3), stream=9, shared=100)
        """
    )
    launch = (
        "cuLaunchKernel large grid=4,5,1 block=32,2,3 shared=100 stream=9 device=0 "
        "00000100 00002040 0700000000000000 1000000000000000"
    )
    assert run.launches == [launch, launch]


def test_variants_that_are_not_launched_are_not_loaded(with_variants: WithVariants) -> None:
    run = with_variants("for n in 1, 1, 3, 3: kernels.gemm(n, 2.0, 0, None, grid=1, block=1)")
    assert [call for call in run.calls if call.startswith("cuLibrary")] == [
        "cuLibraryLoadData",
        "cuLibraryGetKernel simple",
    ]


def test_naming_a_candidate_takes_control_back(with_variants: WithVariants) -> None:
    run = with_variants(
        """
        kernels.gemm(65536, 2.0, 0, None, grid=1, block=1)
        kernels.simple(65536, 2.0, 0, None, grid=1, block=1)
        for kernel, when in kernels.gemm.candidates:
            kernel(65536, 2.0, 0, None, grid=1, block=1)
        kernels.ns.special(1, 2.0, 0, None, grid=1, block=1)
        """
    )
    candidates = ["hopper", "hopper", "large", "even", "even", "simple"]
    assert launched(run) == ["large", "simple", *candidates, "hopper"]


def test_a_default_without_an_image_is_reported_like_any_kernel(with_variants: WithVariants) -> None:
    run = with_variants("caught(kernels.only, 1, 2.0, 0, None, grid=1, block=1)", capability=80)
    (line,) = run.output
    assert line.startswith("NoImageError: many.kernels: device/hopper.cu has no image for this GPU")


def test_wrong_arguments_never_reach_the_driver(with_variants: WithVariants, messages: Messages) -> None:
    run = with_variants(
        """
        for _ in range(2):
            caught(kernels.gemm, 1 << 31, 2.0, 0, None, grid=1, block=1)
            caught(kernels.gemm, "1", 2.0, 0, None, grid=1, block=1)
            caught(kernels.gemm, 1, 2.0, -1, None, grid=1, block=1)
            caught(kernels.gemm, 1, 2.0, 0, grid=1, block=1)
            caught(kernels.gemm, 1, 2.0, 0, None, grid=0, block=1)
            caught(kernels.gemm.bind(grid=1, block=1), 1 << 31, 2.0, 0, None)
            kernels.gemm(1, 2.0, 0, None, grid=1, block=1)
        caught(kernels.gemm.attributes)
        """
    )
    *wrong, ambiguous = run.output
    assert wrong[: len(wrong) // 2] == wrong[len(wrong) // 2 :]
    messages(*wrong[: len(wrong) // 2], ambiguous)
    assert launched(run) == ["simple", "simple"]


@pytest.mark.parametrize("function", ["cuLaunchKernel", "cuLaunchKernelEx"])
def test_a_refused_launch_is_reported(with_variants: WithVariants, function: str) -> None:
    script = """
    bound = kernels.gemm.bind(grid=1, block=32, stream=9, cooperative=True)
    launch = {
        "cuLaunchKernel": lambda: kernels.gemm(65536, 2.0, 0, None, grid=1, block=32, stream=9),
        "cuLaunchKernelEx": lambda: bound(65536, 2.0, 0, None),
    }
    """
    script += f"""
    caught(launch["{function}"])
    caught(launch["{function}"])
    """
    first = with_variants(script, fail=f"{function}=701").output
    assert first[0].startswith(f"LaunchError: large: {function} failed: FAKE_ERROR_701")
    after_another = with_variants(script, fail=f"{function}=701@2").output
    assert after_another == ["nothing raised", first[0]]
    assert "launched with grid (1, 1, 1), block (32, 1, 1)" in first[0]


EXPLAINED = [
    ("90", "65536, a=2.0, m=0, x=None, grid=1, block=1"),
    ("90", "6, 2.0, 0, None"),
    ("103", "1_000_000, 2.0, 0, None"),
    ("80", "1_000_000, 2.0, 0, None"),
]


def test_every_candidate_is_explained(with_variants: WithVariants, messages: Messages) -> None:
    for capability, arguments in EXPLAINED:
        run = with_variants(f"print(kernels.gemm.explain({arguments}))", capability=capability)
        *explained, returned = run.output
        assert (returned, run.launches) == ("None", [])
        messages(*explained)
    refused = "caught(kernels.gemm.explain, 1.5, 2.0, 0, None)\ncaught(kernels.gemm.explain, 1, m=2)"
    messages(*with_variants(refused).output)


def test_variants_are_pickled_by_name(with_variants: WithVariants) -> None:
    run = with_variants(
        """
        import copy, pickle
        for _ in range(2):
            print(pickle.loads(pickle.dumps(kernels.gemm)) is kernels.gemm is copy.deepcopy(kernels.gemm))
            print(pickle.loads(pickle.dumps(kernels.ns.special)) is kernels.ns.special)
            kernels.gemm(1, 2.0, 0, None, grid=1, block=1)
        """
    )
    assert run.output == ["True"] * 4


def test_debugging_changes_nothing(with_variants: WithVariants) -> None:
    run = with_variants(
        """
        import os
        os.environ["CUDA_EXT_DEBUG"] = "1"
        launch = kernels.gemm.bind(grid=1, block=1, stream=9)
        for n in 1, 4, 65536, 1, 4, 65536:
            kernels.gemm(n, 2.0, 0, None, grid=1, block=1, stream=9)
            launch(n, 2.0, 0, None)
        """
    )
    each = [name for name in ("simple", "even", "large") for _ in range(2)]
    assert launched(run) == each * 2


# ---------------------------------------------------------------------------------------- several GPUs

ON_DEVICE = """
class On:
    is_device_accessible = True
    handle = 0x100
    def __init__(self, device): self.device_id = device
launch = kernels.gemm.bind(grid=1, block=1, stream=9)
"""


@pytest.mark.parametrize("capability", ["90", "90,80,90"])
def test_the_gpu_that_counts_is_the_one_of_the_launch(with_variants: WithVariants, capability: str) -> None:
    # One that is ready everywhere could be launched everywhere.
    script = f"""{ON_DEVICE}
for device in 0, 1, 2:
    kernels.even(65536, 2.0, 0, On(device), grid=1, block=1)
for _ in range(3):
    for device in 0, 1, 2:
        kernels.gemm(65536, 2.0, 0, On(device), grid=1, block=1, stream=9)
        launch(65536, 2.0, 0, On(device))
        kernels.gemm(65536, 2.0, 0, None, grid=1, block=1, stream=1000 * device + 9)
kernels.gemm.explain(65536, 2.0, 0, On(1))
"""
    run = with_variants(script, capability=capability, devices=3)
    of_1 = "even" if "80" in capability else "large"
    assert launched(run)[3:] == [*["large"] * 3, *[of_1] * 3, *["large"] * 3] * 3
    assert [call.split("device=")[1][0] for call in run.launches[3:]] == [*"000111222"] * 3
    assert run.output[0].endswith(f"on GPU 1, sm_{capability.split(',')[-2:][0]}:")


# ------------------------------------------------------------------------------------------- processes


def test_a_forked_child_gets_an_error(with_variants: WithVariants) -> None:
    run = with_variants(
        """
        import os
        kernels.gemm(1, 2.0, 0, None, grid=1, block=1)
        if os.fork() == 0:
            caught(kernels.gemm, 1, 2.0, 0, None, grid=1, block=1)
            sys.stdout.flush()
            os._exit(0)
        os.wait()
        """
    )
    (line,) = run.output
    assert line.startswith("DriverError: CUDA was used before this process was forked")
