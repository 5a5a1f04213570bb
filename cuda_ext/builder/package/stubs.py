"""Describe a module for type checkers and editors: a class for each kernel, template and namespace.

Their docstrings are what an editor shows beside a name: the C++ signature and the source. Attributes are
named as in C++; the names of classes and imports give way to them, so that a kernel may be called ``Kernel``
or ``Literal``.
"""

from __future__ import annotations

import json
import keyword
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from cuda_ext.manifest import Kernel, Manifest, Parameter, Symbol, Variants

__all__ = ["Attribute", "KernelClass", "NamespaceClass", "Stub", "TemplateClass", "describe"]

# Where the names in stubs come from, in the groups that imports are written in.
_ORIGINS = (
    {
        "builtins": ("object",),
        "typing": ("Any", "Literal", "SupportsFloat", "SupportsIndex", "overload"),
    },
    {
        "cuda_ext.runtime.types": (
            *("Dim", "Kernel", "KernelTemplate", "Namespace", "Pointer", "Stream", "Symbol"),
            *("TemplateArguments", "Variants"),
        ),
        "typing_extensions": ("Buffer",),
    },
)
_EXPRESSION = re.compile(r"(?P<name>\w+(?:::\w+)*)(?:<(?P<arguments>.*)>)?(?P<parameters>\(.*\))?")
# Names that parameters of a kernel cannot have when they are passed by keyword.
_RESERVED = frozenset(
    "self grid block threads shared cluster cooperative dependent stream wait".split()  # noqa: SIM905
)


# The lines of a docstring, as they stand between the quotes.
Doc = tuple[str, ...]


@dataclass(frozen=True)
class Attribute:
    """A name with its type and documentation."""

    name: str
    type: str
    doc: Doc


@dataclass(frozen=True)
class KernelClass:
    """A kernel, or variants of one, by ``base``; ``signature`` is its C++ declaration.

    ``parameters`` are names with types; the first ``positional`` ones cannot be passed by keyword.
    """

    name: str
    base: str
    doc: Doc
    signature: str
    parameters: tuple[tuple[str, str], ...]
    positional: int
    kind: str = "kernel"


@dataclass(frozen=True)
class TemplateClass:
    """A template or overloaded kernels. ``items`` are literals with the classes that they select."""

    name: str
    doc: Doc
    items: tuple[tuple[str, str], ...]
    attributes: tuple[Attribute, ...]
    kind: str = "template"


@dataclass(frozen=True)
class NamespaceClass:
    """A C++ namespace."""

    name: str
    doc: Doc
    attributes: tuple[Attribute, ...]
    kind: str = "namespace"


@dataclass(frozen=True)
class Stub:
    """The content of a stub.

    ``imports`` are modules with the names imported from them, in groups; ``names`` maps each imported name
    to its local alias.
    """

    module: str
    imports: tuple[Mapping[str, Sequence[str]], ...]
    names: Mapping[str, str]
    classes: tuple[KernelClass | TemplateClass | NamespaceClass, ...]
    attributes: tuple[Attribute, ...]


def describe(manifest: Manifest) -> Stub:
    """Describe the attributes of the module. The same manifest gives the same stub."""
    root = _tree(manifest)
    writer = _Writer(root, [unit.title for unit in manifest.units])
    attributes = writer.attributes(root, "")
    imports = tuple(filter(None, map(writer.imports, _ORIGINS)))
    return Stub(manifest.module, imports, writer.spelled, tuple(writer.classes), attributes)


@dataclass
class _Namespace:
    """The content of one C++ namespace, by plain name; kernels with their template arguments, if any.

    Variants are one kernel here, since all their candidates take the same arguments.
    """

    kernels: dict[str, list[tuple[str | None, Kernel]]] = field(default_factory=dict)
    variants: dict[str, tuple[Variants, Kernel]] = field(default_factory=dict)
    symbols: dict[str, Symbol] = field(default_factory=dict)
    namespaces: dict[str, _Namespace] = field(default_factory=dict)

    def within(self, scope: Iterable[str]) -> _Namespace:
        here = self
        for part in scope:
            here = here.namespaces.setdefault(part, _Namespace())
        return here

    def names(self) -> Iterator[str]:
        yield from (*self.kernels, *self.variants, *self.symbols, *self.namespaces)
        for inner in self.namespaces.values():
            yield from inner.names()


