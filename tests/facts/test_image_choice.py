"""The image that is selected for a GPU and a driver, and the errors where there is none."""

from __future__ import annotations

from typing import Any

import pytest

from cuda_ext import errors
from cuda_ext.facts.image_choice import image_for, select_image
from tests.fixtures.loader import (
    SAMPLE,
    unit,
)
from tests.fixtures.messages import Messages

pytestmark = pytest.mark.xdist_group("images")


@pytest.mark.parametrize(
    ("built", "capability", "expected"),
    [
        ("sm_80 sm_90", 90, "sm_90"),
        ("sm_80 sm_86", 89, "sm_86"),
        ("sm_80 sm_90", 86, "sm_80"),
        ("sm_90 sm_80", 75, None),
        ("sm_80", 90, None),
        ("sm_89 compute_80", 86, "compute_80"),
        ("sm_90 sm_90a", 90, "sm_90a"),
        ("sm_90a", 90, "sm_90a"),
        ("sm_100a sm_100 compute_90", 103, "sm_100"),
        ("sm_100a compute_90", 103, "compute_90"),
        ("sm_100f compute_90", 103, "sm_100f"),
        ("sm_100f", 120, None),
        ("sm_103f", 100, None),
        ("sm_100 sm_100f sm_100a", 100, "sm_100a"),
        ("compute_75 compute_90 compute_120", 100, "compute_90"),
        ("compute_90a compute_80", 90, "compute_90a"),
        ("compute_90a", 100, None),
        ("compute_100f", 103, "compute_100f"),
        ("compute_100f", 120, None),
        ("sm_90 compute_100", 100, "compute_100"),
        ("lto_90", 90, None),
        ("sm_80 tile_80", 89, "sm_80"),
        ("sm_80 tile_80", 90, "tile_80"),
        ("tile_80", 75, None),
        ("", 90, None),
    ],
)
def test_the_image_that_the_driver_takes(built: str, capability: int, expected: str | None) -> None:
    image = select_image(unit("x.cu", *built.split()).images, capability)
    assert (image and image.architecture) == expected


def chosen_image(built: str, capability: int = 90, driver: tuple[int, int] = (13, 0), **changes: Any) -> str:
    """The exception's name and text for a unit with these architectures."""
    source = changes.pop("source", "device/x.cu")
    module = SAMPLE._replace(**changes)
    try:
        image = image_for(module, unit(source, *built.split()), capability, driver)
    except errors.DriverError as error:
        return f"{type(error).__name__}: {error}"
    return image.architecture


def test_a_missing_image_is_reported_with_all_images(messages: Messages) -> None:
    messages(chosen_image("sm_80 sm_120"))
    assert "built for none; PTX: compute_100; add " in chosen_image("compute_100")
    assert "PTX: none; LTO-IR, which has to be linked first: lto_90; add" in chosen_image("lto_90")


def test_minor_versions_of_a_driver_are_compatible(messages: Messages) -> None:
    assert chosen_image("sm_90", driver=(13, 0), version="13.5") == "sm_90"
    assert chosen_image("sm_90", driver=(14, 0), version="13.5") == "sm_90"
    assert chosen_image("sm_90", driver=(12, 4), version="12.9") == "sm_90"
    messages(chosen_image("sm_90", driver=(12, 9), version="13.0"))


def test_zstd_needs_a_driver_that_reads_it() -> None:
    for compress in ("balance", "size"):
        assert chosen_image("sm_90", driver=(12, 3), version="12.9", compress=compress) == (
            "DriverTooOldError: sample.kernels: the NVIDIA driver supports CUDA up to 12.3, and "
            "device/x.cu (sm_90), compressed with zstd, needs 12.4 or newer; upgrade the driver"
        )
    for compress in ("none", "speed"):
        assert chosen_image("sm_90", driver=(12, 0), version="12.9", compress=compress) == "sm_90"


def test_ptx_needs_a_driver_of_its_version(messages: Messages) -> None:
    assert chosen_image("compute_80", driver=(13, 5)) == "compute_80"
    messages(chosen_image("compute_80", driver=(13, 4)))


def test_tile_ir_needs_a_driver_that_knows_it(messages: Messages) -> None:
    assert chosen_image("tile_80", driver=(13, 0)) == "tile_80"  # which may refuse it when it is loaded
    messages(chosen_image("tile_80", driver=(12, 9), version="12.9"))
    assert "PTX: none; Tile IR: tile_80; add" in chosen_image("tile_80", capability=75)


def test_prebuilt_images_have_no_known_cuda_version() -> None:
    assert chosen_image("compute_80", driver=(13, 0), source="device/x.ptx") == "compute_80"
    assert chosen_image("sm_90", driver=(12, 9), source="device/x.cubin") == "sm_90"
    assert chosen_image("sm_90", driver=(12, 9), source="device/x.ptx").startswith("DriverTooOldError")
