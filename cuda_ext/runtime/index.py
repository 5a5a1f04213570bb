"""The kernels and symbols of a manifest, by the names that they are looked up with."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from cuda_ext.compiler.names import normalise
from cuda_ext.manifest import Kernel, Manifest, Symbol

__all__ = ["Index", "plain_name"]


@dataclass(frozen=True, slots=True)
class Index:
    """Names without template arguments and parameters are *plain*: ``ns::reduce``.

    ``expressions`` maps whole name expressions to kernels, ``kernels`` plain names to all kernels of that
    name, ``symbols`` names to symbols, one of each unit that has a variable of that name. ``members`` maps
    each namespace, the global one being empty, to the names of its kernels, symbols and namespaces.
    """

    expressions: Mapping[str, Kernel]
    kernels: Mapping[str, tuple[Kernel, ...]]
    symbols: Mapping[str, tuple[Symbol, ...]]
    members: Mapping[str, tuple[str, ...]]

    @classmethod
    def of(cls, manifest: Manifest) -> Index:
        kernels: dict[str, list[Kernel]] = {}
        for kernel in manifest.kernels:
            kernels.setdefault(plain_name(kernel.expression), []).append(kernel)
        symbols: dict[str, list[Symbol]] = {}
        for symbol in manifest.symbols:
            symbols.setdefault(normalise(symbol.name), []).append(symbol)
        members: dict[str, set[str]] = {"": set()}
        for name in (*kernels, *map(plain_name, symbols)):
            for namespace, member in _steps(name):
                members.setdefault(namespace, set()).add(member)
        return cls(
            {normalise(kernel.expression): kernel for kernel in manifest.kernels},
            {name: tuple(group) for name, group in kernels.items()},
            {name: tuple(group) for name, group in symbols.items()},
            {namespace: tuple(sorted(names)) for namespace, names in members.items()},
        )


def plain_name(expression: str) -> str:
    """`expression` without template arguments and parameters."""
    return re.split("[<(]", normalise(expression), maxsplit=1)[0]


def _steps(name: str) -> Iterator[tuple[str, str]]:
    """``("", "a")``, ``("a", "b")`` and ``("a::b", "c")`` for ``a::b::c``."""
    namespace = ""
    for part in name.split("::"):
        yield namespace, part
        namespace = f"{namespace}::{part}" if namespace else part
