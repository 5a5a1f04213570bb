"""The layouts of structures that kernels take by value, as the compiler states them.

The text proposes names of members. Declarations behind the source ask for each of them, in every class that
is the type of a parameter or of a member: the probes of kernels then spell types, offsets and sizes. A name
that is no member there, or that nobody else may use, has no answer. Like all probes, they leave no trace in
any image.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import cache
from typing import NamedTuple

from cuda_ext.compiler.signatures.parameter_types import describe_type
from cuda_ext.compiler.translation_unit import TranslationUnit
from cuda_ext.facts.kernels import Parameter
from cuda_ext.facts.structures import Structure
from cuda_ext.formats.lowered_names.lowered_types import LoweredType, LoweredValue
from cuda_ext.formats.spelling import base_name
from cuda_ext.text.declarations import Declarations, find_declarations
from cuda_ext.text.macros import WORD, find_macros
from cuda_ext.text.members import DeclaredStructure, find_structures, reachable

_UNNAMED = re.compile(r"cuda_ext_probe::unnamed<(\d+)>")
# The file of all declarations that are appended to a source, as errors name it. One file serves all of them:
# see nvrtc_traces about #line.
APPENDED_FILE = "cuda_ext_probes"
# The first line of the declarations of members, as errors name it.
_FIRST_LINE = 1_000_000
# The limit of names that are asked for: each takes half a millisecond.
_MOST_NAMES = 400

# One line, so that each name has its own behind it.
_DECLARATIONS = """\
namespace cuda_ext_probe {
template <int name, class T, class offset, class size, class alignment, int enumeration, class layout>
struct field;
template <unsigned long long> struct number;
template <class T, class size, class alignment, bool is_standard, class... Fields> struct members;
template <class T> struct element { using type = T; };
template <class T> struct element<const T> : element<T> {};
template <class T> struct element<volatile T> : element<T> {};
template <class T> struct element<const volatile T> : element<T> {};
template <class T, decltype(sizeof(0)) n> struct element<T[n]> : element<T> {};
template <class T, decltype(sizeof(0)) n> struct element<const T[n]> : element<T> {};
template <class T, decltype(sizeof(0)) n> struct element<volatile T[n]> : element<T> {};
template <class T, decltype(sizeof(0)) n> struct element<const volatile T[n]> : element<T> {};
template <class T, bool = __is_enum(T)> struct enumeration { enum : int { kind }; };
template <class T> struct enumeration<T, true> {
enum : int { kind = (__underlying_type(T))-1 < 0 ? 1 : 2 }; };
template <class T> __device__ T& object();
template <class> struct member;
template <class T, class C> struct member<T C::*> { using type = T; };
template <int name, class T, unsigned long long offset, unsigned long long alignment> using field_of =
field<name, T, number<offset>, number<sizeof(T)>, number<alignment>,
enumeration<typename element<T>::type>::kind,
typename layout<typename element<T>::type>::template as<typename element<T>::type>>;
template <int name> struct unnamed {};
template <class T, class Name, bool may_be_unnamed = __is_class(T) || __is_union(T) || __is_enum(T)>
struct renamed { using type = T; };
template <class T, class Name> struct renamed<T, Name, true> { using type = Name; };
template <class T, decltype(sizeof(0)) n, class Name> struct renamed<T[n], Name, false> {
using type = typename renamed<T, Name>::type[n]; };
template <int name, class T, unsigned long long offset, unsigned long long alignment> using unnamed_field_of =
field<name, typename renamed<T, unnamed<name>>::type, number<offset>, number<sizeof(T)>, number<alignment>,
enumeration<typename element<T>::type>::kind,
typename layout<typename element<T>::type>::template as<unnamed<name>>>;
""".replace("\n", " ")


class Layout(NamedTuple):
    """A class, as a probe describes it: the ``fields`` that have answers, with the numbers of their names."""

    name: str
    size: int
    alignment: int
    is_standard: bool
    fields: tuple[ProbedField, ...]


class ProbedField(NamedTuple):
    """A member. The alignment is that of its declaration, and the layout that of its class, or its items'.

    The ``enumeration`` is 1 for values with a sign, 2 for those without, and 0 for another type.
    """

    number: int
    type: LoweredType
    offset: int
    size: int
    alignment: int
    enumeration: int
    layout: Layout | None


class Members(NamedTuple):
    """The names to ask for, by their numbers, and all structures that a unit declares.

