"""The content of a module's C++ header: an object for each kernel, named as in device code.

Kernels keep their names and namespaces; a name that C++ or the header itself uses gets an underscore at its
end. If template syntax cannot select a kernel, the kernel is named after its whole expression.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain, count
from typing import NamedTuple, TypeAlias

from cuda_ext.builder.cpp.device_types import DeviceTypes, identifier
from cuda_ext.builder.cpp.launched_kernels import LaunchedKernel
from cuda_ext.builder.cpp.template_arguments import (
    Argument,
    TemplateParameters,
    read_arguments,
    read_constants,
)
from cuda_ext.errors import join_names
from cuda_ext.facts.constants import Constant
from cuda_ext.facts.manifest import Manifest
from cuda_ext.facts.symbols import Symbol
from cuda_ext.formats.lowered_names.mangling import read_lowered_name

_SHOWN = 8  # the number of kernels in a comment or message


class TemplateClass(NamedTuple):
    """A kernel template: for each instantiation, a condition of its parameters and the number of its class.

    ``qualified`` is its name in device code, and ``message`` the text of the static_assert for a missing
    instantiation. ``types`` are the types of the parameters of a call, if all of them are known. Templates of
    Python functions (``is_python``) are not compiled on demand.
    """

    name: str
    qualified: str
    message: str
    parameters: TemplateParameters
    instantiations: Sequence[tuple[str, int]]
    types: Sequence[str] | None
    is_python: bool


class Object(NamedTuple):
    """An object that users call, of class ``type``; a template has ``parameters``."""

    name: str
    type: str
    comment: tuple[str, ...]
    parameters: str = ""


class UnbuiltTemplate(NamedTuple):
    """A kernel template without a built instantiation; calls in C++ compile one on demand."""

    declaration: str
    parameters: TemplateParameters


class Namespace(NamedTuple):
    """A namespace of the module's device code; an empty name stands for the module's own."""

    name: str
    objects: list[Object]
    namespaces: list[Namespace]


_Kernels = Sequence[LaunchedKernel]
_EXPRESSION = re.compile(r"(?P<name>[^\W\d]\w*(?:::[^\W\d]\w*)*)(?:<(?P<arguments>.*)>)?(?:\(.*\))?")


class Header:
    """The content of the header of a module, whose kernels are `launched`.

    The same manifest gives the same header.

    ``namespaces`` are the module's own, outermost first: those of its import name, or `namespace` as C++
    spells it. The class of a kernel has the kernel's position in the manifest as its number. The numbers
    after these belong to ``overloads``: kernels among which the arguments of a call select. ``device_types``
    are the types for which the header declares classes.
    """

    def __init__(
        self,
        manifest: Manifest,
        launched: Sequence[LaunchedKernel],
        namespace: str | None = None,
        unbuilt: Mapping[str, UnbuiltTemplate] = {},
    ) -> None:
        self.path = f"{manifest.module.replace('.', '/')}.h"
        first, *rest = map(identifier, manifest.module.split("."))
        own = (f"{first}_" if first in ("std", "cuda_ext") else first, *rest)
        self.namespaces = tuple(namespace.split("::")) if namespace else own
        kernels = [each.kernel for each in launched]
        parameters = (p for kernel in kernels for p in kernel.parameters)
        types = self.device_types = DeviceTypes(parameters, manifest.structures)
        calls = [tuple(map(types.parameter, kernel.parameters)) for kernel in kernels]
        self.kernels = [
            each._replace(number=i, source=manifest.units[each.kernel.unit].title, types=calls[i])
            for i, each in enumerate(launched)
        ]
        self.overloads: dict[int, _Kernels] = {}
        self.templates: list[TemplateClass] = []
        self._class_names: set[str] = set()
        entities: list[_Entity] = [(_path(kernel), kernel) for kernel in self.kernels]
        entities += _variables(manifest.symbols, types)
        entities += [(name.split("::"), template) for name, template in unbuilt.items()]
        self.root = self._namespace("", entities, "")
        taken = {each.name for each in self.root.objects} | {each.name for each in self.root.namespaces}
        self.constants_namespace = _free_name("constants", taken)
        self.constants = list(_constants(manifest.constants))

    @property
    def has_members(self) -> bool:
        """True if members of a type are compared."""
        return any(each.members for each in self.device_types)

    @property
    def with_absent(self) -> bool:
        """True if a template has instantiations with different numbers of arguments."""
        return any(t.parameters.least < len(t.parameters.are_values) for t in self.templates)

    def _namespace(self, name: str, entities: Iterable[_Entity], prefix: str) -> Namespace:
        """Make the namespace `name` of `entities` and their paths here; expressions begin with `prefix`."""
        by_scope: dict[str, list[_Entity]] = {}
        by_name: dict[str, list[LaunchedKernel]] = {}
        variables: dict[str, _Variable] = {}
        unbuilt: dict[str, UnbuiltTemplate] = {}
        others: list[LaunchedKernel] = []
        for path, entity in entities:
            match path, entity:
                case [scope, _, *_], _:
                    by_scope.setdefault(scope, []).append((path[1:], entity))
                case [plain], LaunchedKernel():
                    by_name.setdefault(plain, []).append(entity)
                case _, LaunchedKernel():
                    others.append(entity)
                case [plain], UnbuiltTemplate():
                    unbuilt[plain] = entity
                case [plain], _Variable():
                    variables[plain] = entity
        taken: set[str] = set()
        # Namespaces get their names first, since other names depend on them.
        scopes = {scope: _free_name(scope, taken) for scope in sorted(by_scope)}
        objects: list[Object] = []
        for plain, alike in sorted(by_name.items()):
            own, left = self._objects(_free_name(plain, taken), alike, prefix + plain)
            objects += own
            others += left
        for kernel in sorted(others, key=lambda k: k.kernel.expression):
            plain = re.sub(r"\W+", "_", kernel.kernel.expression.removeprefix(prefix)).strip("_")
            plain = plain if plain.isidentifier() else f"kernel_{plain}"
            objects.append(Object(_free_name(plain, taken), f"wrapper<{kernel.number}>", (kernel.signature,)))
        for plain, variable in sorted(variables.items()):
            objects.append(Object(_free_name(plain, taken), variable.type, (variable.declaration,)))
        for plain, template in sorted(unbuilt.items()):
            objects.append(self._unbuilt(_free_name(plain, taken), template, prefix + plain))
        inner = [self._namespace(new, by_scope[s], f"{prefix}{s}::") for s, new in scopes.items()]
        return Namespace(name, objects, inner)

    def _objects(self, name: str, kernels: _Kernels, qualified: str) -> tuple[list[Object], _Kernels]:
        """Make the object `name`, `qualified` in device code; also return `kernels` that it cannot select."""
        if any(map(_is_template, kernels)):
            return self._template(name, kernels, qualified)
        number, left = self._overloads(kernels)
        comment = _signatures([kernel for kernel in kernels if kernel not in left])
        return [Object(name, f"wrapper<{number}>", comment)] if number is not None else [], left

    def _overloads(self, kernels: _Kernels) -> tuple[int | None, _Kernels]:
        """Return the number of a class for `kernels`, and the kernels that argument types cannot select."""
        # One kernel may have several expressions.
        by_kernel = {(each.kernel.unit, each.kernel.lowered): each for each in reversed(kernels)}
        distinct = list(by_kernel.values())[::-1]
        alike = Counter(kernel.types for kernel in distinct)
        is_fixed = all(kernel.is_fixed for kernel in distinct)  # otherwise, fixed ones get their own names
        chosen = [each for each in distinct if alike[each.types] == 1 and each.is_fixed == is_fixed]
        left = [kernel for kernel in distinct if kernel not in chosen]
        if len(chosen) < 2:
            return (chosen[0].number if chosen else None), left
        number = len(self.kernels) + len(self.overloads)
        self.overloads[number] = chosen
        return number, left

    def _template(self, name: str, kernels: _Kernels, qualified: str) -> tuple[list[Object], _Kernels]:
        """Do as :meth:`_objects`. A function of the same name is the template without arguments."""
        left: list[LaunchedKernel] = []
        known: dict[tuple[Argument, ...], list[LaunchedKernel]] = {}
        for kernel in kernels:
            read = _read_arguments(kernel)
            arguments = tuple(argument for argument in read if argument is not None)
            if len(arguments) == len(read):
                known.setdefault(arguments, []).append(kernel)
            # The host may not know the enumerator.
            if len(arguments) < len(read) or any(argument.is_enumerator for argument in arguments):
                left.append(kernel)
        parameters = TemplateParameters.of(known)
        if parameters is None:
            return [], kernels
        instantiations: list[tuple[str, int]] = []
        # clang does not print inline namespaces, so it may print a longer name as a shorter one.
        for arguments in sorted(known, key=lambda each: sum(a.text.count("::") for a in each)):
            number, unclear = self._overloads(known[arguments])
            left += (kernel for kernel in unclear if kernel not in left)
            if number is not None:
                instantiations.append((parameters.condition(arguments), number))
        if not instantiations:
            return [], left
        class_name = _free_name(re.sub(r"\W+", "_", qualified) + "_kernels", self._class_names)
        alike = [kernel for each in known.values() for kernel in each]
        self.templates.append(
            TemplateClass(
                class_name,
                qualified,
                _message(qualified, alike),
                parameters,
                instantiations,
                _types_of_template(alike, parameters.least),
                all(map(_is_python, alike)),
            )
        )
        declaration, names = parameters.declare(name)
        return [Object(name, f"{class_name}<{names}>", _signatures(alike), declaration)], left

    def _unbuilt(self, name: str, template: UnbuiltTemplate, qualified: str) -> Object:
        class_name = _free_name(re.sub(r"\W+", "_", qualified) + "_kernels", self._class_names)
        parameters = template.parameters
        self.templates.append(TemplateClass(class_name, qualified, "", parameters, (), None, False))
        declaration, names = parameters.declare(name)
        return Object(name, f"{class_name}<{names}>", (template.declaration,), declaration)


class HostConstant(NamedTuple):
    """A constant of device code; it has no ``literal`` if it differs by architecture, or C++ has none."""

    type: str
    name: str
    literal: str
    declaration: str


def _constants(constants: Sequence[Constant]) -> Iterator[HostConstant]:
    """List `constants` for the host, each with a name of its own."""
    taken: set[str] = set()
    for each in constants:
        plain = re.sub(r"\W+", "_", each.name).strip("_") or "constant"
        name = _free_name(plain if plain.isidentifier() else f"constant_{plain}", taken)
        yield HostConstant(each.type, name, "" if each.elsewhere else _literal(each), each.declaration)


_SUFFIXES = {"float": "f", "unsigned int": "u", "unsigned long long": "ull", "long long": "ll"}
_LEAST = -(1 << 63)


def _literal(constant: Constant) -> str:
    number = constant.number()
    if isinstance(number, bool):
        return str(number).lower()
    if isinstance(number, float) and not math.isfinite(number):
        return ""
    if number == _LEAST:
        return "-9223372036854775807ll - 1"
    return f"{number!r}{_SUFFIXES.get(constant.type, '')}"


class _Variable(NamedTuple):
    """A variable: the class of its object, and its declaration."""

    type: str
    declaration: str


# A kernel, a template or a variable, with its path in a namespace.
_Entity: TypeAlias = tuple[Sequence[str], LaunchedKernel | _Variable | UnbuiltTemplate]


def _variables(symbols: Sequence[Symbol], types: DeviceTypes) -> Iterator[_Entity]:
    """List the objects of the `symbols` whose names are unique in the module, with their paths."""
    names = Counter(symbol.name for symbol in symbols)
    for index, symbol in enumerate(symbols):
        if names[symbol.name] == 1 and re.fullmatch(r"[^\W\d]\w*(?:::[^\W\d]\w*)*", symbol.name):
            base, extents = re.fullmatch(r"(.*?)((?:\[\d+\])*)", symbol.type, re.DOTALL).groups()  # type: ignore[union-attr]
            count = math.prod(map(int, re.findall(r"\d+", extents))) or 1
            unqualified = re.sub(r"^(?:(?:const|volatile) )+", "", base)
            element = types.element(unqualified, symbol.size // count, symbol.alignment)
            scope = "cuda_ext_kernels::" if element.startswith(("type_", "Pointee")) else ""
            object_ = f"Variable<{index}, {symbol.size}, {scope}{element}>"
            yield symbol.name.split("::"), _Variable(object_, f"{base} {symbol.name}{extents}")


def _path(kernel: LaunchedKernel) -> Sequence[str]:
    """Return the namespaces and the name of `kernel`; empty if only its whole expression can name it."""
    match = _EXPRESSION.fullmatch(kernel.kernel.expression)
    # A cast selects an overload, but gives it no name.
    if match is None or match["name"] in ("static_cast", "reinterpret_cast"):
        return ()
    return match["name"].split("::")


def _arguments(kernel: LaunchedKernel) -> str | None:
    """Return the text between the angle brackets of `kernel`, if there are any."""
    match = _EXPRESSION.fullmatch(kernel.kernel.expression)
    return match["arguments"] if match else None


def _is_python(kernel: LaunchedKernel) -> bool:
    """Return True if `kernel` is a Python function, whose expression also contains types of parameters."""
    return kernel.source.endswith(".py")


def _is_template(kernel: LaunchedKernel) -> bool:
    return bool(_read_arguments(kernel)) if _is_python(kernel) else _arguments(kernel) is not None


def _read_arguments(kernel: LaunchedKernel) -> tuple[Argument | None, ...]:
    """Read the template arguments of `kernel`; for a Python function, these are the constants."""
    if _is_python(kernel):
        return read_constants(kernel.kernel.constants)
    return read_arguments(_arguments(kernel) or "", kernel.kernel.lowered)


def _free_name(wanted: str, taken: set[str]) -> str:
    """Return `wanted`, or the closest name that is not in `taken`, and add it there."""
    plain = wanted.rstrip("_")
    candidates = chain([identifier(wanted), f"{plain}_"], (f"{plain}_{number}_" for number in count(2)))
    name = next(name for name in candidates if name not in taken)
    taken.add(name)
    return name


def _signatures(kernels: _Kernels) -> tuple[str, ...]:
    shown = [kernel.signature for kernel in kernels[:_SHOWN]]
    if len(kernels) > _SHOWN:
        shown.append(f"and {len(kernels) - _SHOWN} more")
    return tuple(shown)


def _types_of_template(kernels: _Kernels, count: int) -> Sequence[str] | None:
    """Express parameter types by the first `count` parameters of the template; ``None`` if one is unknown.

    All instantiations `kernels` must agree.
    """

    def types_of(kernel: LaunchedKernel) -> tuple[str, ...] | None:
        name = read_lowered_name(kernel.kernel.lowered, has_placeholders=True)
        if name is None or name.parameters is None or len(name.parameters) != len(kernel.types):
            return None
        patterns = (parameter.spelling for parameter in name.parameters)
        return tuple(map(_type_of_pattern, patterns, kernel.types))

    first, *others = map(types_of, kernels)
    if first is None or any(types != first for types in others):
        return None
    used = {int(number) for type_ in first for number in re.findall(r"\bT(\d+)\b", type_)}
    return None if "" in first or max(used, default=-1) >= count else first


def _type_of_pattern(pattern: str, type_: str) -> str:
    """Return the parameter type of a call; empty for a type that depends on the template in another way."""
    if match := re.fullmatch(r"(const )?\$(\d+)(\*)?", pattern):
        const, number, star = match.groups()
        return f"Pointer<{const or ''}T{number}>" if star else f"loader::ArgumentOf<T{number}>"
    return "" if "$" in pattern else type_


def _message(name: str, kernels: _Kernels) -> str:
    built = [kernel.kernel.expression for kernel in kernels]
    text = f"{name} is not built for these template arguments, but as {join_names(built, _SHOWN)}"
    # Compilers accept only these escapes in the text of a static_assert.
    escaped = text.replace("\\", r"\\").replace('"', r"\"")
    on_demand = "" if all(map(_is_python, kernels)) else ", or compile it on demand with JIT"
    return f'"{escaped}; add the missing one to INSTANTIATE{on_demand}"'
