"""The CUDA libraries, through cuda-bindings.

cuda-bindings looks for them in the interpreter's own site-packages, while an isolated build has its
packages elsewhere on ``sys.path``. So the library of an installed wheel is opened here, by its path;
cuda-bindings then uses the open library, and never one of another version that the system may have.
"""

from __future__ import annotations

import importlib
import sys
from fnmatch import fnmatch
from functools import cache
from pathlib import Path
from typing import Any, Literal

from cuda_ext.errors import ToolchainError
from cuda_ext.toolchain import cuda_packages

__all__ = ["binding", "library_files", "gpu_capabilities"]

_TITLES = {"nvrtc": "NVRTC", "nvfatbin": "nvFatbin", "nvjitlink": "nvJitLink"}


@cache
def binding(name: Literal["nvrtc", "nvfatbin", "nvjitlink"]) -> Any:
    """Import ``cuda.bindings.<name>`` and open its library.

    Raises :class:`~cuda_ext.errors.ToolchainError` if either is missing.
    """
    import ctypes  # slow to import

    try:
        module = importlib.import_module(f"cuda.bindings.{name}")
        for library in library_files(name):
            ctypes.CDLL(str(library))
        module.nvrtcVersion() if name == "nvrtc" else module.version()
    except (ImportError, OSError, RuntimeError) as error:
        # The message of cuda-pathfinder repeats the library's name for each place.
        reason = str(error).partition("\n")[0].partition(": No such file: ")[0] or type(error).__name__
        raise ToolchainError(
            f"{_TITLES[name]} cannot be loaded ({reason})",
            remedy='install it with "cuda-ext[cu13]" (or "cuda-ext[cu12]")',
        ) from None
    return module


def library_files(name: str) -> list[Path]:
    """Find the library `name` in the installed wheels, without loading it."""
    major = _major()
    pattern = f"{name}64_*.dll" if sys.platform == "win32" else f"lib{_TITLES[name]}.so.{major}".lower()
    for directory in cuda_packages.library_directories(name, major):
        for path in sorted(directory.iterdir()):
            if fnmatch(path.name.lower(), pattern):
                return [path]
    return []


@cache
def _major() -> int:
    """The major version of CUDA that the installed cuda-bindings is for; 0 if it is not installed."""
    if loaded := sys.modules.get("cuda.bindings"):
        return int(loaded.__version__.partition(".")[0])
    # The name of its metadata directory has the version. importlib.metadata would take 40 ms.
    for entry in map(Path, sys.path):
        for metadata in entry.glob("cuda_bindings-*.dist-info"):
            return int(metadata.name.removeprefix("cuda_bindings-").partition(".")[0])
    return 0


def gpu_capabilities() -> list[int]:
    """The compute capabilities of the GPUs in this machine; empty where there is no driver or no GPU.

    Only ``cuInit`` and queries that need no context are called.
    """
    try:
        from cuda.bindings import driver

        cuda: Any = driver
        if int(cuda.cuInit(0)[0]) != 0:
            return []
        _, count = cuda.cuDeviceGetCount()
        major = cuda.CUdevice_attribute.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR
        minor = cuda.CUdevice_attribute.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR
        capabilities = {
            10 * cuda.cuDeviceGetAttribute(major, device)[1] + cuda.cuDeviceGetAttribute(minor, device)[1]
            for device in range(count)
        }
    except (ImportError, OSError, RuntimeError, ValueError):
        return []
    return sorted(capabilities)
