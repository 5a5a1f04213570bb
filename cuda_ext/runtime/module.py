"""The module type of generated packages: attributes are kernels, symbols and C++ namespaces.

Every generated package imports this module, so it imports nothing before a kernel is looked up.
"""

from __future__ import annotations

import os
import sys
from types import ModuleType

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any

    from cuda_ext.facts.manifest import Manifest
    from cuda_ext.runtime.loaded_library import Library
    from cuda_ext.runtime.lookup import Namespace

# The attributes that this type adds to a module.
_STATE = ("__library__", "__items__")


class KernelModule(ModuleType):
    """A module whose attributes are kernels, symbols and C++ namespaces; brackets take name expressions.

    Everything defined here has a name that begins with an underscore, which C++ reserves, and so hides no
    kernel.
    """

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") and name.endswith("__"):
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        value = vars(self)[name] = getattr(_global_namespace(self), name)
        return value

    def __getitem__(self, expression: str) -> Any:
        try:
            return self.__dict__["__items__"][expression]
        except (KeyError, TypeError):  # not looked up before, or not an expression
            pass
        value = _global_namespace(self)[expression]
        vars(self).setdefault("__items__", {})[expression] = value
        return value

    @property
    def __kernels__(self) -> KernelModule:
        """The module itself. Type checkers see brackets on it, which modules lack."""
        return self

    def __dir__(self) -> list[str]:
        return dir(_global_namespace(self))

    def __iter__(self) -> Iterator[str]:
        return iter(dir(self))

    def __contains__(self, name: object) -> bool:
        return name in dir(self)

    __all__ = property(__dir__)  # ``import *`` takes these names

    def _ipython_key_completions_(self) -> list[str]:
        return _global_namespace(self)._ipython_key_completions_()

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
                f"cannot pickle {self.__name__}: it is not an importable module; save it with cuda_ext.save"
            )
        return import_module, (self.__name__,)

    def __deepcopy__(self, memo: object) -> KernelModule:
        return self  # copies of its kernels also refer to it


def _global_namespace(module: KernelModule) -> Namespace:
    from cuda_ext.runtime.lookup import Namespace

    return Namespace(library_of(module), "")


def bind(name: str) -> None:
    """Turn the module `name`, which is being imported, into a module of kernels.

    Its manifest is read at the first use.
    """
    module = sys.modules[name]
    state = vars(module)
    # After a reload, forget earlier lookups.
    for known in [name for name in state if name in _STATE or not name.startswith("__")]:
        del state[known]
    module.__class__ = KernelModule
    _let_complete()


def _let_complete() -> None:
    if "IPython" in sys.modules:
        from cuda_ext.runtime.notebook import allow_completion

        allow_completion()


def module_from(manifest: Manifest, read: Callable[[str], bytes]) -> KernelModule:
    """Create a module of kernels that is not imported; `read` returns the content of the manifest's files."""
    from cuda_ext.runtime.loaded_library import Library

    module = KernelModule(manifest.module)
    vars(module)["__library__"] = Library(module, manifest, read)
    _let_complete()
    return module


def library_of(module: ModuleType) -> Library:
    """Return the library of a module of kernels.

    Raises :class:`TypeError` for other modules, :class:`~cuda_ext.errors.ManifestError` for a damaged one.
    """
    if not isinstance(module, KernelModule):
        raise TypeError(f"expected a module of kernels, as an import gives it, found {module!r}")
    state = vars(module)
    if "__library__" not in state:
        # If two threads get here, one of them stores its library.
        state.setdefault("__library__", _open_library(module))
    library: Library = state["__library__"]
    return library


def _is_readable(path: str) -> bool:
    """Return True if `path` is a regular file of at most 2 GiB. It imports nothing: every module calls it."""
    return os.path.isfile(path) and os.path.getsize(path) <= 2 << 30  # noqa: PTH113, PTH202


def _open_library(module: KernelModule) -> Library:
    from cuda_ext.errors import ManifestError
    from cuda_ext.facts.manifest import FILE_NAME, loads
    from cuda_ext.runtime.loaded_library import Library

    loader: Any = module.__spec__.loader if module.__spec__ else None
    directory = os.path.dirname(module.__file__ or "")  # noqa: PTH120 - pathlib is slow to import

    def read(file: str) -> bytes:
        path = os.path.join(directory, file)  # noqa: PTH118 - as above
        if os.path.exists(path) and not _is_readable(path):  # noqa: PTH110 - as above
            from cuda_ext.filesystem.regular_file import read_file  # raises the error

            return read_file(path)
        try:
            content: bytes = loader.get_data(path)
        except OSError:
            raise
        except Exception as error:  # of a truncated or damaged archive
            raise OSError(f"its archive is damaged: {error}") from None
        return content

    origin = f"{module.__name__}: {FILE_NAME}"
    try:
        text = read(FILE_NAME)
    except OSError as error:
        raise ManifestError(
            f"cannot be read: {error.strerror or error}",
            where=origin,
            remedy="reinstall the package that holds it",
        ) from None
    return Library(module, loads(text, origin), read)
