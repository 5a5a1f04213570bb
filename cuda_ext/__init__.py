"""CUDA kernels in a Python package as easily as data files.

Importing this package is cheap: it loads no CUDA library, no numpy, and none of its own modules. The public
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
    "torch_op",
]

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cuda_ext import errors
    from cuda_ext.runtime.arrays.device_scope import device_scope
    from cuda_ext.runtime.arrays.host_arrays import out
    from cuda_ext.runtime.compilation import compile, prepare
    from cuda_ext.runtime.description import describe
    from cuda_ext.runtime.driver.driver import gpu_available
    from cuda_ext.runtime.launch.torch_op import torch_op
    from cuda_ext.runtime.saved import load, save

_DEFINED_IN = {
    "compile": "compilation",
    "describe": "description",
    "device_scope": "arrays.device_scope",
    "gpu_available": "driver.driver",
    "load": "saved",
    "out": "arrays.host_arrays",
    "prepare": "compilation",
    "save": "saved",
    "torch_op": "launch.torch_op",
}


def __getattr__(name: str) -> object:
    if name != "errors" and name not in _DEFINED_IN:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module  # not for ``from cuda_ext import manifest``, which asks here first

    if name == "errors":
        return import_module("cuda_ext.errors")
    return getattr(import_module(f"cuda_ext.runtime.{_DEFINED_IN[name]}"), name)


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
