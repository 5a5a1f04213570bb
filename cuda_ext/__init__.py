"""CUDA kernels in a Python package as easily as data files.

Importing this package is cheap: it loads no CUDA library, no numpy, and none of its own rooms. The public
names are loaded when they are first used.
"""

from __future__ import annotations

__version__ = "0.1.0"
__all__ = [
    "compile",
    "describe",
    "device_scope",
    "errors",
    "gpu_available",
    "load",
    "out",
    "prepare",
    "save",
]

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cuda_ext import errors
    from cuda_ext.runtime import compile, describe, device_scope, gpu_available, load, out, prepare, save


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    if name == "errors":
        return import_module("cuda_ext.errors")
    return getattr(import_module("cuda_ext.runtime"), name)


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