    Members with ``unnamed`` names may be of types without a name, which no template of a kernel takes, so
    classes and enumerations among these are named by the member.
    """

    names: tuple[str, ...] = ()
    unnamed: frozenset[str] = frozenset()
    structures: tuple[DeclaredStructure, ...] = ()


NO_MEMBERS = Members()


@cache
def _members_of(texts: tuple[bytes, ...], requested: tuple[str, ...]) -> Members:
    structures = find_structures(texts)
    found = find_declarations(texts) if structures else Declarations((), ())
    written = [
        text for k in found.kernels for text in (k.template, k.instantiation, *(p.type for p in k.parameters))
    ]
    words = {word for text in (*written, *requested) for word in WORD.findall(text)}
    macros = {macro.name for text in texts for macro in find_macros(text)}
    near = reachable(structures, words)
    found_members = [m for each in near for m in each.members if not m.is_hidden and m.name not in macros]
    names = tuple(dict.fromkeys(m.name for m in found_members))[:_MOST_NAMES]
    return Members(names, frozenset(m.name for m in found_members if m.is_unnamed), structures)


def members_of(unit: TranslationUnit) -> Members:
    """Find the names of members of structures that kernels of `unit` may take; C++03 cannot ask for them."""
    if unit.kind != "cu" or unit.options.std == "c++03":
        return NO_MEMBERS
    return _members_of((unit.source, *unit.headers.values()), unit.instantiate)


def append_members(source: bytes, members: Members, refused: Collection[int] = ()) -> bytes:
    """Append the questions about `members`, as lines of a separate file, to `source`.

