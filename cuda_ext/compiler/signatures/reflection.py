"""Read images, and describe their kernels and variables.

An image has lowered names, offsets and sizes. Types come from probes and mangled names, and names of
parameters come from the source.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

from cuda_ext.compiler.products import CompiledImage, Signatures
from cuda_ext.compiler.signatures.layouts import describe_layouts, members_of
from cuda_ext.compiler.signatures.parameter_types import describe_type
from cuda_ext.compiler.signatures.probes import Probed, ProbedType, declarations_of
from cuda_ext.compiler.translation_unit import TranslationUnit
from cuda_ext.facts.architecture import Architecture
from cuda_ext.facts.constants import Constant
from cuda_ext.facts.kernels import SIZES, Kernel, Parameter
from cuda_ext.formats.definitions import read_definitions
from cuda_ext.formats.lowered_names.lowered_types import LoweredType, LoweredValue
from cuda_ext.formats.lowered_names.mangling import read_lowered_name
from cuda_ext.formats.spelling import base_name, normalise, plain_name
from cuda_ext.text.declarations import Declaration, DeclaredParameter, find_parameters, template_parameters
from cuda_ext.text.macros import WORD


def read_image(architecture: Architecture, data: bytes) -> CompiledImage:
    """Read the kernels and variables in the image `data`, whose names are lowered names here.

    Raises :class:`~cuda_ext.errors.BuildError` for damaged data.
    """
    kernels, variables, usage = read_definitions(architecture.kind, data)
    signatures = Signatures({n: Kernel(n, n, 0, slots) for n, slots in kernels.items()}, variables)
    entries, names = tuple(sorted(kernels)), tuple(sorted(variables))
    return CompiledImage(architecture, data, entries, names, usage=usage, signatures=signatures)


def match_probes(
    image: CompiledImage, names: Mapping[str, str], probed: Mapping[str, Probed]
) -> dict[str, Probed]:
    """Match the subjects of `probed` with `image`; return the types by lowered name."""
    found = {names[subject]: types for subject, types in probed.items() if subject in names}
    by_name = {normalise(subject): types for subject, types in probed.items()}
    last = {base_name(name): types for name, types in by_name.items()}
    for lowered in (*image.entries, *image.variables):
        name = name_of(lowered)
        # A name with C linkage has no namespace.
        types = by_name.get(name) or (None if lowered.startswith("_Z") else last.get(name))
        if types is not None:
            found.setdefault(lowered, types)
    return found


def unknown_subjects(
    unit: TranslationUnit, image: CompiledImage, probed: Mapping[str, Probed]
) -> dict[str, str]:
    """List the names in `image` that need a probe, with their lowered names, which are not in `probed`."""
    overloads = Counter(map(name_of, image.entries))
    subjects = {}
    for lowered in image.entries:
        count = len(image.signatures.kernels[lowered].parameters)
        if lowered not in probed and not _is_complete(lowered, count):
            name = name_of(lowered)
            types = _mangled_types(lowered, count)
            if overloads[name] > 1 and types is not None:
                name = f"(void(*)({', '.join(each.type.spelling for each in types)}))&{name}"
            subjects[name] = lowered
    for lowered in image.variables:
        if lowered not in probed and _is_declared(unit, lowered):
            subjects[name_of(lowered)] = lowered
    return subjects


def describe(
    unit: TranslationUnit,
    image: CompiledImage,
    probed: Mapping[str, Probed],
    meanings: Mapping[str, str],
    constants: Mapping[str, Constant],
) -> Signatures:
    """Describe the contents of an `image` of `unit` as read by :func:`read_image`.

    `probed` has types by lowered name. `meanings` maps names and instantiations as sources spell them.
    Variables count if the project declares them and they can be written: constants, and variables of the
    tool chain's headers, are excluded.
    """
    kernels: dict[str, Kernel] = {}
    notes: dict[str, list[str]] = {_NO_TYPES: [], _NO_NAMES: []}
    for lowered, kernel in image.signatures.kernels.items():
        name, slots = name_of(lowered), kernel.parameters
        types = probed[lowered].parameters if lowered in probed else _mangled_types(lowered, len(slots))
        if types is None or len(types) != len(slots):
            types = None
            notes[_NO_TYPES].append(name)
        declared = _declared_parameters(unit, name, slots, types)
        if declared is None and slots:
            notes[_NO_NAMES].append(name)
        parameters = tuple(_parameters(slots, types, declared))
        named = dict(_template_arguments(unit, name, lowered, parameters))
        kernels[lowered] = Kernel(name, lowered, 0, parameters, constants=named)
    symbols = {}
    for lowered, variable in image.signatures.symbols.items():
        probed_type = probed[lowered].variable if lowered in probed else None
        if probed_type is not None and not probed_type.type.is_const:
            type_ = probed_type.type.spelling
            symbols[lowered] = variable._replace(
                name=name_of(lowered),
                type=type_,
                size=_size_of(type_, variable.size),
                alignment=probed_type.alignment,
            )
    log = [f"{unit.name}: {note.format(', '.join(sorted(of)))}" for note, of in notes.items() if of]
    probed_types = (type_ for lowered in kernels if lowered in probed for type_ in probed[lowered].parameters)
    layouts = [type_.layout for type_ in probed_types if type_.layout]
    structures = {each.name: each for each in describe_layouts(layouts, members_of(unit))} if layouts else {}
    return Signatures(
        kernels,
        symbols,
        "\n".join(log),
        meanings=meanings,
        structures=structures,
        constants=constants,
    )


_NO_TYPES = "the types of the parameters of {} are not known; values of the same size are accepted"
_NO_NAMES = "the parameters of {} are named arg0, arg1, and so on, since the source does not show their names"


def _size_of(type_: str, stored: int) -> int:
    """Return the bytes of a variable that takes `stored` bytes; tile kernels round arrays up."""
    element, *counts = type_.removeprefix("const ").replace("]", "").split("[")
    if element not in SIZES or not all(map(str.isdecimal, counts)):
        return stored
    return min(SIZES[element] * math.prod(map(int, counts)), stored)


def name_of(lowered: str) -> str:
    """Return the C++ name of a kernel or variable."""
    name = read_lowered_name(lowered)
    return normalise(name.name) if name else lowered


def _mangled_types(lowered: str, count: int) -> Sequence[ProbedType] | None:
    """Read the types of a kernel's parameters from its lowered name, if all of them can be read."""
    name = read_lowered_name(lowered)
    if name is None or name.parameters is None or len(name.parameters) != count:
        return None
    if any(type_.is_dependent for type_ in name.parameters):
        return None
    return [ProbedType(type_) for type_ in name.parameters]


