"""What type checkers are told of a module: a class for each kernel, template and namespace.

Attributes are named as in C++. The names of classes and imports give way to them, so that a kernel may be
called ``Kernel`` or ``Literal``.
"""

from __future__ import annotations

import json
import keyword
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal

from cuda_ext.manifest import Kernel, Manifest, Parameter

__all__ = ["Stub", "describe"]

# Where the names in stubs come from, in the groups that imports are written in.
_ORIGINS = (
    {
        "builtins": ("object", "str"),
        "typing": ("Literal", "SupportsFloat", "SupportsIndex", "Unpack", "overload"),
    },
    {
        "cuda_ext.runtime.types": ("Kernel", "KernelTemplate", "Launch", "Namespace", "Pointer", "Symbol"),
        "typing_extensions": ("Buffer",),
    },
)
_EXPRESSION = re.compile(r"(?P<name>\w+(?:::\w+)*)(?:<(?P<arguments>.*)>)?(?P<parameters>\(.*\))?")


@dataclass(frozen=True)
class Class:
    """A class of the stub.

    A ``kernel`` has ``parameters`` with their types and a ``doc``; a ``template`` has ``items``, what may
    stand in brackets (as a literal) with the class that comes out; a ``namespace`` has ``attributes``.
    """

    name: str
    kind: Literal["kernel", "template", "namespace"]
    doc: str = ""
    parameters: tuple[tuple[str, str], ...] = ()
    items: tuple[tuple[str, str], ...] = ()
    attributes: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class Stub:
    """All that the template of a stub shows.

    ``imports`` are modules with what is imported from them, in groups; ``names`` says how each imported
    name is written.
    """

    module: str
    imports: tuple[tuple[tuple[str, tuple[str, ...]], ...], ...]
    names: dict[str, str]
    classes: tuple[Class, ...]
    attributes: tuple[tuple[str, str], ...]


def describe(manifest: Manifest) -> Stub:
    """Say what the attributes of the module are. The same manifest gives the same stub."""
    root = _tree(manifest)
    return _Writer(root).stub(manifest.module, root)


@dataclass
class _Namespace:
    """What is in one C++ namespace, by plain name."""

    kernels: dict[str, list[tuple[str | None, Kernel]]] = field(default_factory=dict)
    symbols: set[str] = field(default_factory=set)
    namespaces: dict[str, _Namespace] = field(default_factory=dict)

    def within(self, scope: Iterable[str]) -> _Namespace:
        here = self
        for part in scope:
            here = here.namespaces.setdefault(part, _Namespace())
        return here

    def names(self) -> Iterator[str]:
        yield from (*self.kernels, *self.symbols, *self.namespaces)
        for inner in self.namespaces.values():
            yield from inner.names()


def _tree(manifest: Manifest) -> _Namespace:
    root = _Namespace()
    for kernel in manifest.kernels:
        match = _EXPRESSION.fullmatch(kernel.expression)
        if match is None or match["name"].endswith("_cast"):
            continue  # a cast, which picks one of several overloads
        *scope, plain = match["name"].split("::")
        if all(map(_is_attribute, (*scope, plain))):
            arguments = None if match["parameters"] else match["arguments"]
            root.within(scope).kernels.setdefault(plain, []).append((arguments, kernel))
    for symbol in manifest.symbols:
        *scope, plain = symbol.name.split("::")
        if all(map(_is_attribute, (*scope, plain))):
            root.within(scope).symbols.add(plain)
    return root


def _is_attribute(name: str) -> bool:
    """Whether Python can spell it and leaves it to us; all else is reached with brackets."""
    return (
        name.isidentifier()
        and not keyword.iskeyword(name)
        and not (name.startswith("__") and name.endswith("__"))
    )


