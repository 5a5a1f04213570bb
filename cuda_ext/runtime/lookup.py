"""From names to kernels and symbols: attributes follow C++ namespaces, brackets take name expressions."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import Any, TypeAlias

from cuda_ext import manifest
from cuda_ext.compiler.names import normalise
from cuda_ext.errors import ArgumentError, KernelNotFoundError
from cuda_ext.runtime.kernel import Kernel
from cuda_ext.runtime.library import Library
from cuda_ext.runtime.symbol import Symbol

__all__ = ["KernelTemplate", "Namespace", "attribute", "item", "members"]

Found: TypeAlias = "Kernel | KernelTemplate | Symbol | Namespace"


def attribute(library: Library, namespace: str, name: str) -> Found:
    """What is called `name`, without template arguments, in `namespace`, which is empty for the global one.

    Raises :class:`KernelNotFoundError`.
    """
    return _named(library, _qualified(namespace, name))


def item(library: Library, namespace: str, expression: str) -> Found:
    """The kernel or symbol that `expression` spells, relative to `namespace`, or what is of that name.

    Raises :class:`KernelNotFoundError`.
    """
    if not isinstance(expression, str):
        raise TypeError(f"expected a C++ name expression, found {expression!r}")
    name = _qualified(namespace, normalise(expression).removeprefix("::"))
    if kernel := library.index.expressions.get(name):
        return Kernel(library, kernel)
    return _named(library, name)


def members(library: Library, namespace: str) -> list[str]:
    """The names of the kernels, symbols and namespaces in `namespace`."""
    return list(library.index.members.get(namespace, ()))


def _qualified(namespace: str, name: str) -> str:
    return f"{namespace}::{name}" if namespace else name


def _named(library: Library, name: str) -> Found:
    index = library.index
    namespace = Namespace(library, name) if name in index.members and name else None
    match index.kernels.get(name, ()):
        case [kernel] if kernel.expression == name and namespace is None:
            return Kernel(library, kernel)
        case []:
            if symbol := index.symbols.get(name):
                return Symbol(library, symbol)
            if namespace is not None:
                return namespace
            raise _not_found(library, name)
        case kernels:
            return KernelTemplate(library, name, kernels, namespace)


class Namespace:
    """A C++ namespace: its attributes are the kernels, symbols and namespaces in it."""

    # Private names of this form cannot be those of a kernel.
    __slots__ = ("__library", "__name")

    def __init__(self, library: Library, name: str) -> None:
        self.__library = library
        self.__name = name

    def __getattr__(self, name: str) -> Any:
        if _is_dunder(name):
            raise AttributeError(name)
        return attribute(self.__library, self.__name, name)

    def __getitem__(self, expression: str) -> Any:
        return item(self.__library, self.__name, expression)

    def __dir__(self) -> list[str]:
        return members(self.__library, self.__name)

    def __repr__(self) -> str:
        return f"<namespace {self.__name}: {', '.join(dir(self))}>"


class KernelTemplate:
    """A kernel template, of which brackets choose an instantiation, or overloaded kernels.

    Where there is only one, it can be called as it is. Attributes are those of a namespace of the same name.
    """

    __slots__ = ("__kernels", "__library", "__name", "__namespace")

    def __init__(
        self,
        library: Library,
        name: str,
        kernels: Iterable[manifest.Kernel],
        namespace: Namespace | None,
    ) -> None:
        self.__library = library
        self.__name = name
        self.__kernels = tuple(kernels)
        self.__namespace = namespace