def _is_complete(lowered: str, count: int) -> bool:
    """Return True if the lowered name of a kernel suffices: no parameter is an enumeration or a structure."""
    types = _mangled_types(lowered, count)
    return types is not None and all(each.type.kind != "named" for each in types)


def _is_declared(unit: TranslationUnit, lowered: str) -> bool:
    """Return True if the source or a header of the project declares a variable, as far as can be seen."""
    parts = plain_name(name_of(lowered)).split("::")
    for variable in declarations_of(unit).variables:
        *namespaces, name = variable.name.split("::")
        if name == parts[-1] and set(namespaces) <= set(parts):
            return True
    return False


def _declared_parameters(
    unit: TranslationUnit, name: str, slots: Sequence[Parameter], types: Sequence[ProbedType] | None
) -> Sequence[DeclaredParameter] | None:
    """Find the source's declaration of the parameters of the kernel `name`; ``None`` if it is not clear."""
    last = base_name(name)
    candidates = [k.parameters for k in _declarations(unit, name)]
    if not any(d.name for c in candidates for d in c):  # a macro of another header marks the definition
        found = find_parameters((unit.source, *unit.headers.values()), last)
        candidates += [found] if found is not None else []
    fitting = [fitted for c in candidates if (fitted := _expand_pack(c, len(slots))) is not None]
    if not fitting:
        return None
    # Of prototypes, the one with more names; of overloads, the one whose types are spelled alike.
    spelled = [each.type.spelling for each in types] if types is not None else [""] * len(slots)

    def likeness(declared: Sequence[DeclaredParameter]) -> tuple[int, int]:
        equal = sum(normalise(d.type) == s for d, s in zip(declared, spelled, strict=True))
        return sum(bool(d.name) for d in declared), equal

    best = max(fitting, key=likeness)
    names = [d.name or f"arg{i}" for i, d in enumerate(best)]
    return best if len(names) == len(set(names)) else None


