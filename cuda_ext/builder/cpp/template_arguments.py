"""The template arguments of an instantiation as conditions in C++, and the parameters that they are for.

A generated header compares the template arguments in a user's code with those of each instantiation: types
that every host has as types, other types by their names, and values as numbers.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from typing import Literal, NamedTuple

from cuda_ext.builder.cpp.embedding import quoted
from cuda_ext.formats.lowered_names.lowered_types import LoweredType, LoweredValue
from cuda_ext.formats.lowered_names.mangling import read_lowered_name
from cuda_ext.formats.lowered_names.meanings import literal_value
from cuda_ext.formats.spelling import STANDARD_INTEGERS, normalise
from cuda_ext.text.brackets import split_arguments


class Argument(NamedTuple):
    """A type that every host has, a type that is only known by its name, or a value."""

    kind: Literal["type", "name", "value"]
    text: str
    is_enumerator: bool = False

    def condition(self, parameter: str) -> str:
        """Write the C++ condition that the template parameter `parameter` equals this argument."""
        match self.kind:
            case "type":
                return f"::std::is_same_v<{parameter}, {self.text}>"
            case "name":
                return f"loader::is_named<{parameter}>({quoted(self.text)})"
            case "value":
                return f"loader::number<{parameter}>() == {self.text}"


_PARAMETER = re.compile(
    r"(?:(?P<type>class|typename)|(?:(?:const|unsigned|signed|bool|char|short|int|long|auto"
    r"|(?:::)?(?:std::)?(?:size_t|u?int(?:8|16|32|64)_t))\b\s*)+)"
    r"\s*(?:[^\W\d]\w*)?\s*(?P<default>=.*)?",
    re.DOTALL,
)
_ABSENT = {False: Argument("type", "absent"), True: Argument("value", "absent_value")}


class TemplateParameters(NamedTuple):
    """The template parameters, each a value or a type; those from the position ``least`` on may be absent."""

    are_values: Sequence[bool]
    least: int

    @classmethod
    def of(cls, lists: Collection[Sequence[Argument]]) -> TemplateParameters | None:
        """Make parameters for all `lists`; ``None`` if one is a type in one list and a value in another."""
        longest = max(lists, key=len, default=())
        are_values = [argument.kind == "value" for argument in longest]
        if any((a.kind == "value") != v for each in lists for a, v in zip(each, are_values, strict=False)):
            return None
        return cls(are_values, min(map(len, lists), default=0))

    @classmethod
    def read(cls, head: str) -> TemplateParameters | None:
        """Read ``template <class T, int N = 4>``; ``None`` for packs and what may be a type or a value."""
        parameters = list(split_arguments(head.partition("<")[2].rpartition(">")[0]))
        matches = [_PARAMETER.fullmatch(each.strip()) for each in parameters]
        if not all(matches):
            return None
        found = [match for match in matches if match]
        least = next((i for i, match in enumerate(found) if match["default"]), len(found))
        return cls([match["type"] is None for match in found], least)

    @property
    def names(self) -> list[str]:
        return [f"{'V' if is_value else 'T'}{i}" for i, is_value in enumerate(self.are_values)]

    @property
    def words(self) -> list[str]:
        return ["auto" if is_value else "class" for is_value in self.are_values]

    @property
    def declaration(self) -> str:
        """The declarations of the parameters, for a template."""
        return ", ".join(map("{} {}".format, self.words, self.names))

    @property
    def texts(self) -> list[str]:
        """The C++ classes that provide the texts of the parameters."""
        kinds = ["Value" if is_value else "Type" for is_value in self.are_values]
        classes = list(map("loader::{}Argument<{}>".format, kinds, self.names))
        return [*classes[: self.least], *map("AbsentOr<{}>".format, classes[self.least :])]

    def declare(self, template: str) -> tuple[str, str]:
        """Declare the parameters, with defaults, of the variable template `template`, and its arguments."""
        names = [f"{name}_" if name == template else name for name in self.names]
        defaults = [
            f" = cuda_ext_kernels::{_ABSENT[is_value].text}" if i >= self.least else ""
            for i, is_value in enumerate(self.are_values)
        ]
        return ", ".join(map("{} {}{}".format, self.words, names, defaults)), ", ".join(names)

    def condition(self, arguments: Sequence[Argument]) -> str:
        """Write the C++ condition that the parameters equal these `arguments`."""
        absent = [_ABSENT[is_value] for is_value in self.are_values[len(arguments) :]]
        pairs = zip([*arguments, *absent], self.names, strict=True)
        return " && ".join(argument.condition(name) for argument, name in pairs) or "true"


FUNDAMENTAL = frozenset(
    [
        *("void", "bool", "char", "signed char", "unsigned char", "wchar_t", "char16_t", "char32_t"),
        *("short", "unsigned short", "int", "unsigned int", "long", "unsigned long"),
        *("long long", "unsigned long long", "float", "double", "long double"),
    ]
)
# An integer of 64 bits is one of two types, depending on the host's system.
_ALIASES = {
    **{n: f"::std::{n}" if t.endswith("long") else t for n, t in STANDARD_INTEGERS.items()},
    **{name: f"::std::{name}" for name in ("intmax_t", "uintmax_t")},
}


def read_arguments(text: str, lowered: str) -> tuple[Argument | None, ...]:
    """Read the arguments in `text`, the text between angle brackets; ``None`` for those that are unclear.

    `lowered` is the kernel's lowered name, in which typedefs and constants are resolved.
    """
    texts = list(split_arguments(text))
    name = read_lowered_name(lowered)
    resolved = (name and name.arguments) or ()
    if len(resolved) < len(texts):
        return tuple(_read(each, None) for each in texts)
    return tuple(map(_read, texts, resolved))


def read_constants(constants: Mapping[str, str]) -> tuple[Argument | None, ...]:
    """Read the `constants` of a Python function as arguments; ``None`` for those that are not integers."""
    texts = [text.lower() if text in ("True", "False") else text for text in constants.values()]
    numbers = [literal_value(text) for text in texts if text != "None"]  # None removes the parameter
    return tuple(None if number is None else _value(number) for number in numbers)


def _read(text: str, resolved: LoweredType | LoweredValue | None) -> Argument | None:
    if isinstance(resolved, LoweredValue) and not resolved.spelling.startswith("&"):
        return None if resolved.number is None else _value(resolved.number, resolved.is_enumerator)
    if resolved is None and (number := literal_value(text)) is not None:
        return _value(number)
    written = _type(text)
    if not isinstance(resolved, LoweredType) or not resolved.is_simple:
        return written
    if written and written.kind == "type":
        return written
    return _type(normalise(resolved.spelling)) or written  # the type behind a typedef


def _value(number: int, is_enumerator: bool = False) -> Argument:
    # Converted to long long, whose least value has no literal.
    number = (number + 2**63) % 2**64 - 2**63
    literal = str(number) if number > -(2**63) else f"{number + 1} - 1"
    return Argument("value", literal, is_enumerator)


_TYPE = re.compile(
    r"(?P<qualifiers>(?:const |volatile )*)(?:(?:struct|class|enum|union|typename) )?(?:::)?"
    r"(?P<base>[^\W\d]\w*(?: \w+)*(?:::\w+)*(?P<arguments><.*>)?)(?P<decoration>(?:\*| const\b|&)*)"
)


def _type(text: str) -> Argument | None:
    """Read the type `text`, if it is a name, or a pointer or reference to one."""
    match = _TYPE.fullmatch(text)
    if match is None or text in ("true", "false", "nullptr"):
        return None
    qualifiers, base, decoration = match["qualifiers"], match["base"], match["decoration"]
    short = base.removeprefix("cuda::").removeprefix("std::")
    base = _ALIASES.get(short, base)
    if base in FUNDAMENTAL or base.startswith("::std::"):
        return Argument("type", f"{qualifiers}{base}{decoration}")
    if " " in base and not match["arguments"]:
        return None
    return Argument("name", f"{qualifiers}{base}{decoration}")