def _tree(manifest: Manifest) -> _Namespace:
    root = _Namespace()
    for kernel in manifest.kernels:
        match = _EXPRESSION.fullmatch(kernel.expression)
        # Casts choose an overload without naming it, and an overloaded template takes brackets twice.
        if match is None or match["name"].endswith("_cast") or (match["arguments"] and match["parameters"]):
            continue
        *scope, plain = match["name"].split("::")
        if all(map(_is_attribute, (*scope, plain))):
            item = match["arguments"] if match["arguments"] is not None else match["parameters"]
            root.within(scope).kernels.setdefault(plain, []).append((item, kernel))
    by_expression = {kernel.expression: kernel for kernel in manifest.kernels}
    for variants in manifest.variants:
        *scope, plain = variants.name.split("::")
        if all(map(_is_attribute, (*scope, plain))):
            kernel = by_expression[variants.candidates[-1].kernel]
            root.within(scope).variants[plain] = variants, kernel._replace(expression=variants.name)
    for symbol in manifest.symbols:
        *scope, plain = symbol.name.split("::")
        if all(map(_is_attribute, (*scope, plain))):
            root.within(scope).symbols[plain] = symbol
    return root


def _quoted(lines: Iterable[str]) -> Doc:
    """Escape `lines` for a string literal: a signature may hold a character such as ``'\\n'``."""
    return tuple(line.replace("\\", r"\\").replace('"', r"\"") for line in lines)


def _conditions(variants: Variants) -> Iterator[str]:
    """Document which kernel the name stands for, and when."""
    yield "A call takes the first of::"
    yield ""
    for candidate in variants.candidates:
        yield f"    {candidate.kernel} if {candidate.when}" if candidate.when else f"    {candidate.kernel}"


def _is_attribute(name: str) -> bool:
    """Whether `name` can be an attribute in Python; others are reached with brackets."""
    dunder = name.startswith("__") and name.endswith("__")
    return name.isidentifier() and not keyword.iskeyword(name) and not dunder