def _declarations(unit: TranslationUnit, name: str) -> list[Declaration]:
    """Return the declarations of kernels called `name`, or of those in other namespaces if there is none."""
    last = base_name(name)
    declarations = [k for k in declarations_of(unit).kernels if base_name(k.name) == last]
    return [k for k in declarations if k.name == plain_name(name)] or declarations


def _template_arguments(
    unit: TranslationUnit, name: str, lowered: str, parameters: Sequence[Parameter]
) -> Iterator[tuple[str, str]]:
    """Yield the names of template parameters and the arguments, as Python spells them.

    If the source has several templates of this name for such parameters of the kernel, they must name their
    parameters alike; prototypes do not count.
    """
    mangled = read_lowered_name(lowered)
    if mangled is None or not mangled.arguments:
        return
    found = [k for k in _declarations(unit, name) if _expand_pack(k.parameters, len(parameters)) is not None]
    found = [k for k in found if k.is_definition] or found
    heads = {tuple(template_parameters(k.template)) for k in found if k.template != "template"}
    values = [
        _spell_argument(argument, any(_is_auto(head, position) for head in heads))
        for position, argument in enumerate(mangled.arguments)
    ]
    named = {tuple(each.name for each in head) for head in heads if _fits(head, values)}
    names = named.pop() if len(named) == 1 else ()
    if any(each.is_pack for head in heads for each in head):
        values[len(names) - 1 :] = [", ".join(values[len(names) - 1 :])]
    for each, value in zip(names, values, strict=False):
        if each:
            yield each, value


def _fits(head: Sequence[DeclaredParameter], values: Sequence[str]) -> bool:
    """Return True if a template with the parameters `head` takes as many arguments as there are `values`."""
    *first, last = head or (DeclaredParameter("", ""),)
    is_enough = len(values) >= len(first) if last.is_pack else len(values) == len(head)
    return is_enough and not any(parameter.is_pack for parameter in first)


def _is_auto(head: Sequence[DeclaredParameter], position: int) -> bool:
    """Return True if the type of the parameter at `position` is deduced; the last may be a pack."""
    return bool(head) and "auto" in WORD.findall(head[min(position, len(head) - 1)].type)


def _spell_argument(argument: LoweredType | LoweredValue, is_auto: bool) -> str:
    """Spell the `argument`: with its type if that of the parameter `is_auto`, else as in Python."""
    if is_auto and isinstance(argument, LoweredValue):
        return argument.literal
    if isinstance(argument, LoweredValue) and argument.spelling in ("true", "false"):
        return argument.spelling.title()
    return normalise(argument.spelling)


def _expand_pack(declared: Sequence[DeclaredParameter], count: int) -> Sequence[DeclaredParameter] | None:
    if declared and declared[-1].is_pack and count >= len(declared) - 1:
        *first, pack = declared
        numbers = range(count - len(first))
        names = [f"{pack.name}{number}" if pack.name else "" for number in numbers]
        return [*first, *(DeclaredParameter(name, pack.type) for name in names)]
    return declared if len(declared) == count else None


def _parameters(
    slots: Sequence[Parameter],
    types: Sequence[ProbedType] | None,
    declared: Sequence[DeclaredParameter] | None,
) -> Iterable[Parameter]:
    """Complete `slots`, the parameters in an image, with the names and types that are known."""
    for index, slot in enumerate(slots):
        name = (declared[index].name if declared else "") or f"arg{index}"
        slot = slot._replace(name=name)
        yield slot if types is None else describe_type(slot, *types[index][:3])
