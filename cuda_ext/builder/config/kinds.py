"""The kinds of values that keys take: each with its check and its JSON schema.

The patterns of the schema are read by Python, where ``\\w`` has letters of all scripts, and by editors, where
it has those of ASCII. So names are described by the ASCII characters that they lack. A pattern accepts all
that the check accepts; the check is the stricter one where no pattern can tell.
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn, TypeAlias

from cuda_ext.errors import ConfigError, did_you_mean

__all__ = [
    "C_NAME",
    "FLAG",
    "KEY_OF_OPTION",
    "MACROS",
    "NAME",
    "OPTIONS",
    "STANDARD",
    "TEXT",
    "Kind",
    "Schema",
    "array_schema",
    "choice",
    "expect",
    "key_path",
    "map_schema",
    "refuse_empty",
    "show",
    "string_or_integer",
    "string_schema",
    "strings",
    "table_schema",
]

Schema: TypeAlias = dict[str, Any]

_FIRST = r"[^\x00-@\x5B-\x5E\x60\x7B-\x7F]"
_FURTHER = r"[^\x00-/:-@\x5B-\x5E\x60\x7B-\x7F]"
NAME = rf"{_FIRST}{_FURTHER}*"
C_NAME = rf"[A-Za-z_]{_FURTHER}*"


@dataclass(frozen=True)
class Kind:
    """``check`` takes a value and its key path, and returns the value as a setting holds it.

    It raises :class:`ConfigError`.
    """

    check: Callable[[object, str], Any]
    schema: Schema


def key_path(where: str, key: str) -> str:
    """Append `key` to the key path `where`, with quotes where TOML needs them."""
    return f"{where}.{key if re.fullmatch(r'[A-Za-z0-9_-]+', key) else show(key)}"


def show(value: object) -> str:
    """Spell `value` as TOML does; tables and arrays only by their kind."""
    match value:
        case bool():
            return str(value).lower()
        case str():
            return json.dumps(value, ensure_ascii=False)
        case dict():
            return "a table"
        case list():
            return "an array"
        case None:
            return "nothing"
        case _:
            return str(value)


def expect(value: object, kind: type, where: str, what: str) -> Any:
    """Return `value` if it is a `kind`. Raises :class:`ConfigError` that asks for `what`."""
    if not isinstance(value, kind):
        raise ConfigError(f"expected {what}, found {show(value)}", where=where)
    return value


def refuse_empty(where: str, remedy: str) -> NoReturn:
    raise ConfigError("is empty", where=where, remedy=remedy)


def string_or_integer(value: object, where: str, example: str = "") -> str:
    """Return a string or an integer as a string. Raises :class:`ConfigError`."""
    if isinstance(value, bool) or not isinstance(value, (str, int)):
        raise ConfigError(f"expected a string or an integer{example}, found {show(value)}", where=where)
    return str(value)


def string_schema(pattern: str) -> Schema:
    return {"type": "string", "pattern": pattern}


def array_schema(items: Schema, **more: object) -> Schema:
    return {"type": "array", "items": items, **more}


def table_schema(properties: Mapping[str, Schema], **more: object) -> Schema:
    """A table with these keys and no others."""
    return {"type": "object", "properties": dict(properties), "additionalProperties": False, **more}


def map_schema(names: str, values: Schema) -> Schema:
    """A table with keys of the author's own."""
    return {"type": "object", "propertyNames": {"pattern": names}, "additionalProperties": values}


# Text.


def _check_text(value: object, where: str) -> str:
    text: str = expect(value, str, where, "a string")
    return text or refuse_empty(where, "give it a value or leave it out")


def _check_standard(value: object, where: str) -> str:
    text: str = expect(value, str, where, 'a string such as "c++17"')
    if not re.fullmatch(r"c\+\+\d[\da-z]", text):
        year = re.search(r"\d[\da-z]$", text)
        raise ConfigError(
            f"{text!r} is not a C++ standard",
            where=where,
            remedy=f"did you mean 'c++{year[0] if year else 17}'?",
        )
    return text


TEXT = Kind(_check_text, {"type": "string", "minLength": 1})
STANDARD = Kind(_check_standard, string_schema(r"^c\+\+\d[\da-z]$"))
FLAG = Kind(lambda value, where: expect(value, bool, where, "true or false"), {"type": "boolean"})


