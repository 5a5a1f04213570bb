"""The C++ namespaces of a module, as its stub declares them."""

from __future__ import annotations

import keyword
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from cuda_ext.manifest import Kernel, Manifest, Symbol, Variants

_EXPRESSION = re.compile(r"(?P<name>\w+(?:::\w+)*)(?:<(?P<arguments>.*)>)?(?P<parameters>\(.*\))?")
# The limit of nested namespaces. A class repeats the declarations of its namespaces and the names around it.
_DEEPEST = 16


@dataclass
class StubNamespace:
    """The content of one C++ namespace, by plain name. Each kernel has the brackets that select it, if any.

    Variants are one kernel here, since all their candidates take the same arguments.
    """

    kernels: dict[str, list[tuple[str | None, Kernel]]] = field(default_factory=dict)
    variants: dict[str, tuple[Variants, Kernel]] = field(default_factory=dict)
    symbols: dict[str, Symbol] = field(default_factory=dict)
    namespaces: dict[str, StubNamespace] = field(default_factory=dict)

    def within(self, scope: Iterable[str]) -> StubNamespace:
        here = self
        for part in scope:
            here = here.namespaces.setdefault(part, StubNamespace())
        return here

    def names(self) -> Iterator[str]:
        yield from (*self.kernels, *self.variants, *self.symbols, *self.namespaces)
        for inner in self.namespaces.values():
            yield from inner.names()


def gather_namespaces(manifest: Manifest) -> StubNamespace:
    """Gather the names of a module that are attributes in Python, in its global namespace."""
    root = StubNamespace()
    for kernel in manifest.named_kernels:
        match = _EXPRESSION.fullmatch(kernel.expression)
        if match is None or match["name"].endswith("_cast"):  # a cast chooses an overload without a name
            continue
        *scope, plain = match["name"].split("::")
        if _are_attributes(*scope, plain):
            item = match["arguments"] if match["arguments"] is not None else match["parameters"]
            if match["arguments"] is not None and match["parameters"]:
                item = None  # an overloaded template takes brackets twice
            root.within(scope).kernels.setdefault(plain, []).append((item, kernel))
    by_expression = {kernel.expression: kernel for kernel in manifest.kernels}
    for variants in (each for each in manifest.variants if not each.specialised):
        *scope, plain = variants.name.split("::")
        if _are_attributes(*scope, plain):
            kernel = by_expression[variants.candidates[-1].kernel]
            root.within(scope).variants[plain] = variants, kernel._replace(expression=variants.name)
    for symbol in manifest.symbols:
        *scope, plain = symbol.name.split("::")
        if _are_attributes(*scope, plain):
            root.within(scope).symbols[plain] = symbol
    return root


def _are_attributes(*names: str) -> bool:
    """Return True if Python attributes can spell the nested `names`; others need brackets."""
    return len(names) <= _DEEPEST and all(map(_is_attribute, names))


def _is_attribute(name: str) -> bool:
    dunder = name.startswith("__") and name.endswith("__")
    return name.isidentifier() and not keyword.iskeyword(name) and not dunder
