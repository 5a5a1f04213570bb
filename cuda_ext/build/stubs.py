"""What type checkers are told of a module: a class for each kernel, template and namespace.

Attributes are named as in C++. The names of classes and imports give way to them, so that a kernel may be
called ``Kernel`` or ``Literal``.
"""

from __future__ import annotations

import json
import keyword
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from cuda_ext.manifest import Kernel, Manifest, Parameter

__all__ = ["KernelClass", "NamespaceClass", "Stub", "TemplateClass", "describe"]

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
# What parameters of a kernel cannot be called when they are given by name.
_RESERVED = frozenset(
    "self grid block threads shared cluster cooperative dependent stream wait".split()  # noqa: SIM905
)


@dataclass(frozen=True)
class KernelClass:
    """A kernel, or variants of one, as ``base`` says.

    Its ``parameters`` have types; so many of the first as ``positional`` says have no names.
    """

    name: str
    base: str
    doc: str
    parameters: tuple[tuple[str, str], ...]
    positional: int
    kind: str = "kernel"


@dataclass(frozen=True)
class TemplateClass:
    """A template or overloaded kernels. ``items`` are literals with the classes that they choose."""

    name: str
    items: tuple[tuple[str, str], ...]
    attributes: tuple[tuple[str, str], ...]
    kind: str = "template"


@dataclass(frozen=True)
class NamespaceClass:
    """A C++ namespace. ``attributes`` have types."""

    name: str
    attributes: tuple[tuple[str, str], ...]
    kind: str = "namespace"


@dataclass(frozen=True)
class Stub:
    """All that the text of a stub shows.

    ``imports`` are modules with what is imported from them, in groups; ``names`` says how each imported
    name is written.
    """

    module: str
    imports: tuple[Mapping[str, Sequence[str]], ...]
    names: Mapping[str, str]
    classes: tuple[KernelClass | TemplateClass | NamespaceClass, ...]
    attributes: tuple[tuple[str, str], ...]


def describe(manifest: Manifest) -> Stub:
    """Say what the attributes of the module are. The same manifest gives the same stub."""
    root = _tree(manifest)
    writer = _Writer(root)
    attributes = writer.attributes(root, "")
    imports = tuple(filter(None, map(writer.imports, _ORIGINS)))
    return Stub(manifest.module, imports, writer.spelled, tuple(writer.classes), attributes)


@dataclass
class _Namespace:
    """What is in one C++ namespace, by plain name; kernels with what stands in brackets, if anything.

    Variants are one kernel here, as all their candidates are called alike.
    """

    kernels: dict[str, list[tuple[str | None, Kernel]]] = field(default_factory=dict)
    variants: dict[str, Kernel] = field(default_factory=dict)
    symbols: set[str] = field(default_factory=set)
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
            root.within(scope).variants[plain] = replace(kernel, expression=variants.name)
    for symbol in manifest.symbols:
        *scope, plain = symbol.name.split("::")
        if all(map(_is_attribute, (*scope, plain))):
            root.within(scope).symbols.add(plain)
    return root


def _is_attribute(name: str) -> bool:
    """Whether Python can spell it and leaves it to us; all else is reached with brackets."""
    dunder = name.startswith("__") and name.endswith("__")
    return name.isidentifier() and not keyword.iskeyword(name) and not dunder


class _Writer:
    """Makes classes out of a tree, none of which hides an attribute or another class."""

    def __init__(self, root: _Namespace) -> None:
        self._taken = set(root.names())
        self._used: set[str] = set()
        self.spelled = {
            name: self._unique(name) for group in _ORIGINS for names in group.values() for name in names
        }
        self.classes: list[KernelClass | TemplateClass | NamespaceClass] = []

    def attributes(self, namespace: _Namespace, prefix: str) -> tuple[tuple[str, str], ...]:
        """The attributes of `namespace` with their types; their classes begin with `prefix`."""
        found: dict[str, str] = {}
        every = {*namespace.kernels, *namespace.variants, *namespace.symbols, *namespace.namespaces}
        for name in sorted(every):
            inner = namespace.namespaces.get(name)
            if name in namespace.kernels:
                found[name] = self._kernels(f"{prefix}_{name}", namespace.kernels[name], inner)
            elif name in namespace.variants:
                found[name] = self._kernel(f"{prefix}_{name}", namespace.variants[name], "Variants")
            elif name in namespace.symbols:
                found[name] = self._use("Symbol")
            elif inner is not None:
                attributes = self.attributes(inner, f"{prefix}_{name}")
                self._use("Namespace")
                self.classes.append(NamespaceClass(self._unique(f"{prefix}_{name}"), attributes))
                found[name] = self.classes[-1].name
        return tuple(found.items())

    def imports(self, group: Mapping[str, Iterable[str]]) -> dict[str, list[str]]:
        """What is used of `group`, as it is imported."""
        found: dict[str, list[str]] = {}
        for module, names in group.items():
            for name in sorted(self._used.intersection(names)):
                if (spelled := self.spelled[name]) != name:
                    found.setdefault(module, []).append(f"{name} as {spelled}")
                elif module != "builtins":
                    found.setdefault(module, []).append(name)
        return found

    def _kernels(
        self, name: str, kernels: Sequence[tuple[str | None, Kernel]], namespace: _Namespace | None
    ) -> str:
        match kernels:
            case [(None, kernel)] if namespace is None:
                return self._kernel(name, kernel)
        items = tuple(
            (json.dumps(item, ensure_ascii=False), self._kernel(f"{name}_{item}", kernel))
            for item, kernel in kernels
            if item is not None
        )
        attributes = self.attributes(namespace, name) if namespace is not None else ()
        self._use("KernelTemplate")
        if items:
            for used in ("Any", "Literal", "TemplateArguments", "overload"):
                self._use(used)
        self.classes.append(TemplateClass(self._unique(name), items, attributes))
        return self.classes[-1].name

    def _kernel(self, name: str, kernel: Kernel, base: str = "Kernel") -> str:
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
        # A signature may hold a character such as '\\n'.
        doc = kernel.signature.replace("\\", r"\\").replace('"', r"\"")
        described = (self.spelled[base], doc, tuple(parameters.items()), positional)
        self.classes.append(KernelClass(self._unique(name), *described))
        return self.classes[-1].name

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
        """A class name after `name`, whatever stands in that."""
        unique = re.sub(r"\W+", "_", name).rstrip("_") or "_"
        if unique in self._taken:
            unique = f"_{unique}"
        while unique in self._taken:
            unique += "_"
        self._taken.add(unique)
        return unique
