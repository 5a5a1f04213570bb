"""Checks of this machine: installation, compilers, the driver and its GPUs, the cache, the environment."""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import cuda_ext
from cuda_ext.builder.project import Project
from cuda_ext.builder.scheduler.worker_count import worker_count
from cuda_ext.cache.location import shared_cache
from cuda_ext.cache.open_store import local_store, why_not_used
from cuda_ext.cli.doctor.findings import Finding, Level
from cuda_ext.cli.environment import VARIABLES
from cuda_ext.cli.versions import MODULES_IN_C, driver_version, python_version, why_not_in_c
from cuda_ext.errors import (
    ConfigError,
    DriverError,
    NoDeviceError,
    NoDriverError,
    StoreError,
    ToolchainError,
    did_you_mean,
)
from cuda_ext.runtime.driver.driver import Driver, open_driver
from cuda_ext.time_limit import time_limit
from cuda_ext.toolchain.compilers import try_nvccs
from cuda_ext.toolchain.cuda_libraries import library_files, library_version
from cuda_ext.toolchain.front_ends.triton import Triton
from cuda_ext.toolchain.nvcc import Nvcc

_LIBRARIES = {"nvrtc": "NVRTC", "nvfatbin": "nvFatbin", "nvjitlink": "nvJitLink"}
_PACKAGES = ("jinja2", "platformdirs", "zstandard")  # that building imports
# The GPUs that the driver's kernel module knows; containers see them even without the driver's library.
_DRIVER_GPUS = Path("/proc/driver/nvidia/gpus")
_READERS: Mapping[str, Callable[[Mapping[str, str]], object]] = {
    "CUDA_EXT_TIMEOUT": time_limit,
    "MAX_JOBS": worker_count,
}


@dataclass(frozen=True, slots=True)
class Gpus:
    """The GPUs of a driver by ordinal, each with its name and its compute capability, ``90`` for 9.0.

    ``driver`` is the CUDA version that the driver supports, ``error`` the reason why nothing can be launched.
    """

    driver: tuple[int, int] | None = None
    devices: tuple[tuple[str, int], ...] = ()
    error: DriverError | None = None


def find_gpus() -> Gpus:
    """Query the driver. Never raises."""
    try:
        driver = open_driver()
        devices = tuple(_read_gpu(driver, ordinal) for ordinal in range(driver.count))
    except DriverError as error:
        return Gpus(error=error)
    return Gpus(driver.version, devices)


def _read_gpu(driver: Driver, ordinal: int) -> tuple[str, int]:
    buffer = ctypes.create_string_buffer(128)
    with suppress(DriverError):  # kernels run without a name
        driver.call("cuDeviceGetName", ctypes.addressof(buffer), len(buffer), ordinal)
    return buffer.value.decode(errors="replace"), driver.device(ordinal).capability


def check_installation() -> Iterator[Finding]:
    """Check this package, the interpreter and the modules in C."""
    yield Finding("ok", "cuda-ext", f"{cuda_ext.__version__}, in {Path(cuda_ext.__file__).parent}")
    yield Finding("ok", "Python", f"{python_version()}, {sys.executable}")
    command = "pip install --force-reinstall --no-deps --no-binary cuda-ext cuda-ext"
    for name in MODULES_IN_C:
        if reason := why_not_in_c(name):
            text = f"in Python, which is slower: {reason}"
            yield Finding("note", name, text, "with a C compiler installed", command)
        else:
            yield Finding("ok", name, "in C")


def check_tool_chain(gpus: Gpus) -> Iterator[Finding]:
    """Check the libraries and packages that a build needs, and nvcc."""
    # The newest compiler whose machine code this driver loads.
    extra = "cu12" if gpus.driver is not None and gpus.driver[0] == 12 else "cu13"
    install = f'pip install "cuda-ext[{extra}]"'
    missing: Level = "problem" if _has_project() else "note"  # what was built runs without them
    yield from _check_triton()
    for name, title in _LIBRARIES.items():
        try:
            major, minor = library_version(name)
        except ToolchainError as error:
            # A project of Triton kernels needs no other. What this project needs is checked below.
            level = missing if name == "nvfatbin" else "note"
            yield Finding(level, title, error.problem, "to build, or to compile on demand", install)
            continue
        file = next(iter(library_files(name)), "a library of the system")
        yield Finding("ok", title, f"{major}.{minor}, {file}")
        if name == "nvrtc" and gpus.driver is not None and gpus.driver[0] < major:
            text = "the driver supports CUDA up to {}.{}, and loads no output of NVRTC".format(*gpus.driver)
            remedy = f"upgrade the driver, or build with CUDA {gpus.driver[0]}"
            yield Finding("warning", title, text, remedy, install)
    if absent := [name for name in _PACKAGES if find_spec(name) is None]:
        yield Finding(missing, "packages", f"{', '.join(absent)} missing, which building needs", "", install)
    for origin, nvcc in try_nvccs(None, os.environ):
        if isinstance(nvcc, Nvcc):
            yield Finding("ok", "nvcc", f"{nvcc.version} ({origin}), {nvcc.executable}")
            break
        if isinstance(nvcc, ToolchainError):
            yield Finding("warning", "nvcc", f"{origin}: {nvcc.problem}", nvcc.remedy or "repair it")


