"""Probes: the compiler states the types of kernels and variables in any of its passes.

A probe is an instantiation of a kernel template that is declared but never defined. Its lowered name spells
the types behind a name of the source and their alignments, and marks enumerations. It leaves no trace
in any image. The mangled name of a kernel also has types, but no alignments; it does not distinguish
enumerations, and does not resolve members of a template's arguments.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import cache
from typing import NamedTuple

from cuda_ext.compiler.signatures.layouts import Layout, read_layout
from cuda_ext.compiler.translation_unit import TranslationUnit
from cuda_ext.formats import ptx
from cuda_ext.formats.lowered_names.lowered_types import LoweredType, LoweredValue
from cuda_ext.formats.lowered_names.mangling import read_lowered_name
from cuda_ext.formats.spelling import base_name, normalise
from cuda_ext.text.declarations import Declarations, find_declarations

# The declaration of probes. A source stands before or after it. NVRTC lowers the name of a probe of types in
# an anonymous namespace only if the probe is defined: so it is where no image is made.
PROBES = """\
namespace cuda_ext_probe {
template <class T, bool is_enum, unsigned long long alignment, class layout> struct parameter;
template <class... T> struct kernel;
template <class T, unsigned long long alignment> struct variable;
template <class... T> __device__ kernel<parameter<T, __is_enum(T), alignof(T), void>...> of(void (*)(T...));
template <class T> __device__ variable<T, alignof(T)> of(T*);
#if __cplusplus >= 201103L
template <class T, bool is_class = __is_class(T)> struct layout { template <class> using as = void; };
template <class T> using structure = typename layout<T>::template as<T>;
template <class... T> __device__
kernel<parameter<T, __is_enum(T), alignof(T), structure<T>>...> with_layouts(void (*)(T...));
template <class T> __device__ variable<T, alignof(T)> with_layouts(T*);
#endif
template <class T, int subject> __global__ void probe();
#ifdef CUDA_EXT_DEFINE_PROBES
template <class T, int subject> __global__ void probe() {}
#endif
template <class T> struct meaning;
template <class T, T constant> struct value;
template <class T, T kernel> struct kernel_at;
}
"""


class ProbedType(NamedTuple):
    """A type; it may be an enumeration. Its alignment is 0 if it is not known. Only classes have a layout."""

    type: LoweredType
    is_enum: bool = False
    alignment: int = 0
    layout: Layout | None = None


class Probed(NamedTuple):
    """The types of a kernel's parameters, or the type of a variable."""

    parameters: tuple[ProbedType, ...] = ()
    variable: ProbedType | None = None


def probe(subject: str, index: int, with_layouts: bool) -> str:
    """Write the name expression of the probe for `subject`, a name expression of a kernel or variable.

    Errors name the probe by its `index`. It may ask for the layouts of structures, too.
    """
    address = subject if subject.lstrip()[:1] in ("&", "(") else f"&{subject}"
    function = "with_layouts" if with_layouts else "of"
    return probe_type(f"decltype(cuda_ext_probe::{function}({address}))", index)


def probe_type(spelling: str, index: int) -> str:
    """Write the name expression of a probe for the type with this `spelling`."""
    return f"cuda_ext_probe::probe<{spelling}, {index}>"


def read_probe(lowered: str) -> Probed | None:
    """Read the lowered name of a probe."""
    name = read_lowered_name(lowered)
    if name is None or not name.arguments or not isinstance(result := name.arguments[0], LoweredType):
        return None
    if result.left.startswith("cuda_ext_probe::variable<"):
        match result.arguments:
            case (LoweredType() as type_, LoweredValue() as alignment):
                return Probed(variable=ProbedType(type_, alignment=alignment.number or 0))
        return None
    parameters = []
    for parameter in result.arguments:
        match parameter.arguments if isinstance(parameter, LoweredType) else ():
            case (LoweredType() as type_, LoweredValue() as is_enum, LoweredValue() as alignment, layout):
                numbers = bool(is_enum.number), alignment.number or 0
                parameters.append(ProbedType(type_, *numbers, read_layout(layout)))
            case _:
                return None
    return Probed(tuple(parameters))


def declarations_of(unit: TranslationUnit) -> Declarations:
    """Find the declarations of `unit`: those for tile kernels if it is a tile unit, or else the others."""
    return _declarations((unit.source, *unit.headers.values()), unit.kind == "tile")


@cache
def _declarations(texts: tuple[bytes, ...], is_tile: bool) -> Declarations:
    found = find_declarations(texts)
    kernels, variables = (tuple(d for d in each if d.is_tile == is_tile) for each in found[:2])
    return found._replace(kernels=kernels, variables=variables)


def known_subjects(unit: TranslationUnit) -> tuple[str, ...]:
    """List the kernels and variables to probe in the first pass: names that surely exist once."""
    found = declarations_of(unit)
    different = {(k.name, *(normalise(p.type) for p in k.parameters)) for k in found.kernels}
    overloads = Counter(name for name, *_ in different)
    kernels = (k.name for k in found.kernels if k.is_plain and overloads[k.name] == 1)
    variables = (v.name for v in found.variables if v.is_plain)
    return tuple(dict.fromkeys([*unit.instantiate, *kernels, *variables]))


def addresses_to_keep(unit: TranslationUnit) -> tuple[tuple[str, ...], bool]:
    """List the addresses of variables that `unit` surely declares, and return True if these are all.

    The host may write them, and may use variables that no kernel uses. NVRTC takes no address of managed
    variables, and conditions may exclude other variables.
    """
    found = declarations_of(unit)
    addresses = [f"&{v.name}" for v in found.variables if v.is_plain and not v.is_managed]
    return tuple(dict.fromkeys(addresses)), len(addresses) == len(found.variables) and not found.doubtful


def may_be_declared(unit: TranslationUnit, variables: Iterable[str]) -> list[str]:
    """Select the lowered names `variables` that `unit` may declare, whatever their namespaces."""
    found = declarations_of(unit)
    names = {*(base_name(v.name) for v in found.variables), *found.doubtful}
    parts = [name for name in found.doubtful if len(name) > 2]  # a macro may join parts to the name
    kept = []
    for lowered in variables:
        read = read_lowered_name(lowered)
        # The linker numbers local variables of one name.
        name = base_name(read.name if read else re.sub(r"\$\d+$", "", lowered))
        if name in names or any(part in name for part in parts):
            kept.append(lowered)
    return kept


def without_unused_variables(text: bytes, units: Sequence[TranslationUnit]) -> bytes:
    """Remove variables that no code uses from the PTX of `units`, unless `units` may declare them.

    These are constants and tables of headers, which the host does not use either.
    """
    variables = ptx.discardable_variables(text)
    return ptx.without_variables(text, {v for unit in units for v in may_be_declared(unit, variables)})
