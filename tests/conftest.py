"""Fixtures that more than one test file uses."""

from __future__ import annotations

import functools
import os
import re
import shutil
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cuda_ext.toolchain import process
from tests.fixtures.caches import create_empty_cache, directory_of_all_processes

pytest_plugins = [
    "tests.fixtures.loader",
    "tests.fixtures.under_driver",
    "tests.fixtures.environments",
    "tests.fixtures.messages",
]

# xdist's own "loadgroup" relies on what pytest 9 no longer reads, so the mark is read here.
_GROUP = re.compile(r"xdist_group\(\"(\w+)\"\)")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Run files with own fixtures, and files that ``xdist_group`` marks with one name, in one process."""
    from xdist.scheduler import LoadScopeScheduling

    @functools.cache
    def group_of(file: str) -> str | None:
        text = (config.rootpath / file).read_text(encoding="utf-8")
        group = _GROUP.search(text)
        return group[1] if group else file if 'scope="module"' in text else None

    class InGroups(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return group_of(nodeid.partition("::")[0]) or nodeid

    return InGroups(config, log)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update", action="store_true", help="write the expected messages anew")


def pytest_configure() -> None:
    """Let programs that tests start receive Ctrl+C, although a shell started the tests in the background."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session", autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The cache of all tests without one of their own; that of the user is neither read nor written."""
    directory = directory_of_all_processes(tmp_path_factory) / "cache"
    directory.mkdir(mode=0o700, exist_ok=True)
    with pytest.MonkeyPatch.context() as patch:
        for variable in ("CUDA_EXT_CACHE_SIZE", "CUDA_EXT_REPORT", "CUDA_EXT_TRACE"):
            patch.delenv(variable, raising=False)
        patch.setenv("CUDA_EXT_CACHE", str(directory))
        yield directory


@pytest.fixture(scope="session", autouse=True)
def object_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """ccache for C++ in CMake projects, if there is one: many of them compile the loader."""
    ccache = shutil.which("ccache")
    if ccache is None:
        yield
        return
    directory = directory_of_all_processes(tmp_path_factory)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CMAKE_CXX_COMPILER_LAUNCHER", ccache)  # some tests have a PATH of their own
        patch.setenv("CCACHE_DIR", str(directory / "ccache"))
        patch.setenv("CCACHE_BASEDIR", str(directory))
        patch.setenv("CCACHE_NOHASHDIR", "1")
        yield


@pytest.fixture(scope="session", autouse=True)
def mypy_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """What mypy knows of the standard library, from a check of this package, serves all tests of a process.

    It may not serve two: modules of tests have equal names, and mypy would read those of the other.
    """
    directory = tmp_path_factory.getbasetemp() / "mypy"
    known = Path(os.environ.get("MYPY_CACHE_DIR", Path(__file__).parents[1] / ".mypy_cache"))
    if known.is_dir():
        shutil.copytree(known, directory)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MYPY_CACHE_DIR", str(directory))
        yield


@pytest.fixture(scope="session", autouse=True)
def copies_of_packages() -> Iterator[None]:
    """uv copies packages into the environments of tests, as pip does.

    Links to the headers of the environment in which the tests run would change their time of change, and
    a build that reads them at that moment, in another process, keeps nothing.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("UV_LINK_MODE", "copy")
        yield


@pytest.fixture(scope="session", autouse=True)
def one_worker() -> Iterator[None]:
    """A build starts one worker process: processes of pytest use all cores already."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MAX_JOBS", "1")
        yield


@pytest.fixture(scope="session", autouse=True)
def forks() -> Iterator[None]:
    """Builds in tests start workers by forks, as builds of the command line do; imports take most of a build.

    The processes of xdist have another thread, which only waits for messages.
    """
    threads = Path("/proc/self/task")
    if not threads.is_dir() or sys.version_info >= (3, 12):  # which warns of any other thread
        yield
        return
    own = len([*threads.iterdir()])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(process, "can_fork", lambda: len([*threads.iterdir()]) <= own)
        yield


@pytest.fixture
def empty_cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache for one test."""
    directory = create_empty_cache(tmp_path_factory.mktemp("empty-cache"))
    monkeypatch.setenv("CUDA_EXT_CACHE", str(directory))
    return directory


@pytest.fixture
def no_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    """Disable the cache, so that everything is compiled."""
    monkeypatch.setenv("CUDA_EXT_CACHE_SIZE", "0")
