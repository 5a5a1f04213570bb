"""Fixtures that more than one test file uses."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from cuda_ext.compiler.nvrtc import Nvrtc

pytest_plugins = [
    "tests.loader_fixtures",
    "tests.packages_fixtures",
]

# What takes seconds to make, once per process that needs it.
MADE_ONCE = (
    *("cuda_ext_wheel", "built", "built_once", "examples", "installed", "library", "on_demand", "printed"),
)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: Sequence[pytest.Item]) -> None:
    """Tests with the same costly fixture run in one process."""
    for item in items:
        costly = [name for name in MADE_ONCE if name in getattr(item, "fixturenames", ())]
        if costly and item.get_closest_marker("xdist_group") is None:
            item.add_marker(pytest.mark.xdist_group(costly[0]))


@pytest.fixture(scope="session", autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The cache of all tests that do not say otherwise; the user's own is neither read nor written."""
    directory = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:  # one for all processes
        directory = directory.parent
    directory /= "cache"
    directory.mkdir(mode=0o700, exist_ok=True)
    with pytest.MonkeyPatch.context() as patch:
        for variable in ("CUDA_EXT_CACHE_SIZE", "CUDA_EXT_REPORT", "CUDA_EXT_TRACE"):
            patch.delenv(variable, raising=False)
        patch.setenv("CUDA_EXT_CACHE", str(directory))
        yield directory


@pytest.fixture
def empty_cache(
    cache: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> Path:
    """A cache of the test's own, in which nothing is known."""
    directory = tmp_path_factory.mktemp("empty-cache")
    _ = Nvrtc().header_directories
    for headers in cache.glob("nvrtc-headers-*"):  # unpacking them takes seconds
        (directory / headers.name).symlink_to(headers)
    monkeypatch.setenv("CUDA_EXT_CACHE", str(directory))
    return directory


@pytest.fixture
def no_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    """Everything is compiled, every time."""
    monkeypatch.setenv("CUDA_EXT_CACHE_SIZE", "0")