def _check_triton() -> Iterator[Finding]:
    """Check the version of Triton, if it is installed."""
    if find_spec("triton") is not None:
        try:
            yield Finding("ok", "Triton", Triton().version)
        except ToolchainError as error:
            yield Finding("warning", "Triton", error.problem, error.remedy)


def _has_project() -> bool:
    """Return True if the current directory has a project with a ``[tool.cuda_ext]`` table, valid or not."""
    try:
        return Project.load(Path()) is not None
    except ConfigError:
        return True


def check_gpus(gpus: Gpus) -> Iterator[Finding]:
    """Check the driver and list its GPUs."""
    if gpus.error is None:
        yield Finding("ok", "driver", driver_version())
    else:
        yield _explain(gpus.error)
    for ordinal, (name, capability) in enumerate(gpus.devices):
        text = f"{name}, compute capability {capability // 10}.{capability % 10}"
        yield Finding("ok", f"GPU {ordinal}", text.removeprefix(", "))


def _explain(error: DriverError) -> Finding:
    """Explain why nothing can be launched. A machine without a GPU can build."""
    remedy = error.remedy or "see whether nvidia-smi works"
    if isinstance(error, NoDeviceError):
        if os.environ.get("CUDA_VISIBLE_DEVICES") is not None:
            remedy = f"{remedy}; unset CUDA_VISIBLE_DEVICES to see all GPUs"
        return Finding("note", "driver", error.statement, f"{remedy}; nothing to do if there is no GPU")
    if not isinstance(error, NoDriverError) or _is_installed():
        return Finding("problem", "driver", error.statement, remedy)
    if _DRIVER_GPUS.is_dir():
        text = "this machine has an NVIDIA GPU, but no driver library"
        remedy = "install the NVIDIA driver; in a container, start it with --gpus all"
        return Finding("warning", "driver", text, remedy)
    text = "none: kernels can be built and inspected here"
    return Finding("note", "driver", text, "to launch them, use a machine with an NVIDIA GPU")


def _is_installed() -> bool:
    """Return True if the driver's library exists, though it cannot be loaded."""
    try:
        ctypes.CDLL("nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1")
    except OSError as error:
        # An existing library may be damaged, or for another processor.
        return sys.platform == "linux" and "No such file" not in str(error)
    return True


def check_cache() -> Iterator[Finding]:
    """Check that the cache can be used. A shared one is not contacted, which may take long."""
    try:
        store = local_store(os.environ)
    except StoreError as error:  # there is no home directory, or no platformdirs
        yield Finding("warning", "cache", error.statement, error.remedy)
        return
    if reason := why_not_used(os.environ):
        yield Finding("warning" if store.bound else "note", "cache", reason)
    else:
        yield Finding("ok", "cache", f"can be used, in {store.directory}")
    if (url := shared_cache(os.environ)) and find_spec("fsspec") is None:
        text = f"{url} is not used: fsspec is missing"
        yield Finding("warning", "shared cache", text, "", 'pip install "cuda-ext[shared-cache]"')


def check_environment() -> Iterator[Finding]:
    """Check the variables that are set, and misspelled ones of this package."""
    for name in sorted(os.environ):
        if name in VARIABLES:
            # A shared cache may have a password.
            value = (name == "CUDA_EXT_CACHE" and shared_cache(os.environ)) or os.environ[name]
            try:
                _READERS.get(name, dict)(os.environ)
            except ConfigError as error:
                yield Finding("problem", name, f"={value}: {error.problem}", error.remedy)
            else:
                yield Finding("ok", name, f"={value}: {VARIABLES[name]}")
        elif name.startswith("CUDA_EXT_"):
            remedy = did_you_mean(name, VARIABLES) or "unset it: there is no variable of that name"
            yield Finding("warning", name, "is set, but not used", remedy)  # its value may be a password
