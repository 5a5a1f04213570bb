"""The versions of what this package works with: ``cuda-ext --version`` prints them, and doctor shows them."""

from __future__ import annotations

import platform
from collections.abc import Iterator
from contextlib import suppress
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import cuda_ext
from cuda_ext.errors import DriverError, ToolchainError
from cuda_ext.runtime.driver.driver import Driver
from cuda_ext.runtime.driver.functions import Functions
from cuda_ext.toolchain.cuda_libraries import library_version

# By name, with what a module has unless it is that of another version.
MODULES_IN_C = {
    "_launch": ("cuda_ext.runtime.launch._launch", "Launch"),
    "_calls": ("cuda_ext.runtime.driver._calls", "call"),
}
# The version of the driver's kernel module, such as 580.65.06.
_RELEASE = Path("/sys/module/nvidia/version")


def versions() -> Iterator[tuple[str, str]]:
    """Yield the version of each part, by name."""
    yield "cuda-ext", cuda_ext.__version__
    yield "Python", python_version()
    yield "driver", driver_version() or "none"
    try:
        yield "NVRTC", "{}.{}".format(*library_version("nvrtc"))
    except ToolchainError:
        yield "NVRTC", "none"
    for name in MODULES_IN_C:
        reason = why_not_in_c(name)
        yield name, f"none: {reason}" if reason else "in C"


def python_version() -> str:
    """Return the interpreter and its system."""
    implementation, version = platform.python_implementation(), platform.python_version()
    return f"{implementation} {version}, {platform.system()} {platform.machine()}"


def driver_version() -> str:
    """Return the driver's release, and the CUDA version that it supports; empty if there is no driver."""
    found = []
    with suppress(OSError):
        found.append(_RELEASE.read_text().strip())
    with suppress(OSError, DriverError):
        found.append("CUDA {}.{}".format(*Driver(Functions()).version))
    return ", ".join(found)


def why_not_in_c(name: str) -> str:
    """Return the reason why Python replaces one of ``MODULES_IN_C``; empty where it does not."""
    module, attribute = MODULES_IN_C[name]
    try:
        getattr(import_module(module), attribute)
    except (ImportError, AttributeError) as error:
        return str(error) if find_spec(module) else "there was no C compiler at installation"
    return ""
