"""Every type of parameter with all wrong arguments for it: no such launch reaches the driver.

``pytest -s`` shows the table: how many wrong arguments, launches with them, and right launches there are.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cuda_ext.facts.kernels import Kernel
from tests.fixtures import device_arrays
from tests.fixtures.device_arrays import Array, CupyArray, Exchanged, Lent, Tensor
from tests.fixtures.loader import Run, signature, write_module
from tests.fixtures.messages import Messages
from tests.fixtures.under_driver import failure, launches
from tests.fixtures.wrong_arguments import KERNELS, TYPES

WithDriver = Callable[..., Run]
pytestmark = [pytest.mark.host_compiler, pytest.mark.usefixtures("typed")]
under_driver = pytest.mark.under_driver
kernels: Any = None  # in the process of a test, the module
one: Any = {"grid": 1, "block": 1}
TWO = Kernel("two", "two", 0, signature("pointer 8 const float* x", "pointer 8 float* y"))

KNOWN = """
from tests.fixtures import device_arrays
device_arrays.import_torch()
device_arrays.import_cupy()
"""
TRY = """
from tests.fixtures.wrong_arguments import try_all
from typed import kernels
print(*try_all(kernels), sep="\\n")
"""
# Warm launches know the arrays of libraries that are loaded, and submit in C where that is compiled.
WARM = {
    "libraries are known": KNOWN,
    "libraries are not known": "",
    "nothing is compiled": f"{KNOWN}sys.modules['cuda_ext.runtime.launch._launch'] = None\n",
}


@pytest.fixture
def typed(with_driver: WithDriver, tmp_path: Path) -> None:
    write_module(tmp_path, "typed.kernels", [*KERNELS.values(), TWO])


@pytest.mark.parametrize("before", WARM.values(), ids=WARM)
def test_no_wrong_argument_reaches_the_driver(with_driver: WithDriver, before: str) -> None:
    run = with_driver(before + TRY)
    assert [line for line in run.output if line.startswith("!")] == []
    assert len(run.output) == len(TYPES)
    wrong, tried, right = map(sum, zip(*(map(int, line.split()[-3:]) for line in run.output), strict=True))
    assert len(run.launches) == right > 1000
    print(f"{'':24} wrong tried right", *run.output, f"{'all':24}{wrong:6}{tried:6}{right:6}", sep="\n")


@under_driver(kernels="typed.kernels", devices=2)
def test_arrays_of_several_gpus_never_reach_the_driver() -> None:
    device_arrays.import_torch()
    device_arrays.import_cupy()
    floats = np.zeros(4, "f4")
    # An interface does not say where it is; the driver says the first GPU.
    here = [Array(floats), *(made(floats, device=0) for made in (CupyArray, Exchanged, Lent, Tensor))]
    there = [made(floats, device=1) for made in (CupyArray, Exchanged, Lent, Tensor)]
    bound = kernels.two.bind(**one)
    refused = "ArgumentError: argument 'y': is on GPU {}, and 'x' is on GPU {}; a kernel runs on one   in a "
    refused += f"launch of {TWO.signature}"
    for _ in "cold", "warm":
        for x, y in itertools.product(here, there):
            assert failure(kernels.two, x, y, **one) == refused.format(1, 0)
            assert failure(kernels.two, y, x, **one, stream=7) == refused.format(0, 1)
            assert failure(bound, x, y) == refused.format(1, 0)
        for x, y in (*itertools.product(here, here), *itertools.product(there, there)):
            kernels.two(x, y, **one)
            bound(x, y)
    places = [launch.partition("device=")[2][0] for launch in launches()]
    assert places == ["0"] * 50 + ["1"] * 32 + ["0"] * 50 + ["1"] * 32


@pytest.mark.parametrize("lacking", ["nothing", "cuda_ext.runtime.driver._calls"])
def test_what_a_kernel_is_asked_about_itself_is_checked(with_driver: WithDriver, lacking: str) -> None:
    run = with_driver(
        f"""
        sys.modules[{lacking!r}] = None
        import numpy
        from sample import kernels
        occupancy, attributes = kernels.plain.occupancy, kernels.plain.attributes
        number = numpy.int64
        print(occupancy(number(256), shared=number(0), device=number(0)), attributes(number(0)).registers)
        print(occupancy(1 << 40), occupancy((1 << 32) + 256), occupancy(1 << 70, shared=1 << 70))
        print(occupancy(256, shared=227 << 10), occupancy(256, shared=228 << 10))
        for block in (None, "256", 2.5, b"256", -1):
            caught(occupancy, block)
        for shared in (None, "0", -1):
            caught(occupancy, 256, shared=shared)
        caught(occupancy, 0)
        for device in ("0", 0.0):
            try:
                attributes(device)
            except TypeError as error:
                print(error)
        """,
        errors=["error 1 of cuOccupancyMaxActiveBlocksPerMultiprocessor"],  # of no threads
    )
    assert run.output[:3] == ["1.0 32", "0.0 0.0 0.0", "1.0 0.0"]  # the fake driver counts threads only
    wrong = ["None", "'256'", "2.5", "b'256'", "-1"]
    block = [f"ArgumentError: block: expected a number of threads, found {each}" for each in wrong]
    wrong = ["None", "'0'", "-1"]
    shared = [f"ArgumentError: shared: expected a number of bytes, found {each}" for each in wrong]
    assert run.output[3:11] == block + shared
    assert run.output[11].startswith("DriverCallError: cuOccupancyMaxActiveBlocksPerMultiprocessor failed")
    wrong = ["'str'", "'float'"]
    assert run.output[12:] == [f"{each} object cannot be interpreted as an integer" for each in wrong]


def test_wrong_arguments_are_refused_before_a_kernel_is_compiled_on_demand(
    with_driver: WithDriver, messages: Messages
) -> None:
    run = with_driver(
        """
        import cuda_ext  # and not logging, so that the compilation is not logged
        module = cuda_ext.compile("__global__ void f(int n) {}", architectures=["sm_80"])
        caught(module.f, "x", grid=1, block=1)
        print("cuda_ext.runtime.jit.compile_request" in sys.modules)
        module.f(1, grid=1, block=1)
        """
    )
    messages(*run.output)
    assert len(run.launches) == 1