class _Writer:
    """Makes classes out of a tree, none of which hides an attribute or another class.

    `sources` are the titles of the units.
    """

    def __init__(self, root: _Namespace, sources: Sequence[str]) -> None:
        self._sources = sources
        self._taken = set(root.names())
        self._used: set[str] = set()
        self.spelled = {
            name: self._unique(name) for group in _ORIGINS for names in group.values() for name in names
        }
        self.classes: list[KernelClass | TemplateClass | NamespaceClass] = []

    def attributes(self, namespace: _Namespace, scope: str) -> tuple[Attribute, ...]:
        """Return the attributes of `namespace`, whose C++ name is `scope`."""
        prefix = "".join(f"_{part}" for part in scope.split("::") if part)
        found: list[Attribute] = []
        every = {*namespace.kernels, *namespace.variants, *namespace.symbols, *namespace.namespaces}
        for name in sorted(every):
            inner = namespace.namespaces.get(name)
            full = f"{scope}::{name}" if scope else name
            if name in namespace.kernels:
                found.append(self._kernels(name, full, namespace.kernels[name], inner))
            elif name in namespace.variants:
                variants, kernel = namespace.variants[name]
                doc = (kernel.signature, "", *_conditions(variants))
                made = self._kernel(f"{prefix}_{name}", kernel, doc, "Variants")
                found.append(Attribute(name, made.name, made.doc))
            elif name in namespace.symbols:
                found.append(Attribute(name, self._use("Symbol"), self._symbol(namespace.symbols[name])))
            elif inner is not None:
                attributes = self.attributes(inner, full)
                self._use("Namespace")
                doc = (f"The C++ namespace {full}.",)
                self.classes.append(NamespaceClass(self._unique(f"{prefix}_{name}"), doc, attributes))
                found.append(Attribute(name, self.classes[-1].name, doc))
        return tuple(found)

    def imports(self, group: Mapping[str, Iterable[str]]) -> dict[str, list[str]]:
        """Return the imports of the names in `group` that are used."""
        found: dict[str, list[str]] = {}
        for module, names in group.items():
            for name in sorted(self._used.intersection(names)):
                if (spelled := self.spelled[name]) != name:
                    found.setdefault(module, []).append(f"{name} as {spelled}")
                elif module != "builtins":
                    found.setdefault(module, []).append(name)
        return found

    def _kernels(
        self,
        name: str,
        full: str,
        kernels: Sequence[tuple[str | None, Kernel]],
        namespace: _Namespace | None,
    ) -> Attribute:
        """Return the attribute for the kernels called `name`, or `full` with its namespaces."""
        prefix = "".join(f"_{part}" for part in full.split("::"))
        match kernels:
            case [(None, kernel)] if namespace is None:
                made = self._kernel(prefix, kernel, self._origin(kernel))
                return Attribute(name, made.name, made.doc)
        items = tuple(
            (
                json.dumps(item, ensure_ascii=False),
                self._kernel(f"{prefix}_{item}", kernel, self._origin(kernel)).name,
            )
            for item, kernel in kernels
            if item is not None
        )
        attributes = self.attributes(namespace, full) if namespace is not None else ()
        self._use("KernelTemplate")
        if items:
            for used in ("Any", "Literal", "TemplateArguments", "overload"):
                self._use(used)
        doc = self._choice(full, [kernel for _, kernel in kernels])
        self.classes.append(TemplateClass(self._unique(prefix), doc, items, attributes))
        return Attribute(name, self.classes[-1].name, doc)

    def _kernel(self, name: str, kernel: Kernel, doc: Doc, base: str = "Kernel") -> KernelClass:
        for used in ("Any", "Dim", base, "Stream", "SupportsIndex", "overload"):
            self._use(used)
        parameters: dict[str, str] = {}
        positional = 0
        for index, parameter in enumerate(kernel.parameters, 1):
            spelled = parameter.name if parameter.name.isidentifier() else "arg"
            while spelled in _RESERVED or spelled in parameters or keyword.iskeyword(spelled):
                spelled += "_"
            if spelled != parameter.name:
                positional = index
            parameters[spelled] = self._type(parameter)
        (signature,) = _quoted((kernel.signature,))
        typed = tuple(parameters.items())
        made = KernelClass(self._unique(name), self.spelled[base], _quoted(doc), signature, typed, positional)
        self.classes.append(made)
        return made

    def _origin(self, kernel: Kernel) -> Doc:
        return (kernel.signature, "", f"A kernel of {self._sources[kernel.unit]}.")

    def _choice(self, full: str, kernels: Sequence[Kernel]) -> Doc:
        """Document the instantiations to select from."""
        sources = ", ".join(dict.fromkeys(self._sources[kernel.unit] for kernel in kernels))
        signatures = (f"    {kernel.signature}" for kernel in kernels)
        return _quoted((f"The kernels {full} of {sources}.", "", "Built ahead::", "", *signatures))

    def _symbol(self, symbol: Symbol) -> Doc:
        element, bracket, shape = symbol.type.partition("[")
        size = f"{symbol.size:,} {'byte' if symbol.size == 1 else 'bytes'}"
        where = f"A variable of {self._sources[symbol.unit]}, {size}."
        return _quoted((f"__{symbol.space}__ {element} {symbol.name}{bracket}{shape}", "", where))

    def _type(self, parameter: Parameter) -> str:
        match parameter.kind:
            case "pointer":
                return self._use("Pointer")
            case "integer" | "unsigned" | "enum":
                return self._use("SupportsIndex")
            case "float":
                return self._use("SupportsFloat")
            case "struct" if parameter.type in ("__half", "__nv_bfloat16"):
                return self._use("SupportsFloat")
            case "struct":
                return self._use("Buffer")
            case "bool":
                return "bool"
            case _:
                return self._use("object")

    def _use(self, name: str) -> str:
        self._used.add(name)
        return self.spelled[name]

    def _unique(self, name: str) -> str:
        """Return a class name derived from `name`, whatever characters that has."""
        unique = re.sub(r"\W+", "_", name).rstrip("_") or "_"
        if unique in self._taken:
            unique = f"_{unique}"
        while unique in self._taken:
            unique += "_"
        self._taken.add(unique)
        return unique
