"""The libraries of the tool chain, through cuda-bindings.

cuda-bindings looks for them in the interpreter's own site-packages, while an isolated build has its
packages elsewhere on ``sys.path``. So the library of an installed wheel is opened here, by its path;
cuda-bindings then takes what is already open, and never one of another version that the system may have.
"""

from __future__ import annotations

import ctypes
import importlib
import sys
from fnmatch import fnmatch
from functools import cache
from pathlib import Path
from typing import Any, Literal

from cuda_ext.errors import ToolchainError
from cuda_ext.toolchain import discovery

__all__ = ["binding", "library_files"]

_TITLES = {"nvrtc": "NVRTC", "nvfatbin": "nvFatbin", "nvjitlink": "nvJitLink"}


@cache
def binding(name: Literal["nvrtc", "nvfatbin", "nvjitlink"]) -> Any:
    """The module ``cuda.bindings.<name>`` with its library open.

    Raises :class:`~cuda_ext.errors.ToolchainError` if either is missing.
    """
    try:
        module = importlib.import_module(f"cuda.bindings.{name}")
        for library in library_files(name):
            ctypes.CDLL(str(library))
        module.nvrtcVersion() if name == "nvrtc" else module.version()
    except (ImportError, OSError, RuntimeError) as error:
        # Whoever looks for libraries repeats their names for each place.
        reason = str(error).partition("\n")[0].partition(": No such file: ")[0] or type(error).__name__
        raise ToolchainError(
            f"{_TITLES[name]} cannot be loaded ({reason}); "
            'install it with "cuda-ext[cu13]" (or "cuda-ext[cu12]")'
        ) from None
    return module


def library_files(name: str) -> list[Path]:
    """The library `name` in the installed wheels, if it is there. Nothing is loaded."""
    major = _major()
    pattern = f"{name}64_*.dll" if sys.platform == "win32" else f"lib{_TITLES[name]}.so.{major}".lower()
    for directory in discovery.library_directories(name, major):
        for path in sorted(directory.iterdir()):
            if fnmatch(path.name.lower(), pattern):
                return [path]
    return []


@cache
def _major() -> int:
    """The CUDA version that the installed cuda-bindings is made for; 0 if there is none."""
    if loaded := sys.modules.get("cuda.bindings"):
        return int(loaded.__version__.partition(".")[0])
    # Its metadata tells, in the name of their directory. Reading them in earnest takes 40 ms.
    for entry in map(Path, sys.path):
        for metadata in entry.glob("cuda_bindings-*.dist-info"):
            return int(metadata.name.removeprefix("cuda_bindings-").partition(".")[0])
    return 0
