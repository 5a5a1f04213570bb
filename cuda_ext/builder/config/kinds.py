"""The kinds of values that keys take: each with its check and its JSON schema.

The patterns of the schema are read by Python, where ``\\w`` has letters of all scripts, and by editors, where
it has those of ASCII. So names are described by the ASCII characters that they lack. A pattern accepts all
that the check accepts; the check is the stricter one where no pattern can tell.
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Callable, Mapping
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
    "check_array",
    "choice",
    "expect",
    "key_path",
    "map_schema",
    "refuse_empty",
    "show",
    "string_or_integer",
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
        case str() | bool():
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


def check_array(value: object, where: str, what: str, item: Callable[[object, str], Any]) -> list[Any]:
    """Return what `item` returns for each item of an array of strings. `what` names the array in errors."""
    if isinstance(value, str):
        raise ConfigError(f"expected {what}", where=where, remedy=f"write [{show(value)}]")
    return [item(each, f"{where}[{i}]") for i, each in enumerate(expect(value, list, where, what))]


def refuse_empty(where: str, remedy: str) -> NoReturn:
    raise ConfigError("is empty", where=where, remedy=remedy)


def string_or_integer(value: object, where: str, example: str = "") -> str:
    """Return a string or an integer as a string. Raises :class:`ConfigError`."""
    if isinstance(value, bool) or not isinstance(value, (str, int)):
        raise ConfigError(f"expected a string or an integer{example}, found {show(value)}", where=where)
    return str(value)


def array_schema(items: Schema, **more: object) -> Schema:
    return {"type": "array", "items": items, **more}


def table_schema(properties: Mapping[str, Schema], **more: object) -> Schema:
    """A table with these keys and no others."""
    return {"type": "object", "properties": dict(properties), "additionalProperties": False, **more}


def map_schema(names: str, values: Schema) -> Schema:
    """A table with keys of the author's own."""
    return {"type": "object", "propertyNames": {"pattern": names}, "additionalProperties": values}


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


def strings(example: str = "", pattern: str = r"^[^\x00]+$") -> Kind:
    """An array of strings; with an `example`, at least one is needed. `pattern` is for the schema alone."""

    def check(value: object, where: str) -> tuple[str, ...]:
        items = tuple(check_array(value, where, "an array of strings", _check_item))
        if example and not items:
            refuse_empty(where, f'name at least one, such as "{example}"')
        return items

    items = {"type": "string", "pattern": pattern}
    return Kind(check, array_schema(items, **({"minItems": 1} if example else {})))


def _check_item(value: object, where: str) -> str:
    text: str = expect(value, str, where, "a string") or refuse_empty(where, "take it out")
    if "\0" in text:
        raise ConfigError(f"{text!r} has a zero byte", where=where, remedy="take it out")
    return text


def _check_text(value: object, where: str) -> str:
    text: str = expect(value, str, where, "a string")
    return text or refuse_empty(where, "give it a value or leave it out")


def _check_standard(value: object, where: str) -> str:
    text: str = expect(value, str, where, 'a string such as "c++17"')
    if not re.fullmatch(_STANDARD, text):
        year = re.search(r"\d[\da-z]$", text)
        remedy = f"did you mean 'c++{year[0] if year else 17}'?"
        raise ConfigError(f"{text!r} is not a C++ standard", where=where, remedy=remedy)
    return text


_STANDARD = r"^c\+\+\d[\da-z]$"

TEXT = Kind(_check_text, {"type": "string", "minLength": 1})
STANDARD = Kind(_check_standard, {"type": "string", "pattern": _STANDARD})
FLAG = Kind(lambda value, where: expect(value, bool, where, "true or false"), {"type": "boolean"})


# Options that say what a key says already; the compiler would take one of the two without a word.
KEY_OF_OPTION = {
    **dict.fromkeys(("-arch", "--gpu-architecture", "-gencode", "--generate-code", "-code"), "architectures"),
    **dict.fromkeys(("-std", "--std"), "std"),
    **dict.fromkeys(("-rdc", "--relocatable-device-code", "-dc", "--device-c", "-dlto"), "link"),
    **dict.fromkeys(("-fatbin", "--fatbin", "-cubin", "--cubin", "-ptx", "--ptx"), "emit"),
}
_INCLUDE = r"(?:-I|--include-path|-isystem|--system-include)=?"


def _check_options(value: object, where: str) -> tuple[str, ...]:
    options: tuple[str, ...] = strings().check(value, where)
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


_REFUSED_OPTIONS = (
    rf"^(?:{'|'.join(KEY_OF_OPTION)})(?:=|$)",
    rf"^{_INCLUDE}(?![=/\\]|[A-Za-z]:).",
)
OPTIONS = Kind(
    _check_options,
    array_schema(
        {**strings().schema["items"], "not": {"anyOf": [{"pattern": each} for each in _REFUSED_OPTIONS]}}
    ),
)


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