    The numbers that are `refused` are left out.
    """
    names = members.names
    numbers = [number for number in range(len(names)) if number not in refused]
    if not numbers:
        return source
    lines = [_DECLARATIONS] + [""] * len(names)
    for number in numbers:
        name = names[number]
        type_ = f"typename member<decltype(&T::{name})>::type"
        # NVRTC has __builtin_offsetof since CUDA 13.1 at the earliest.
        offset = f"__INTADDR__(&((T*)0)->{name})"
        asked = f"{number}, {type_}, {offset}, __alignof__(object<T>().{name})"
        field = "unnamed_field_of" if name in members.unnamed else "field_of"
        lines[number + 1] = (
            f"template <class> __device__ void member_{number}(...); "
            f"template <class T> __device__ {field}<{asked}> member_{number}(int);"
        )
    answers = ", ".join(f"decltype(member_{number}<T>(0))" for number in numbers)
    described = f"members<Name, number<sizeof(T)>, number<alignof(T)>, __is_standard_layout(T), {answers}>"
    lines.append(
        f"template <class T> struct layout<T, true> {{ template <class Name> using as = {described}; }}; }}"
    )
    return append_declarations(source, _FIRST_LINE, "\n".join(lines))


def append_declarations(source: bytes, first_line: int, declarations: str) -> bytes:
    """Append `declarations` to `source`, as the lines from `first_line` on of a separate file."""
    # An incomplete source causes an error at the semicolon.
    return source + f'\n;\n#line {first_line} "{APPENDED_FILE}"\n{declarations}\n'.encode()


def rejected_lines(log: str) -> set[int]:
    """List the lines of the declarations before those of members that have errors in `log`."""
    return {line for line in _appended_lines(log) if line < _FIRST_LINE}


def refused_members(log: str, members: Members) -> set[int]:
    """List the numbers of the names with errors in `log`; all of them if the error is in another line."""
    numbers = {line - _FIRST_LINE - 1 for line in _appended_lines(log) if line >= _FIRST_LINE}
    everything = set(range(len(members.names)))
    return numbers if numbers <= everything else everything


def _appended_lines(log: str) -> set[int]:
    return {int(line) for line in re.findall(rf"(?m)^{APPENDED_FILE}\((\d+)\): error", log)}


def read_layout(type_: LoweredType | LoweredValue) -> Layout | None:
    """Read the description of a class in the name of a probe."""
    if not isinstance(type_, LoweredType) or not type_.left.startswith("cuda_ext_probe::members<"):
        return None
    match type_.arguments:
        case (
            LoweredType() as named,
            LoweredType() as size,
            LoweredType() as alignment,
            LoweredValue() as is_standard,
            *answers,
        ):
            fields = tuple(field for answer in answers if (field := _read_field(answer)) is not None)
            numbers = _number(size), _number(alignment)
            return Layout(named.spelling, *numbers, bool(is_standard.number), fields)
    return None


def _read_field(answer: LoweredType | LoweredValue) -> ProbedField | None:
    match answer.arguments if isinstance(answer, LoweredType) else ():
        case (
            LoweredValue() as number,
            LoweredType() as type_,
            LoweredType() as offset,
            LoweredType() as size,
            LoweredType() as alignment,
            LoweredValue() as enumeration,
            layout,
        ):
            return ProbedField(
                number.number or 0,
                type_,
                _number(offset),
                _number(size),
                _number(alignment),
                enumeration.number or 0,
                read_layout(layout),
            )
    return None


def _number(type_: LoweredType) -> int:
    """Read ``number<8>``."""
    match type_.arguments:
        case (LoweredValue() as value,):
            return value.number or 0
    return 0


def describe_layouts(layouts: Iterable[Layout], members: Members) -> Iterator[Structure]:
    """Describe the structures of `layouts` and of their members, as far as the source declares them."""
    pending, known = [*layouts], set()
    while pending:
        layout = pending.pop()
        if layout.name in known:
            continue
        known.add(layout.name)
        layout = layout._replace(fields=tuple(_name_types(f, layout, members) for f in layout.fields))
        pending += (field.layout for field in layout.fields if field.layout)
        if declared := _declarations_of(layout.name, members.structures):
            yield _describe_layout(layout, declared, members)


def _name_types(field: ProbedField, owner: Layout, members: Members) -> ProbedField:
    """Name the type of a member, if it has no name of its own, by the member."""
    if not _UNNAMED.search(field.type.left):
        return field
    name = f"decltype({owner.name}::{members.names[field.number]})"
    return field._replace(
        type=_renamed(field.type, name), layout=field.layout and field.layout._replace(name=name)
    )


def _renamed(type_: LoweredType, name: str) -> LoweredType:
    return replace(type_, left=name, target=type_.target and _renamed(type_.target, name))


def _describe_layout(layout: Layout, declared: Sequence[DeclaredStructure], members: Members) -> Structure:
    in_order = sorted(layout.fields, key=lambda field: field.offset)
    fields = tuple(_describe_field(members.names[field.number], field) for field in in_order)
    if obstacle := _obstacle(layout, in_order, declared, members):
        fields = ()
    return Structure(layout.name, layout.size, layout.alignment, fields, obstacle)


def _describe_field(name: str, field: ProbedField) -> Parameter:
    type_, extents = field.type, []
    while type_.kind == "array" and type_.target is not None:
        count = type_.right[1:].partition("]")[0]
        extents.append(int(count or 0))
        type_ = type_.target
    type_ = replace(type_, qualifiers=())
    slot = Parameter(name, "", "opaque", field.size, field.offset, extents=tuple(extents))
    described = describe_type(slot, type_, field.enumeration > 0, field.alignment)
    return described._replace(kind="unsigned") if field.enumeration == 2 else described


def _declarations_of(name: str, structures: Sequence[DeclaredStructure]) -> list[DeclaredStructure]:
    """Select the declarations of a structure or, if none has its namespaces, those of its last name."""
    if name.startswith("decltype("):
        owner = name[len("decltype(") : name.rindex("::")]
        owners = {each.qualified for each in _declarations_of(owner, structures)}
        return [each for each in structures if not each.name and "::".join(each.scopes) in owners]
    plain = name
    while (outer := re.sub(r"<[^<>]*>", "", plain)) != plain:
        plain = outer
    alike = [each for each in structures if each.name == base_name(plain) and not each.is_alias]
    return [each for each in alike if each.qualified == plain] or alike


def _obstacle(
    layout: Layout,
    fields: Sequence[ProbedField],
    declared: Sequence[DeclaredStructure],
    members: Members,
) -> str:
    """Say why `fields` may not be all members of a structure; empty if they are."""
    if not fields:
        return "it has no members that other code may use"
    end, has_padding = 0, False
    for field in fields:
        name = members.names[field.number]
        if field.offset < end:
            return f"{name} shares its bytes with another member"
        if field.offset != -(-end // field.alignment) * field.alignment:
            return f"the bytes before {name} are of an unknown member"
        has_padding = has_padding or field.offset != end
        end = field.offset + field.size
    alignment = layout.alignment
    if layout.size != -(-end // alignment) * alignment:
        return f"the bytes behind {members.names[fields[-1].number]} are of an unknown member"
    has_padding = has_padding or layout.size != end
    # An unknown member may also lie in the padding. Of several declarations, conditions choose one.
    known = {members.names[field.number] for field in fields}
    reasons = [_unanswered(each, layout, known, has_padding, members.structures) for each in declared]
    return "" if "" in reasons else reasons[0]


def _unanswered(
    declared: DeclaredStructure,
    layout: Layout,
    known: Collection[str],
    has_padding: bool,
    structures: Sequence[DeclaredStructure],
    hiding: frozenset[str] = frozenset(),
) -> str:
    """Say which member that the text declares has no answer; empty if all have.

    An answer for a name in `hiding`, those of derived classes, is about another member.
    """
    for member in declared.members:
        if member.is_hidden:
            return f"{member.name} is private or a bit-field"
        if member.name in hiding:
            return f"{member.name} of {declared.name} is hidden by another member"
        if member.is_certain and member.name not in known:
            return f"the compiler knows no member {member.name}"
    if has_padding and not declared.is_clear:
        return "a macro may declare further members"
    hiding |= {member.name for member in declared.members}
    for base in declared.bases:
        found = [each for each in structures if each.name == base and not each.is_alias]
        reasons = [_unanswered(each, layout, known, has_padding, structures, hiding) for each in found]
        if not reasons and has_padding and not layout.is_standard:
            return f"its base {base} is not in the sources of the project"
        if reasons and "" not in reasons:
            return reasons[0]
    return ""