def choice(*choices: str) -> Kind:
    """One of `choices`."""

    def check(value: object, where: str) -> str:
        if isinstance(value, str) and value in choices:
            return value
        raise ConfigError(
            f"expected {' or '.join(map(repr, choices))}, found {show(value)}",
            where=where,
            remedy=did_you_mean(value.lower(), choices) if isinstance(value, str) else "",
        )

    return Kind(check, {"type": "string", "enum": list(choices)})


# Arrays of strings.

_WITHOUT_ZERO = string_schema(r"^[^\x00]+$")


def strings(example: str = "", pattern: str = "") -> Kind:
    """An array of strings; with an `example`, at least one is needed. `pattern` is for the schema alone."""

    def check(value: object, where: str) -> tuple[str, ...]:
        items = _check_strings(value, where)
        if example and not items:
            refuse_empty(where, f'name at least one, such as "{example}"')
        return items

    items = string_schema(pattern) if pattern else _WITHOUT_ZERO
    return Kind(check, array_schema(items, **({"minItems": 1} if example else {})))


def _check_strings(value: object, where: str) -> tuple[str, ...]:
    if isinstance(value, str):
        raise ConfigError("expected an array of strings", where=where, remedy=f"write [{show(value)}]")
    items: list[str] = expect(value, list, where, "an array of strings")
    for i, item in enumerate(items):
        here = f"{where}[{i}]"
        if not expect(item, str, here, "a string"):
            refuse_empty(here, "take it out")
        if "\0" in item:
            raise ConfigError(f"{item!r} has a zero byte", where=here, remedy="take it out")
    return tuple(items)


# Options that say what a key says already; the compiler would take one of the two without a word.
KEY_OF_OPTION = {
    **dict.fromkeys(("-arch", "--gpu-architecture", "-gencode", "--generate-code", "-code"), "architectures"),
    **dict.fromkeys(("-std", "--std"), "std"),
    **dict.fromkeys(("-rdc", "--relocatable-device-code", "-dc", "--device-c", "-dlto"), "link"),
    **dict.fromkeys(("-fatbin", "--fatbin", "-cubin", "--cubin", "-ptx", "--ptx"), "emit"),
}
_INCLUDE = r"(?:-I|--include-path|-isystem|--system-include)=?"


def _check_options(value: object, where: str) -> tuple[str, ...]:
    options = _check_strings(value, where)
    for i, (option, following) in enumerate(itertools.pairwise((*options, ""))):
        here = f"{where}[{i}]"
        if key := KEY_OF_OPTION.get(option.partition("=")[0]):
            raise ConfigError(f"{option!r} has a key of its own", where=here, remedy=f"set {key} instead")
        include = re.fullmatch(rf"{_INCLUDE}(.*)", option, re.DOTALL)
        if include and not Path(include[1] or following).is_absolute():
            raise ConfigError(
                f"{option!r} depends on where the build happens to run",
                where=here,
                remedy="name directories of the project as include directories",
            )
    return options


def _options_schema(options: Sequence[str]) -> Schema:
    with_key = rf"^(?:{'|'.join(options)})(?:=|$)"
    relative_include = rf"^{_INCLUDE}(?![=/\\]|[A-Za-z]:)."
    refused = {"anyOf": [{"pattern": with_key}, {"pattern": relative_include}]}
    return array_schema({**_WITHOUT_ZERO, "not": refused})


OPTIONS = Kind(_check_options, _options_schema(list(KEY_OF_OPTION)))


# Tables of macros.


def _check_macros(value: object, where: str) -> dict[str, str]:
    macros = {}
    for name, text in expect(value, dict, where, "a table of macros and their values").items():
        here = key_path(where, name)
        if not re.fullmatch(r"[A-Za-z_]\w*", name):
            raise ConfigError(
                "not the name of a macro",
                where=here,
                remedy="define macros with parameters in a header and name it in pre-include"
                if "(" in name
                else "names have letters, digits and underscores",
            )
        macros[name] = string_or_integer(text, here, ', such as "1"')
    return macros


MACROS = Kind(_check_macros, map_schema(rf"^{C_NAME}$", {"type": ["string", "integer"]}))
