"""The names of a module that are attributes in Python, by C++ namespace."""

from __future__ import annotations

import keyword
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from cuda_ext.facts.candidates import Variants
from cuda_ext.facts.kernels import Kernel
from cuda_ext.facts.manifest import Manifest
from cuda_ext.facts.structures import Structure
from cuda_ext.facts.symbols import Symbol
from cuda_ext.formats.spelling import template_name

_EXPRESSION = re.compile(r"(?P<name>\w+(?:::\w+)*)(?:<(?P<arguments>.*)>)?(?P<parameters>\(.*\))?")
# The limit of nested namespaces. A class repeats the declarations of its namespaces and the names around it.
_DEEPEST = 16


@dataclass
class Namespace:
    """The content of one C++ namespace, by plain name. Each kernel has the brackets that select it, if any.

    Variants are one kernel here, since all their candidates take the same arguments.
    """

    kernels: dict[str, list[tuple[str | None, Kernel]]] = field(default_factory=dict)
    variants: dict[str, tuple[Variants, Kernel]] = field(default_factory=dict)
    symbols: dict[str, Symbol] = field(default_factory=dict)
    structures: dict[str, list[Structure]] = field(default_factory=dict)
    namespaces: dict[str, Namespace] = field(default_factory=dict)

    def place(self, qualified: str) -> tuple[Namespace, str]:
        """Return the namespace of a name and its plain name; brackets alone select what attributes cannot."""
        *scope, plain = qualified.split("::")
        if len(scope) >= _DEEPEST or not all(map(_is_attribute, (*scope, plain))):
            return Namespace(), plain
        here = self
        for part in scope:
            here = here.namespaces.setdefault(part, Namespace())
        return here, plain

    def names(self) -> Iterator[str]:
        yield from (*self.kernels, *self.variants, *self.symbols, *self.structures, *self.namespaces)
        for inner in self.namespaces.values():
            yield from inner.names()


def gather(manifest: Manifest) -> Namespace:
    """Gather the names of a module that are attributes in Python, in its global namespace."""
    root = Namespace()
    for kernel in manifest.named_kernels:
        match = _EXPRESSION.fullmatch(kernel.expression)
        if match is None or match["name"].endswith("_cast"):  # a cast chooses an overload without a name
            continue
        here, plain = root.place(match["name"])
        item = match["arguments"] if match["arguments"] is not None else match["parameters"]
        if match["arguments"] is not None and match["parameters"]:
            item = None  # an overloaded template takes brackets twice
        here.kernels.setdefault(plain, []).append((item, kernel))
    by_expression = {kernel.expression: kernel for kernel in manifest.kernels}
    for variants in (each for each in manifest.variants if not each.specialised):
        here, plain = root.place(variants.name)
        kernel = by_expression[variants.candidates[-1].kernel]
        here.variants[plain] = variants, kernel._replace(expression=variants.name)
    for symbol in manifest.symbols:
        here, plain = root.place(symbol.name)
        here.symbols[plain] = symbol
    names = Counter(structure.name for structure in manifest.structures)
    for structure in manifest.structures:
        if structure.is_attribute and names[structure.name] == 1:
            here, plain = root.place(template_name(structure.name))
            here.structures.setdefault(plain, []).append(structure)
    return root


def _is_attribute(name: str) -> bool:
    dunder = name.startswith("__") and name.endswith("__")
    return name.isidentifier() and not keyword.iskeyword(name) and not dunder
