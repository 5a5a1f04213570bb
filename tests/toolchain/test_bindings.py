"""The CUDA libraries, and the GPUs that "native" means."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.fixtures.loader import Run

FIND = """
sys.modules["cuda"] = None
from cuda_ext.toolchain.bindings import gpu_capabilities
print(gpu_capabilities())
"""


@pytest.mark.host_compiler
@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"devices": 3, "capability": "90,80,90"}, "[80, 90]"),
        ({"capability": "103"}, "[103]"),
        ({"devices": 0}, "[]"),
        ({"fail": "cuInit=100"}, "[]"),
        ({"fail": "cuDeviceGetAttribute=1"}, "[]"),
    ],
)
def test_gpus_are_found_without_cuda_bindings(
    with_driver: Callable[..., Run], settings: dict[str, str], expected: str
) -> None:
    assert with_driver(FIND, **settings).output == [expected]
