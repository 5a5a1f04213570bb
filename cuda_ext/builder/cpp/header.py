"""The content of a module's C++ header: an object for each kernel, named as in device code.

Kernels keep their names and namespaces; a name that C++ or the header itself uses gets an underscore at its
end. Kernels that template syntax cannot select are named after their whole expression.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain, count
from typing import NamedTuple

from cuda_ext.builder.cpp.argument_ids import Argument, read_arguments
from cuda_ext.builder.cpp.kernel_classes import ORIGINS, KernelClass, fill_lines, identifier
from cuda_ext.builder.cpp.kernel_templates import Ids, Shape, by_ids
from cuda_ext.manifest import Manifest

__all__ = ["Header", "Namespace", "Object", "TemplateClass"]

_SHOWN = 8  # kernels in a comment or message


class TemplateClass(NamedTuple):
    """A kernel template: the class of each instantiation by the ids of its arguments.

    ``message`` is the text of the static_assert for a missing instantiation.
    """

    name: str
    message: str
    specialisations: Mapping[Ids, str]


class Object(NamedTuple):
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


class Namespace(NamedTuple):
    """A namespace of the module's device code; that with an empty name is the module's own."""

    name: str
    objects: list[Object]
    namespaces: list[Namespace]


_Kernels = Sequence[KernelClass]
_EXPRESSION = re.compile(r"(?P<name>[^\W\d]\w*(?:::[^\W\d]\w*)*)(?:<(?P<arguments>.*)>)?(?:\(.*\))?")


class Header:
    """The content of a module's header. The same manifest gives the same header.

    ``namespaces`` are the module's own, outermost first: those of its import name, or `namespace` as C++
    spells it. ``overloads`` are the classes of overloaded kernels,
    of which the arguments of a call select one. ``with_absent`` says that a template has instantiations with
    different numbers of arguments.
    """

    def __init__(self, manifest: Manifest, namespace: str | None = None) -> None:
        self.path = f"{manifest.module.replace('.', '/')}.h"
        first, *rest = map(identifier, manifest.module.split("."))
        own = (f"{first}_" if first in ("std", "cuda_ext") else first, *rest)
        self.namespaces = tuple(namespace.split("::")) if namespace else own
        self.kernels = [
            KernelClass(index, kernel, manifest.units[kernel.unit].title)
            for index, kernel in enumerate(manifest.kernels)
        ]
        self.overloads: dict[str, _Kernels] = {}
        self.templates: list[TemplateClass] = []
        self.with_absent = False
        self._class_names: set[str] = set()
        self.root = self._namespace("", [(_path(kernel), kernel) for kernel in self.kernels], "")

    @property
    def imports(self) -> Iterator[str]:
        """The names that the classes use."""
        texts = [type_ for kernel in self.kernels for type_ in kernel.types]
        texts += (i for template in self.templates for ids in template.specialisations for i in ids)
        words = {"LaunchConfig", "Result", "StaticKernel"} if self.kernels else set()
        words.update(word for text in texts for word in re.findall(r"(?<![:\w])\w+", text))
        for origin, names in ORIGINS.items():
            yield from (f"{origin}{name}" for name in sorted(words.intersection(names)))

    def _namespace(
        self, name: str, kernels: Iterable[tuple[Sequence[str], KernelClass]], prefix: str
    ) -> Namespace:
        """The namespace `name` with `kernels`, each with its path here; expressions begin with `prefix`."""
        by_scope: dict[str, list[tuple[Sequence[str], KernelClass]]] = {}
        by_name: dict[str, list[KernelClass]] = {}
        others: list[KernelClass] = []
        for path, kernel in kernels:
            match path:
                case [scope, _, *_]:
                    by_scope.setdefault(scope, []).append((path[1:], kernel))
                case [plain]:
                    by_name.setdefault(plain, []).append(kernel)
                case _:
                    others.append(kernel)
        taken: set[str] = set()
        # Namespaces are named first, since others depend on them.
        scopes = {scope: _free_name(scope, taken) for scope in sorted(by_scope)}
        objects: list[Object] = []
        for plain, alike in sorted(by_name.items()):
            own, left = self._objects(_free_name(plain, taken), alike, prefix + plain)
            objects += own
            others += left
        for kernel in sorted(others, key=lambda k: k.kernel.expression):
            plain = re.sub(r"\W+", "_", kernel.kernel.expression.removeprefix(prefix)).strip("_")
            plain = plain if plain.isidentifier() else f"kernel_{plain}"
            objects.append(Object(_free_name(plain, taken), kernel.name, (kernel.signature,)))
        inner = [self._namespace(new, by_scope[s], f"{prefix}{s}::") for s, new in scopes.items()]
        return Namespace(name, objects, inner)

    def _objects(self, name: str, kernels: _Kernels, qualified: str) -> tuple[list[Object], _Kernels]:
        """The object `name`, `qualified` in device code, and those of `kernels` that it cannot select."""
        if any(_arguments(kernel) is not None for kernel in kernels):
            return self._template(name, kernels, qualified)
        type_, left = self._overloads(kernels)
        comment = _signatures([kernel for kernel in kernels if kernel not in left])
        return [Object(name, type_, comment)] if type_ else [], left

    def _overloads(self, kernels: _Kernels) -> tuple[str, _Kernels]:
        """The class of all of `kernels`, or "", and those that the types of arguments cannot select."""
        # One kernel may have several expressions.
        by_kernel = {(each.kernel.unit, each.kernel.lowered): each for each in reversed(kernels)}
        distinct = list(by_kernel.values())[::-1]
        alike = Counter(kernel.types for kernel in distinct)
        chosen = [kernel for kernel in distinct if alike[kernel.types] == 1]
        left = [kernel for kernel in distinct if alike[kernel.types] > 1]
        if len(chosen) < 2:
            return "".join(kernel.name for kernel in chosen), left
        name = chosen[0].name.replace("kernel", "overloads")
        self.overloads[name] = chosen
        return name, left

    def _template(self, name: str, kernels: _Kernels, qualified: str) -> tuple[list[Object], _Kernels]:
        """As :meth:`_objects`. A function of the same name is the template without arguments."""
        left: list[KernelClass] = []
        known: dict[KernelClass, Sequence[Argument]] = {}
        for kernel in kernels:
            read = read_arguments(_arguments(kernel) or "", kernel.kernel.lowered)
            arguments = [argument for argument in read if argument is not None]
            if len(arguments) == len(read):
                known[kernel] = arguments
            # The host may not know the enumerator.
            if len(arguments) < len(read) or any(argument.is_enumerator for argument in arguments):
                left.append(kernel)
        shape = Shape.of(known.values())
        if shape is None:
            return [], kernels
        specialisations: dict[Ids, str] = {}
        for ids, alike in by_ids(known, shape).items():
            type_, unclear = self._overloads(alike)
            left += (kernel for kernel in unclear if kernel not in left)
            if type_:
                specialisations[ids] = type_
        if not specialisations:
            return [], left
        self.with_absent |= shape.with_absent
        class_name = _free_name(re.sub(r"\W+", "_", qualified) + "_", self._class_names)
        self.templates.append(TemplateClass(class_name, _message(qualified, list(known)), specialisations))
        comment = _signatures(list(known))
        return [Object(name, class_name, comment, *shape.parameters(name))], left


def _path(kernel: KernelClass) -> Sequence[str]:
    """The namespaces and the name of `kernel`; empty if only its whole expression can name it."""
    match = _EXPRESSION.fullmatch(kernel.kernel.expression)
    # A cast selects an overload, and names none.
    if match is None or match["name"] in ("static_cast", "reinterpret_cast"):
        return ()
    return match["name"].split("::")


def _arguments(kernel: KernelClass) -> str | None:
    """The text between the angle brackets of `kernel`, if any."""
    match = _EXPRESSION.fullmatch(kernel.kernel.expression)
    return match["arguments"] if match else None


def _free_name(wanted: str, taken: set[str]) -> str:
    """`wanted`, or the closest name that is not in `taken`; add it there."""
    plain = wanted.rstrip("_")
    candidates = chain([identifier(wanted), f"{plain}_"], (f"{plain}_{number}_" for number in count(2)))
    name = next(name for name in candidates if name not in taken)
    taken.add(name)
    return name


def _signatures(kernels: _Kernels) -> tuple[str, ...]:
    more = len(kernels) - _SHOWN
    return (*(k.signature for k in kernels[:_SHOWN]), *([f"and {more} more"] if more > 0 else []))


def _message(name: str, kernels: _Kernels) -> str:
    built = [kernel.kernel.expression for kernel in kernels]
    more = f" and {len(built) - _SHOWN} more" if len(built) > _SHOWN else ""
    text = f"{name} is not built for these template arguments, but as {', '.join(built[:_SHOWN])}{more}"
    # Compilers accept no other escapes in the text of a static_assert.
    escaped = text.replace("\\", r"\\").replace('"', r"\"")
    return f'"{escaped}; add what is missing to instantiate"'
