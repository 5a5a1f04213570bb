"""The template arguments of an instantiation as ids in C++.

In a generated header each argument is a number of 64 bits: the identity of a type, or a value. So a header
distinguishes instantiations even if the host does not know their types.
"""

from __future__ import annotations

import re
from typing import Literal, NamedTuple

from cuda_ext.builder.cpp.embedding import quoted
from cuda_ext.compiler.name_expressions import split_arguments
from cuda_ext.formats.lowered_types import LoweredValue
from cuda_ext.formats.mangling import LoweredArgument, template_arguments
from cuda_ext.formats.spelling import normalise

__all__ = ["FUNDAMENTAL", "Argument", "read_arguments"]


class Argument(NamedTuple):
    """A type or a value: an integer, a character, or an enumerator, whose name the host may not know.

    Two of one ``family`` may be the same, depending on the host's system.
    """

    kind: Literal["type", "value"]
    id: str
    family: str
    is_enumerator: bool = False


FUNDAMENTAL = frozenset(
    [
        *("void", "bool", "char", "signed char", "unsigned char", "wchar_t", "char16_t", "char32_t"),
        *("short", "unsigned short", "int", "unsigned int", "long", "unsigned long"),
        *("long long", "unsigned long long", "float", "double", "long double"),
    ]
)
# The types that have as many bits, and may be the same, on some systems only.
_FAMILIES = {
    **dict.fromkeys(("long", "long long"), "signed"),
    **{f"::std::{name}_t": "signed" for name in ("int64", "ptrdiff", "intptr", "intmax")},
    **dict.fromkeys(("unsigned long", "unsigned long long"), "unsigned"),
    **{f"::std::{name}_t": "unsigned" for name in ("uint64", "size", "uintptr", "uintmax")},
}
_ALIASES = {
    "int8_t": "signed char",
    "uint8_t": "unsigned char",
    "int16_t": "short",
    "uint16_t": "unsigned short",
    "int32_t": "int",
    "uint32_t": "unsigned int",
    **{name.removeprefix("::std::"): name for name in _FAMILIES if name.startswith("::std::")},
}


def read_arguments(text: str, lowered: str) -> tuple[Argument | None, ...]:
    """The arguments in `text`, the text between angle brackets; ``None`` for those that have no id.

    `lowered` is the kernel's lowered name, in which typedefs and constants are resolved.
    """
    texts = list(split_arguments(text))
    resolved = template_arguments(lowered) or ()
    if len(resolved) < len(texts):
        return tuple(_read(each, None) for each in texts)
    return tuple(map(_read, texts, resolved))


def _read(text: str, resolved: LoweredArgument | None) -> Argument | None:
    if isinstance(resolved, LoweredValue):
        return None if resolved.number is None else _value(resolved.number, resolved.is_enumerator)
    if resolved is None and (number := _number(text)) is not None:
        return _value(number)
    written = _type(text)
    if not resolved or (written and written.id.startswith("type_id")):
        return written
    return _type(normalise(resolved)) or written  # the type behind a typedef


def _value(number: int, is_enumerator: bool = False) -> Argument:
    # Converted to long long, whose least value has no literal.
    number = (number + 2**63) % 2**64 - 2**63
    id_ = f"value_id({number})" if number > -(2**63) else f"value_id({number + 1} - 1)"
    return Argument("value", id_, id_, is_enumerator)


_NUMBER = re.compile(
    r"(?P<digits>-?(?:0[xX][0-9a-fA-F']+|0[bB][01']+|(?P<octal>0[0-7']*)|[1-9][0-9']*))[uUlLzZ]{0,3}"
)
_CHARACTER = re.compile(
    r"'(?:(?P<plain>[ -&(-\[\]-~])|\\(?P<octal>[0-7]{1,3})|\\(?P<named>[abfnrtv'\"?\\]))'"
)
_NAMED_CHARACTERS = dict(zip("abfnrtv'\"?\\", map(ord, "\a\b\f\n\r\t\v'\"?\\"), strict=True))


def _number(text: str) -> int | None:
    """The value of a literal; ``None`` above ASCII, where it depends on whether ``char`` is signed."""
    if text in ("true", "false"):
        return int(text == "true")
    if match := _NUMBER.fullmatch(text):
        return int(match["digits"].replace("'", ""), 8 if match["octal"] else 0)
    if match := _CHARACTER.fullmatch(text):
        plain, octal, named = match.group("plain", "octal", "named")
        code = ord(plain) if plain else int(octal, 8) if octal else _NAMED_CHARACTERS[named]
        return code if code < 128 else None
    return None


_TYPE = re.compile(
    r"(?P<qualifiers>(?:const |volatile )*)(?:(?:struct|class|enum|union|typename) )?(?:::)?"
    r"(?P<base>[^\W\d]\w*(?: \w+)*(?:::\w+)*(?P<arguments><.*>)?)(?P<decoration>(?:\*| const\b|&)*)"
)


def _type(text: str) -> Argument | None:
    """The type `text`, if it is a name, or a pointer or reference to one."""
    match = _TYPE.fullmatch(text)
    if match is None or text in ("true", "false", "nullptr"):
        return None
    qualifiers, base, decoration = match["qualifiers"], match["base"], match["decoration"]
    short = base.removeprefix("cuda::").removeprefix("std::")
    base = _ALIASES.get(short, base)
    if base in FUNDAMENTAL or base.startswith("::std::"):
        family = _FAMILIES.get(base, base)
        id_ = f"type_id<{qualifiers}{base}{decoration}>"
        return Argument("type", id_, f"{qualifiers}{family}{decoration}")
    if " " in base and not match["arguments"]:
        return None
    named = f"named_type({quoted(qualifiers + base + decoration)})"
    return Argument("type", named, named)
