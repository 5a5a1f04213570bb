"""The module that a generated package is.

It is imported with every such package, and therefore imports nothing itself before a kernel is looked up.
"""

from __future__ import annotations

import os
import sys
from types import ModuleType

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any

    from cuda_ext.manifest import Manifest
    from cuda_ext.runtime.driver.loaded_library import Library

__all__ = ["KernelModule", "bind", "library_of", "module_from"]

# What a module holds besides what it got by its import.
_OURS = ("__library__", "__items__")


class KernelModule(ModuleType):
    """A module whose attributes are kernels, symbols and C++ namespaces; brackets take name expressions.

    All that is defined here has a name with double underscores, which C++ reserves: nothing hides a kernel.
    """

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") and name.endswith("__"):
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        from cuda_ext.runtime.lookup import attribute

        found = vars(self)[name] = attribute(library_of(self), "", name)
        return found

    def __getitem__(self, expression: str) -> Any:
        try:
            return self.__dict__["__items__"][expression]
        except (KeyError, TypeError):  # it is the first time, or no expression
            pass
        from cuda_ext.runtime.lookup import item

        found = item(library_of(self), "", expression)
        vars(self).setdefault("__items__", {})[expression] = found
        return found

    def __dir__(self) -> list[str]:
        from cuda_ext.runtime.lookup import members

        return members(library_of(self), "")

    def __iter__(self) -> Iterator[str]:
        return iter(dir(self))

    def __contains__(self, name: object) -> bool:
        return name in dir(self)

    __all__ = property(__dir__)  # what * imports

    def __repr__(self) -> str:
        from cuda_ext.errors import ManifestError

        try:
            return f"<kernels of {self.__name__}: {', '.join(dir(self))}>"
        except ManifestError:
            return super().__repr__()

    def __reduce__(self) -> tuple[Any, ...]:
        from importlib import import_module

        if sys.modules.get(self.__name__) is not self:
            raise TypeError(
                f"cannot pickle {self.__name__}: it is no importable module; cuda_ext.save makes files of it"
            )
        return import_module, (self.__name__,)


def bind(name: str) -> None:
    """Make the module `name`, which is being imported, one of kernels. Its files are read on first use."""
    module = sys.modules[name]
    state = vars(module)
    for known in [name for name in state if name in _OURS or not name.startswith("__")]:
        del state[known]  # of before a reload
    module.__class__ = KernelModule


def module_from(manifest: Manifest, read: Callable[[str], bytes]) -> KernelModule:
    """A module of kernels that is no import; `read` gives the content of the files that `manifest` names."""
    from cuda_ext.runtime.driver.loaded_library import Library

    module = KernelModule(manifest.module)
    vars(module)["__library__"] = Library(manifest, read)
    return module


def library_of(module: KernelModule) -> Library:
    """What is behind `module`. Raises :class:`~cuda_ext.errors.ManifestError` if that is damaged."""
    state = vars(module)
    if "__library__" not in state:
        # Two threads may both come here; one of the two libraries stays.
        state.setdefault("__library__", _installed(module))
    library: Library = state["__library__"]
    return library


def _installed(module: KernelModule) -> Library:
    from cuda_ext.errors import ManifestError
    from cuda_ext.manifest import FILE_NAME, loads
    from cuda_ext.runtime.driver.loaded_library import Library

    loader: Any = module.__spec__.loader if module.__spec__ else None
    directory = os.path.dirname(module.__file__ or "")  # noqa: PTH120 - pathlib is not loaded

    def read(file: str) -> bytes:
        # The loader finds it in a zip archive, too.
        content: bytes = loader.get_data(os.path.join(directory, file))  # noqa: PTH118
        return content

    origin = f"{module.__name__}: {FILE_NAME}"
    try:
        text = read(FILE_NAME)
    except OSError as error:
        raise ManifestError(
            f"{origin} cannot be read: {error.strerror or error}; reinstall the package that holds it"
        ) from None
    return Library(loads(text, origin), read)
