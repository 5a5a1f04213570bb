"""Import time: from a manifest and its images to launches. Nothing is loaded before it is used."""

from __future__ import annotations

__all__ = ["compile", "describe", "device_scope", "gpu_available", "load", "out", "prepare", "save"]

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cuda_ext.runtime.compiled import compile
    from cuda_ext.runtime.description import describe
    from cuda_ext.runtime.driver import gpu_available
    from cuda_ext.runtime.host_arrays import out
    from cuda_ext.runtime.preparation import prepare
    from cuda_ext.runtime.saved import load, save
    from cuda_ext.runtime.scopes import device_scope

_HOMES = {
    "compile": "compiled",
    "describe": "description",
    "device_scope": "scopes",
    "gpu_available": "driver",
    "load": "saved",
    "out": "host_arrays",
    "prepare": "preparation",
    "save": "saved",
}


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return [*__all__]
