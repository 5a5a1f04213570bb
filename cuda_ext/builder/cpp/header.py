"""The content of a module's C++ header: an object for each kernel, named as in device code.

Kernels keep their names and namespaces; a name that C++ or the header itself uses gets an underscore at its
end. Kernels that template syntax cannot select are named after their whole expression.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain, count
from typing import TypeAlias

from cuda_ext.builder.cpp.argument_ids import Argument, read_arguments
from cuda_ext.builder.cpp.kernel_classes import ORIGINS, KernelClass, fill_lines, identifier, kernel_class
from cuda_ext.builder.cpp.kernel_templates import Ids, Shape, by_ids
from cuda_ext.manifest import Kernel, Manifest

__all__ = [
    "Header",
    "Namespace",
    "Object",
    "OverloadsClass",
    "Specialisation",
    "TemplateClass",
    "describe",
    "module_path",
    "namespaces_of",
]

_SHOWN = 8  # kernels in a comment or message


@dataclass(frozen=True, slots=True)
class OverloadsClass:
    """Overloaded kernels; the arguments of a call select one."""

    name: str
    kernels: tuple[KernelClass, ...]


@dataclass(frozen=True, slots=True)
class Specialisation:
    """The class of a template for the arguments with these ids."""

    ids: Ids
    kernel: str


@dataclass(frozen=True, slots=True)
class TemplateClass:
    """A kernel template; ``message`` is the text of the static_assert for a missing instantiation."""

    name: str
    message: str
    specialisations: tuple[Specialisation, ...]


@dataclass(frozen=True, slots=True)
class Object:
    """What users call, of class ``type``.

    A template has ``parameters``, and ``ids`` of them are the arguments of its class.
    """

    name: str
    type: str
    comment: tuple[str, ...]
    parameters: str = ""
    ids: tuple[str, ...] = ()

    @property
    def declaration(self) -> str:
        head = f"inline constexpr cuda_ext_kernels::{self.type}"
        if not self.ids:
            return f"{head} {self.name}{{}};"
        return fill_lines(f"{head}<", self.ids, f"> {self.name}{{}};")


@dataclass(frozen=True, slots=True)
class Namespace:
    """A namespace of the module's device code; that with an empty name is the module's own."""

    name: str
    objects: tuple[Object, ...]
    namespaces: tuple[Namespace, ...]


@dataclass(frozen=True, slots=True)
class Header:
    """The content of a header.

    ``namespaces`` are the module's own, outermost first; ``imports`` are names that the classes use.
    ``with_absent`` says that a template has instantiations with different numbers of arguments.
    """

    module: str
    path: str
    namespaces: tuple[str, ...]
    imports: tuple[str, ...]
    with_absent: bool
    kernels: tuple[KernelClass, ...]
    overloads: tuple[OverloadsClass, ...]
    templates: tuple[TemplateClass, ...]
    root: Namespace
    symbols: tuple[str, ...]
    variants: tuple[str, ...]


def describe(manifest: Manifest) -> Header:
    """The header of a module. The same manifest gives the same header."""
    writer = _Writer(manifest)
    root = writer.namespace(_tree(manifest, writer.kernels), "", "")
    return Header(
        module=manifest.module,
        path=f"{module_path(manifest.module)}.h",
        namespaces=namespaces_of(manifest.module),
        imports=tuple(writer.imports()),
        with_absent=writer.with_absent,
        kernels=writer.kernels,
        overloads=tuple(writer.overloads),
        templates=tuple(writer.templates),
        root=root,
        symbols=tuple(f"{symbol.name}, {symbol.type}" for symbol in manifest.symbols),
        variants=tuple(f"{variants.name}: {variants}" for variants in manifest.variants),
    )


def module_path(module: str) -> str:
    """The path of the header of the module of that import name, without its suffix."""
    return module.replace(".", "/")


def namespaces_of(module: str) -> tuple[str, ...]:
    """The namespaces of the module of that import name, outermost first."""
    first, *rest = map(identifier, module.split("."))
    return (f"{first}_" if first in ("std", "cuda_ext") else first, *rest)


@dataclass(frozen=True, slots=True)
class _Entry:
    """A kernel with its class. ``arguments`` is the text between its angle brackets, if any."""

    kernel: Kernel
    class_: KernelClass
    arguments: str | None = None


_Entries: TypeAlias = Sequence[_Entry]


@dataclass
class _Scope:
    """The content of one C++ namespace by plain name; ``others`` can be named by their expression only."""

    kernels: dict[str, list[_Entry]] = field(default_factory=dict)
    others: list[_Entry] = field(default_factory=list)
    namespaces: dict[str, _Scope] = field(default_factory=dict)

    def within(self, scope: Iterable[str]) -> _Scope:
        here = self
        for part in scope:
            here = here.namespaces.setdefault(part, _Scope())
        return here


_EXPRESSION = re.compile(r"(?P<name>[^\W\d]\w*(?:::[^\W\d]\w*)*)(?:<(?P<arguments>.*)>)?(?:\(.*\))?")


def _tree(manifest: Manifest, classes: Sequence[KernelClass]) -> _Scope:
    root = _Scope()
    for kernel, class_ in zip(manifest.kernels, classes, strict=True):
        match = _EXPRESSION.fullmatch(kernel.expression)
        # A cast selects an overload, and names none.
        if match is None or match["name"] in ("static_cast", "reinterpret_cast"):
            root.others.append(_Entry(kernel, class_))
        else:
            *scope, plain = match["name"].split("::")
            entry = _Entry(kernel, class_, match["arguments"])
            root.within(scope).kernels.setdefault(plain, []).append(entry)
    return root


class _Names:
    """The names of one scope, each used once."""

    def __init__(self) -> None:
        self._taken: set[str] = set()

    def new(self, wanted: str) -> str:
        """`wanted`, or the closest name that is free."""
        plain = wanted.rstrip("_")
        candidates = chain([identifier(wanted), f"{plain}_"], (f"{plain}_{number}_" for number in count(2)))
        name = next(name for name in candidates if name not in self._taken)
        self._taken.add(name)
        return name


class _Writer:
    """Creates the objects and their classes."""

    def __init__(self, manifest: Manifest) -> None:
        self.kernels = tuple(
            kernel_class(index, kernel, manifest.units[kernel.unit].title)
            for index, kernel in enumerate(manifest.kernels)
        )
        self.overloads: list[OverloadsClass] = []
        self.templates: list[TemplateClass] = []
        self.with_absent = False
        self._class_names = _Names()

    def imports(self) -> Iterator[str]:
        """The names that the classes use."""
        texts = [type_ for kernel in self.kernels for type_ in kernel.types]
        texts += (i for template in self.templates for s in template.specialisations for i in s.ids)
        words = {"LaunchConfig", "Result", "StaticKernel"} if self.kernels else set()
        words.update(word for text in texts for word in re.findall(r"(?<![:\w])\w+", text))
        for origin, names in ORIGINS.items():
            yield from (f"{origin}{name}" for name in sorted(words.intersection(names)))

    def namespace(self, scope: _Scope, name: str, prefix: str) -> Namespace:
        """The namespace `name` with the content of `scope`, whose expressions begin with `prefix`."""
        names = _Names()
        # Namespaces are named first, since others depend on them.
        inner = {plain: names.new(plain) for plain in sorted(scope.namespaces)}
        objects: list[Object] = []
        others = list(scope.others)
        for plain, entries in sorted(scope.kernels.items()):
            own, left = self._objects(names.new(plain), entries, prefix + plain)
            objects += own
            others += left
        for entry in sorted(others, key=lambda e: e.kernel.expression):
            plain = re.sub(r"\W+", "_", entry.kernel.expression.removeprefix(prefix)).strip("_")
            plain = plain if plain.isidentifier() else f"kernel_{plain}"
            objects.append(Object(names.new(plain), entry.class_.name, (entry.class_.signature,)))
        return Namespace(
            name,
            tuple(objects),
            tuple(self.namespace(scope.namespaces[p], new, f"{prefix}{p}::") for p, new in inner.items()),
        )

    def _objects(self, name: str, entries: _Entries, qualified: str) -> tuple[list[Object], _Entries]:
        """The object `name`, `qualified` in device code, and those of `entries` that it cannot select."""
        if any(entry.arguments is not None for entry in entries):
            return self._template(name, entries, qualified)
        type_, left = self._overloads(entries)
        comment = _signatures(entry for entry in entries if entry not in left)
        return [Object(name, type_, comment)] if type_ else [], left

    def _overloads(self, entries: _Entries) -> tuple[str, _Entries]:
        """The class of all of `entries`, or "", and those that the types of arguments cannot select."""
        # One kernel may have several expressions.
        by_kernel = {(entry.kernel.unit, entry.kernel.lowered): entry for entry in reversed(entries)}
        distinct = list(by_kernel.values())[::-1]
        alike = Counter(entry.class_.types for entry in distinct)
        chosen = tuple(entry.class_ for entry in distinct if alike[entry.class_.types] == 1)
        left = [entry for entry in distinct if alike[entry.class_.types] > 1]
        if len(chosen) < 2:
            return "".join(kernel.name for kernel in chosen), left
        self.overloads.append(OverloadsClass(chosen[0].name.replace("kernel", "overloads"), chosen))
        return self.overloads[-1].name, left

    def _template(self, name: str, entries: _Entries, qualified: str) -> tuple[list[Object], _Entries]:
        """As :meth:`_objects`. A function of the same name is the template without arguments."""
        left: list[_Entry] = []
        known: dict[int, tuple[_Entry, Sequence[Argument]]] = {}
        for entry in entries:
            read = read_arguments(entry.arguments or "", entry.kernel.lowered)
            arguments = [argument for argument in read if argument is not None]
            if len(arguments) == len(read):
                known[entry.class_.index] = entry, arguments
            # The host may not know the enumerator.
            if len(arguments) < len(read) or any(argument.is_enumerator for argument in arguments):
                left.append(entry)
        shape = Shape.of([arguments for _, arguments in known.values()])
        if shape is None:
            return [], entries
        specialisations: list[Specialisation] = []
        for ids, kernels in by_ids(((i, arguments) for i, (_, arguments) in known.items()), shape).items():
            type_, unclear = self._overloads([known[index][0] for index in kernels])
            left += (entry for entry in unclear if entry not in left)
            if type_:
                specialisations.append(Specialisation(ids, type_))
        if not specialisations:
            return [], left
        self.with_absent |= shape.with_absent
        built = [entry for entry, _ in known.values()]
        class_name = self._class_names.new(re.sub(r"\W+", "_", qualified) + "_")
        self.templates.append(TemplateClass(class_name, _message(qualified, built), tuple(specialisations)))
        return [Object(name, class_name, _signatures(built), shape.parameters(name), shape.ids(name))], left


def _signatures(entries: Iterable[_Entry]) -> tuple[str, ...]:
    signatures = [entry.class_.signature for entry in entries]
    more = len(signatures) - _SHOWN
    return (*signatures[:_SHOWN], *([f"and {more} more"] if more > 0 else []))


def _message(name: str, entries: _Entries) -> str:
    built = [entry.kernel.expression for entry in entries]
    more = f" and {len(built) - _SHOWN} more" if len(built) > _SHOWN else ""
    text = f"{name} is not built for these template arguments, but as {', '.join(built[:_SHOWN])}{more}"
    # Compilers accept no other escapes in the text of a static_assert.
    escaped = text.replace("\\", r"\\").replace('"', r"\"")
    return f'"{escaped}; add what is missing to instantiate"'