class _Writer:
    """Makes classes out of a tree, none of which hides an attribute or another class."""

    def __init__(self, root: _Namespace) -> None:
        self._taken = set(root.names())
        self._names = {
            name: self._unique(name) for group in _ORIGINS for names in group.values() for name in names
        }
        self._used: set[str] = set()
        self._classes: list[Class] = []

    def stub(self, module: str, root: _Namespace) -> Stub:
        attributes = self._attributes(root, "")
        # The template itself writes these.
        if any(c.kind == "kernel" for c in self._classes):
            self._used |= {"Kernel", "Launch", "Unpack"}
        if any(c.kind == "template" for c in self._classes):
            self._used |= {"Kernel", "KernelTemplate", "Literal", "overload", "str"}
        if any(c.kind == "namespace" for c in self._classes):
            self._used |= {"Namespace"}
        imports = [self._imports(group) for group in _ORIGINS]
        return Stub(module, tuple(filter(None, imports)), self._names, tuple(self._classes), attributes)

    def _imports(self, group: Mapping[str, Iterable[str]]) -> tuple[tuple[str, tuple[str, ...]], ...]:
        found = []
        for module, names in group.items():
            used = [
                name if self._names[name] == name else f"{name} as {self._names[name]}"
                for name in names
                if name in self._used and not (module == "builtins" and self._names[name] == name)
            ]
            if used:
                found.append((module, tuple(used)))
        return tuple(found)

    def _attributes(self, namespace: _Namespace, prefix: str) -> tuple[tuple[str, str], ...]:
        """Name and type of each attribute. A kernel hides a symbol, and both hide a namespace."""
        found: dict[str, str] = {}
        for name, inner in namespace.namespaces.items():
            if name not in namespace.kernels and name not in namespace.symbols:
                attributes = self._attributes(inner, f"{prefix}_{name}")
                found[name] = self._add(f"{prefix}_{name}", "namespace", attributes=attributes)
        found |= dict.fromkeys(namespace.symbols, self._use("Symbol") if namespace.symbols else "")
        for name, instances in namespace.kernels.items():
            found[name] = self._kernel(f"{prefix}_{name}", instances)
        return tuple(sorted(found.items()))

    def _kernel(self, name: str, instances: list[tuple[str | None, Kernel]]) -> str:
        match instances:
            case [(None, kernel)] if "(" not in kernel.expression:
                return self._instance(name, kernel)
        items = tuple(
            (json.dumps(arguments, ensure_ascii=False), self._instance(f"{name}_{arguments}", kernel))
            for arguments, kernel in instances
            if arguments is not None
        )
        return self._add(name, "template", items=items) if items else self._use("KernelTemplate")

    def _instance(self, name: str, kernel: Kernel) -> str:
        # A signature may hold a character such as '\\n'.
        doc = kernel.signature.replace("\\", r"\\").replace('"', r"\"")
        return self._add(name, "kernel", doc=doc, parameters=tuple(self._parameters(kernel.parameters)))

    def _parameters(self, parameters: Iterable[Parameter]) -> Iterator[tuple[str, str]]:
        taken = {"self"}
        for parameter in parameters:
            name = parameter.name if parameter.name.isidentifier() else "arg"
            while name in taken or keyword.iskeyword(name):
                name += "_"
            taken.add(name)
            yield name, self._type(parameter)

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
        return self._names[name]

    def _add(
        self,
        name: str,
        kind: Literal["kernel", "template", "namespace"],
        doc: str = "",
        parameters: tuple[tuple[str, str], ...] = (),
        items: tuple[tuple[str, str], ...] = (),
        attributes: tuple[tuple[str, str], ...] = (),
    ) -> str:
        unique = self._unique(re.sub(r"\W+", "_", name).rstrip("_"))
        self._classes.append(Class(unique, kind, doc, parameters, items, attributes))
        return unique

    def _unique(self, name: str) -> str:
        if name in self._taken:
            name = f"_{name}"
        while name in self._taken:
            name += "_"
        self._taken.add(name)
        return name
