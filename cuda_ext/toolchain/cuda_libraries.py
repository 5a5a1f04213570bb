"""NVRTC, nvFatbin and nvJitLink: their files, and their functions through ctypes.

cuda-bindings has the same functions, but its import takes as long as NVRTC takes to compile a small kernel.
The libraries of installed wheels come first, of the CUDA version that the installed cuda-bindings is for.
"""

from __future__ import annotations

import os
import re
import sys
from contextlib import suppress
from functools import cache
from typing import TYPE_CHECKING, Any

from cuda_ext.errors import ToolchainError
from cuda_ext.toolchain import cuda_packages

if TYPE_CHECKING:
    import ctypes

# Prefixes of the functions of each library.
_PREFIXES = {"nvrtc": "nvrtc", "nvfatbin": "nvFatbin", "nvjitlink": "nvJitLink"}


@cache
def open_library(name: str) -> ctypes.CDLL:
    """Open the library `name`: ``nvrtc``, ``nvfatbin`` or ``nvjitlink``.

    Integers are passed to its functions as ``int``, unless they are wrapped into another type. Raises
    :class:`~cuda_ext.errors.ToolchainError` if no such library can be opened.
    """
    import ctypes  # slow to import

    try:
        file = next(iter(library_files(name)), None)
        if file and name == "nvrtc":
            _open_builtins(file)
        library = ctypes.CDLL(file or system_library(name))
        if sys.platform == "win32":
            system_library(name)  # now it is open, and Windows searches its directory for NVRTC's builtins
        if not hasattr(library, f"{_PREFIXES[name]}Version"):
            raise OSError("it is of CUDA 12.2 or older")  # the functions of this nvJitLink had other names
        return library
    except (ImportError, OSError, RuntimeError) as error:
        # The message of cuda-pathfinder repeats the library's name for each place.
        reason = str(error).partition("\n")[0].partition(": No such file: ")[0] or type(error).__name__
        title = "NVRTC" if name == "nvrtc" else _PREFIXES[name]
        raise ToolchainError(
            f"{title} cannot be loaded ({reason})",
            remedy='install it with "cuda-ext[cu13]" (or "cuda-ext[cu12]")',
        ) from None


def _open_builtins(nvrtc: str) -> None:
    """Open the library that `nvrtc` opens by name: NVRTC 13.0 does not look for it beside itself."""
    import ctypes

    directory = os.path.dirname(nvrtc)
    for file in os.listdir(directory):
        if file.startswith("libnvrtc-builtins.so."):
            ctypes.CDLL(f"{directory}/{file}")


def library_version(name: str) -> tuple[int, int]:
    """Return the CUDA version of the library `name`. Raises :class:`~cuda_ext.errors.ToolchainError`."""
    import ctypes

    major, minor = ctypes.c_int(), ctypes.c_int()
    open_library(name)[f"{_PREFIXES[name]}Version"](ctypes.byref(major), ctypes.byref(minor))
    return major.value, minor.value


def library_files(name: str) -> list[str]:
    """Find the library `name` in the installed wheels, without loading it."""
    major = _major()
    for directory in cuda_packages.library_directories(major):
        for file in sorted(os.listdir(directory)):
            if _is_library(file.lower(), name, major):
                return [f"{directory}/{file}"]
    return []


def _is_library(file: str, name: str, major: int) -> bool:
    if sys.platform == "win32":
        # Such as nvrtc64_130_0.dll and nvjitlink_130_0.dll, but not nvrtc64_130_0.alt.dll.
        return re.fullmatch(rf"{name}(?:64)?_{major}\d_\d+\.dll", file) is not None
    return file == f"lib{name}.so.{major}"


def system_library(name: str) -> str:
    """Load the library `name` of the system, and return its file.

    Raises :class:`ImportError` without cuda-pathfinder, and :class:`RuntimeError` if there is no such library
    or its file cannot be determined.
    """
    from cuda.pathfinder import load_nvidia_dynamic_lib

    # All other names are as here.
    path: str | None = load_nvidia_dynamic_lib("nvJitLink" if name == "nvjitlink" else name).abs_path
    if path is None:
        raise RuntimeError(f"cannot determine which lib{name} was loaded")
    return path


@cache
def _major() -> int:
    """Return the CUDA major version of the installed cuda-bindings; 0 if it is not installed."""
    if loaded := sys.modules.get("cuda.bindings"):
        return int(loaded.__version__.partition(".")[0])
    # The name of its metadata directory contains the version. importlib.metadata would take 40 ms, and
    # listing all directories a third of a launch that finds its kernel in the cache.
    likely = [entry for entry in sys.path if os.path.isdir(os.path.join(entry, "cuda"))]
    for entry in (*likely, *sys.path):
        with suppress(OSError):
            for name in os.listdir(entry or os.curdir):
                if name.startswith("cuda_bindings-") and name.endswith(".dist-info"):
                    return int(name.removeprefix("cuda_bindings-").partition(".")[0])
    return 0


def gpu_capabilities() -> list[int]:
    """Return the compute capabilities of the GPUs in this machine; empty where there is no driver or no GPU.

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
