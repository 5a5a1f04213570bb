"""The kernels, symbols and variants of a manifest by the names that look-ups use."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from cuda_ext.compiler.name_expressions import normalise, plain_name
from cuda_ext.manifest import Kernel, Manifest, Symbol, Variants

__all__ = ["Index"]


@dataclass(frozen=True, slots=True)
class Index:
    """Maps names to what they name. *Plain* names, ``ns::reduce``, have no template arguments or parameters.

    ``expressions`` maps normalised name expressions to kernels, and ``kernels`` plain names to all kernels of
    that name. ``symbols`` maps a name to one symbol for each unit that defines it. ``members`` maps each
    namespace (``""`` is the global one) to the names of its kernels, symbols, variants and namespaces.
    """

    expressions: Mapping[str, Kernel]
    kernels: Mapping[str, tuple[Kernel, ...]]
    symbols: Mapping[str, tuple[Symbol, ...]]
    variants: Mapping[str, Variants]
    members: Mapping[str, tuple[str, ...]]

    @classmethod
    def of(cls, manifest: Manifest) -> Index:
        kernels: dict[str, list[Kernel]] = {}
        for kernel in manifest.kernels:
            kernels.setdefault(plain_name(kernel.expression), []).append(kernel)
        symbols: dict[str, list[Symbol]] = {}
        for symbol in manifest.symbols:
            symbols.setdefault(normalise(symbol.name), []).append(symbol)
        variants = {each.name: each for each in manifest.variants}
        members: dict[str, set[str]] = {"": set()}
        for name in (*kernels, *map(plain_name, symbols), *variants):
            for namespace, member in _steps(name):
                members.setdefault(namespace, set()).add(member)
        return cls(
            {normalise(kernel.expression): kernel for kernel in manifest.kernels},
            {name: tuple(group) for name, group in kernels.items()},
            {name: tuple(group) for name, group in symbols.items()},
            variants,
            {namespace: tuple(sorted(names)) for namespace, names in members.items()},
        )


def _steps(name: str) -> Iterator[tuple[str, str]]:
    """Split ``a::b::c`` into ``("", "a")``, ``("a", "b")`` and ``("a::b", "c")``."""
    namespace = ""
    for part in name.split("::"):
        yield namespace, part
        namespace = f"{namespace}::{part}" if namespace else part
