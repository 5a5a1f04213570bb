"""Fixtures that more than one test file uses."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cuda_ext.toolchain.nvrtc import Nvrtc

pytest_plugins = [
    "tests.fixtures.loader",
    "tests.fixtures.environments",
]

# Files whose tests share what takes seconds to make: environments, programs, builds. Those in one
# tuple share it with each other.
TOGETHER = (
    ("cli_init", "editable_rebuild", "example", "hatchling", "setuptools"),
    ("cmake_examples", "meson"),
    *(("cache",), ("cmake_install",), ("cmake_jit_sources",), ("compile_commands",), ("cpp_loader",)),
    *(("cpp_on_demand",), ("docs",), ("incremental",), ("loader_images",), ("stubs",)),
)
GROUPS = {f"tests/test_{name}.py": number for number, names in enumerate(TOGETHER) for name in names}


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Each group of files runs in one process, the largest first; other tests run where there is time."""
    from xdist.scheduler import LoadScopeScheduling

    class InGroups(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return str(GROUPS.get(nodeid.partition("::")[0], nodeid))

    return InGroups(config, log)


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
