"""The template arguments of an instantiation as ids in C++.

In a generated header each argument is a number of 64 bits: the identity of a type, or a value. So a header
distinguishes instantiations even if the host does not know their types.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from cuda_ext.builder.cpp.embedding import quoted
from cuda_ext.compiler.name_expressions import normalise
from cuda_ext.formats.mangling import LoweredArgument, LoweredValue, template_arguments

__all__ = ["FUNDAMENTAL", "Argument", "TypeArgument", "ValueArgument", "read_arguments"]


@dataclass(frozen=True, slots=True)
class TypeArgument:
    """A type. Two of one ``family`` may be the same type, depending on the host's system."""

    id: str
    family: str
    kind = "type"
    is_enumerator = False


@dataclass(frozen=True, slots=True)
class ValueArgument:
    """An integer, a character or an enumerator, whose name the host may not know."""

    number: int
    is_enumerator: bool = False
    kind = "value"

    @property
    def id(self) -> str:
        # Converted to long long, whose least value has no literal.
        number = (self.number + 2**63) % 2**64 - 2**63
        return f"value_id({number})" if number > -(2**63) else f"value_id({number + 1} - 1)"

    @property
    def family(self) -> str:
        return self.id


Argument: TypeAlias = TypeArgument | ValueArgument

FUNDAMENTAL = frozenset(
    [
        *("void", "bool", "char", "signed char", "unsigned char", "wchar_t", "char16_t", "char32_t"),
        *("short", "unsigned short", "int", "unsigned int", "long", "unsigned long"),
        *("long long", "unsigned long long", "float", "double", "long double"),
    ]
)
# Types of fixed size below 64 bits are the same on every system with CUDA; the others differ.
_ALIASES = {
    "int8_t": "signed char",
    "uint8_t": "unsigned char",
    "int16_t": "short",
    "uint16_t": "unsigned short",
    "int32_t": "int",
    "uint32_t": "unsigned int",
    **{
        name: f"::std::{name}"
        for name in (
            *("int64_t", "uint64_t", "size_t", "ptrdiff_t"),
            *("intptr_t", "uintptr_t", "intmax_t", "uintmax_t"),
        )
    },
}
_SIGNED = ("long", "long long", *(f"::std::{n}_t" for n in ("int64", "ptrdiff", "intptr", "intmax")))
_UNSIGNED = (
    *("unsigned long", "unsigned long long"),
    *(f"::std::{n}_t" for n in ("uint64", "size", "uintptr", "uintmax")),
)
_FAMILIES = {**dict.fromkeys(_SIGNED, "signed"), **dict.fromkeys(_UNSIGNED, "unsigned")}


def read_arguments(text: str, lowered: str) -> tuple[Argument | None, ...]:
    """The arguments in `text`, the text between angle brackets; ``None`` for those that have no id.

    `lowered` is the kernel's lowered name, in which typedefs and constants are resolved.
    """
    texts = list(_split(text))
    resolved: Sequence[LoweredArgument] = template_arguments(lowered) or ()
    if len(resolved) < len(texts):
        resolved = ()
    return tuple(_read(t, resolved[i] if resolved else None) for i, t in enumerate(texts))


_PIECE = re.compile(r"'(?:\\.|[^'\\])*'|\"(?:\\.|[^\"\\])*\"|->|<<|[<>]=|.", re.DOTALL)


def _split(text: str) -> Iterator[str]:
    """Split `text` at the commas outside of brackets."""
    part, depth = "", 0
    for piece in _PIECE.findall(text):
        depth += (piece in "<([{") - (piece in ">)]}")
        if piece == "," and not depth:
            yield part.strip()
            part = ""
        else:
            part += piece
    if part.strip():
        yield part.strip()


def _read(text: str, resolved: LoweredArgument | None) -> Argument | None:
    if isinstance(resolved, LoweredValue):
        return None if resolved.number is None else ValueArgument(resolved.number, resolved.is_enumerator)
    if resolved is None and (number := _number(text)) is not None:
        return ValueArgument(number)
    written = _type(text)
    if resolved is None or resolved.spelling is None or (written and written.id.startswith("type_id")):
        return written
    return _type(normalise(resolved.spelling)) or written  # the type behind a typedef


_NUMBER = re.compile(
    r"(?P<minus>-?)(?:0[xX](?P<hex>[0-9a-fA-F']+)|0[bB](?P<binary>[01']+)|(?P<octal>0[0-7']*)|(?P<decimal>[1-9][0-9']*))"
    r"(?:[uUlLzZ]{0,3})"
)
_CHARACTER = re.compile(
    r"'(?:(?P<plain>[ -&(-\[\]-~])|\\(?P<octal>[0-7]{1,3})|\\(?P<named>[abfnrtv'\"?\\]))'"
)
_BASES = {"hex": 16, "binary": 2, "octal": 8, "decimal": 10}
_NAMED_CHARACTERS = dict(zip("abfnrtv'\"?\\", map(ord, "\a\b\f\n\r\t\v'\"?\\"), strict=True))


def _number(text: str) -> int | None:
    """The value of a literal; ``None`` above ASCII, where it depends on whether ``char`` is signed."""
    if text in ("true", "false"):
        return int(text == "true")
    if match := _NUMBER.fullmatch(text):
        kind = match.lastgroup or ""
        return int(match["minus"] + match[kind].replace("'", ""), _BASES[kind])
    if match := _CHARACTER.fullmatch(text):
        plain, octal, named = match.group("plain", "octal", "named")
        code = ord(plain) if plain else int(octal, 8) if octal else _NAMED_CHARACTERS[named]
        return code if code < 128 else None
    return None


_TYPE = re.compile(
    r"(?P<qualifiers>(?:const |volatile )*)(?:(?:struct|class|enum|union|typename) )?(?:::)?"
    r"(?P<base>[^\W\d]\w*(?: \w+)*(?:::\w+)*(?P<arguments><.*>)?)(?P<decoration>(?:\*| const\b|&)*)"
)


def _type(text: str) -> TypeArgument | None:
    """The type `text`, if it is a name, or a pointer or reference to one."""
    match = _TYPE.fullmatch(text)
    if match is None or text in ("true", "false", "nullptr"):
        return None
    qualifiers, base, decoration = match["qualifiers"], match["base"], match["decoration"]
    short = base.removeprefix("cuda::").removeprefix("std::")
    base = _ALIASES.get(short, base)
    if base in FUNDAMENTAL or base.startswith("::std::"):
        family = _FAMILIES.get(base, base)
        return TypeArgument(f"type_id<{qualifiers}{base}{decoration}>", f"{qualifiers}{family}{decoration}")
    if " " in base and not match["arguments"]:
        return None
    named = f"named_type({quoted(qualifiers + base + decoration)})"
    return TypeArgument(named, named)
