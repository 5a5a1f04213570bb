"""The kinds of values of keys, each with its check and its JSON schema.

Python and editors read the patterns of the schema. In Python, ``\\w`` matches letters of all scripts; in
editors, only those of ASCII. So patterns of names exclude ASCII characters instead of listing letters. A
pattern accepts everything that the check accepts; if no pattern can express the check, the check is stricter.
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeAlias

from cuda_ext.compiler.compile_options import SETTING_OF_OPTION, setting_of
from cuda_ext.compiler.spelled_settings import spell_setting
from cuda_ext.errors import ConfigError, did_you_mean, escape_controls, shorten
from cuda_ext.text.brackets import split_arguments, take_parentheses

Schema: TypeAlias = dict[str, Any]

_FIRST = r"[^\x00-@\x5B-\x5E\x60\x7B-\x7F]"
_FURTHER = r"[^\x00-/:-@\x5B-\x5E\x60\x7B-\x7F]"
NAME = rf"{_FIRST}{_FURTHER}*"
C_NAME = rf"[A-Za-z_]{_FURTHER}*"


@dataclass(frozen=True)
class Kind:
    """``check`` takes a value and its key path, and returns the value in the form of a setting.

    It raises :class:`ConfigError`.
    """

    check: Callable[[object, str], Any]
    schema: Schema

    def described(self, text: str) -> Kind:
        """Return this kind with `text` as its documentation."""
        return Kind(self.check, {**self.schema, "description": text})

    def then(self, check: Callable[[Any, str], Any], **schema: object) -> Kind:
        """Return this kind with a further check or conversion of its values, and more in its schema."""
        return Kind(lambda value, where: check(self.check(value, where), where), {**self.schema, **schema})


def key_path(where: str, key: str) -> str:
    """Append `key` to the key path `where`, with quotes where TOML needs them."""
    return f"{where}.{key if re.fullmatch(r'[A-Za-z0-9_-]+', key) else show(key)}"


def show(value: object) -> str:
    """Spell `value` as TOML does, shortened if it is long; show only the kind of tables and arrays."""
    if isinstance(value, str | bool):
        return json.dumps(shorten(value) if isinstance(value, str) else value, ensure_ascii=False)
    words: dict[type, str] = {dict: "a table", list: "an array", type(None): "nothing"}
    return words.get(type(value), str(value))


def check_values(value: object, where: str, depth: int = 16) -> None:
    """Check all strings and numbers in `value`, down to a `depth` at which no key has any.

    Strings and names of keys have no control characters, tabs and ends of lines included, and integers have
    64 bits, as TOML says. Raises :class:`ConfigError`.
    """
    match value:
        case str() if escape_controls(value) != value or re.search(r"[\t\r\n]", value):
            raise ConfigError(
                f"{shorten(value)!r} has a control character", where=where, remedy="take it out"
            )
        case int() if not -(1 << 63) <= value < 1 << 63:
            raise ConfigError("has more than 64 bits", where=where, remedy="write a smaller number")
        case dict() if depth:
            for key, each in value.items():
                check_values(key, where)
                check_values(each, key_path(where, key), depth - 1)
        case list() if depth:
            for i, each in enumerate(value):
                check_values(each, f"{where}[{i}]", depth - 1)


def expect(value: object, kind: type, where: str, what: str) -> Any:
    """Return `value` if it is a `kind`. Raises :class:`ConfigError` that requests `what`."""
    if not isinstance(value, kind):
        raise ConfigError(f"expected {what}, found {show(value)}", where=where)
    return value


def map_schema(names: str, values: Schema) -> Schema:
    """Write the schema of a table with names that the author chooses."""
    return {"type": "object", "propertyNames": {"pattern": names}, "additionalProperties": values}


# Kinds from which others are built. `what` names the kind in errors, and `empty` is the remedy if it is
# empty.


def string(what: str = "a string", empty: str = "", **schema: object) -> Kind:
    """Accept a string; with `empty`, one that is not empty."""

    def check(value: object, where: str) -> str:
        text: str = expect(value, str, where, what)
        if empty and not text:
            raise ConfigError("is empty", where=where, remedy=empty)
        return text

    return Kind(check, {"type": "string", **schema})


def scalar(what: str = "a string or an integer") -> Kind:
    """Accept a string or an integer, as a string."""

    def check(value: object, where: str) -> str:
        if isinstance(value, bool) or not isinstance(value, str | int):
            raise ConfigError(f"expected {what}, found {show(value)}", where=where)
        return str(value)

    return Kind(check, {"type": ["string", "integer"]})


def array(items: Kind, what: str, empty: str = "") -> Kind:
    """Accept an array of `items`; with `empty`, at least one is required."""

    def check(value: object, where: str) -> tuple[Any, ...]:
        if isinstance(value, str) and items.schema.get("type") != "object":
            raise ConfigError(f"expected {what}", where=where, remedy=f"write [{show(value)}]")
        checked = tuple(
            items.check(item, f"{where}[{i}]") for i, item in enumerate(expect(value, list, where, what))
        )
        if empty and not checked:
            raise ConfigError("is empty", where=where, remedy=empty)
        return checked

    return Kind(check, {"type": "array", "items": items.schema, **({"minItems": 1} if empty else {})})


def table(
    keys: Mapping[str, Kind],
    what: str = "a table",
    required: Mapping[str, str] = MappingProxyType({}),
    elsewhere: Mapping[str, tuple[str, str]] = MappingProxyType({}),
) -> Kind:
    """Accept a table with these `keys` and no others.

    `required` has the remedy if a key is missing. `elsewhere` has the problem and the remedy for keys of
    other tables.
    """

    def check(value: object, where: str) -> dict[str, Any]:
        values = expect(value, dict, where, what)
        for key in values:
            if key not in keys:
                problem, remedy = elsewhere.get(key) or ("unknown key", _nearest(key, keys))
                raise ConfigError(problem, where=key_path(where, key), remedy=remedy)
        for key, remedy in required.items():
            if key not in values:
                raise ConfigError("is missing", where=f"{where}.{key}", remedy=remedy)
        return {key: keys[key].check(each, f"{where}.{key}") for key, each in values.items()}

    schema = {"type": "object", "properties": {k: kind.schema for k, kind in keys.items()}}
    needed = {"required": [*required]} if required else {}
    return Kind(check, {**schema, "additionalProperties": False, **needed})


# Keys that other tools call otherwise.
_CALLED = {
    "standard": "std",
    "cpp-standard": "std",
    "cxx-standard": "std",
    "flags": "options",
    "gpus": "architectures",
}


def _nearest(key: str, known: Iterable[str]) -> str:
    import difflib  # slow to import

    plain, names = key.replace("_", "-").lower(), sorted(known)
    plain = _CALLED.get(plain, plain)
    close = [k for k in names if k.startswith(plain)] or difflib.get_close_matches(plain, names)
    # A name with the same beginning is more likely meant than one that contains it.
    close.sort(key=lambda k: k[:3] != plain[:3])
    return f"did you mean {close[0]!r}?" if close else f"known keys: {', '.join(names)}"


def mapping(names: str, check_name: Callable[[str, str], None], values: Kind, what: str) -> Kind:
    """Accept a table with names that the author chooses; `names` is their pattern in the schema."""

    def check(value: object, where: str) -> dict[str, Any]:
        checked = {}
        for name, each in expect(value, dict, where, what).items():
            check_name(name, key_path(where, name))
            checked[name] = values.check(each, key_path(where, name))
        return checked

    return Kind(check, map_schema(names, values.schema))


def choice(*choices: str) -> Kind:
    """Accept one of `choices`."""

    def check(value: object, where: str) -> str:
        if isinstance(value, str) and value in choices:
            return value
        raise ConfigError(
            f"expected {' or '.join(map(repr, choices))}, found {show(value)}",
            where=where,
            remedy=did_you_mean(value.lower(), choices) if isinstance(value, str) else "",
        )

    return Kind(check, {"type": "string", "enum": list(choices)})


def strings(example: str = "", item: str = "a string", **schema: Any) -> Kind:
    """Accept an array of strings; an `example` requires at least one.

    Errors call one string `item`; `schema` is that of the strings.
    """
    items = string(item, empty="take it out", minLength=1, **schema)
    return array(items, "an array of strings", f'name at least one, such as "{example}"' if example else "")


def _check_constant(text: str, where: str) -> str:
    """Refuse several expressions: with a comma, C++ takes the value of the last."""
    whole = take_parentheses(text.strip())
    inner = whole[0] if whole and not whole[1] else text
    if any(len([*split_arguments(each)]) > 1 for each in (text, inner)):
        remedy = "list each constant as a string of its own"
        raise ConfigError(f"{shorten(text)!r} has a comma outside of brackets", where=where, remedy=remedy)
    return text


def _check_standard(text: str, where: str) -> str:
    if not re.fullmatch(_STANDARD, text):
        close = f"c++{text[-2:]}"
        remedy = f"did you mean '{close if re.fullmatch(_STANDARD, close) else 'c++17'}'?"
        flaw = "older than CUDA compiles" if text == "c++98" else "not a C++ standard"
        raise ConfigError(f"{shorten(text)!r} is {flaw}", where=where, remedy=remedy)
    return text


def _check_parts(value: object, where: str) -> bool | int:
    if isinstance(value, bool) or (isinstance(value, int) and value > 0):
        return value
    raise ConfigError(f"expected true, false or a positive number of parts, found {show(value)}", where=where)


_STANDARD = r"^c\+\+(?:03|1[147]|2[036a-c])$"

CONSTANTS = array(
    string("a string", empty="take it out", minLength=1).then(_check_constant), "an array of strings"
)
FLAG = Kind(lambda value, where: expect(value, bool, where, "true or false"), {"type": "boolean"})
PARTS = Kind(_check_parts, {"type": ["boolean", "integer"], "minimum": 1})
STANDARD = string('a string such as "c++17"', pattern=_STANDARD).then(_check_standard)
TEXT = string(empty="give it a value or leave it out", minLength=1)


_INCLUDE = r"(?:-I|--include-path|-isystem|--system-include)=?"


def _check_options(options: Sequence[str], where: str) -> Sequence[str]:
    for i, (option, following) in enumerate(itertools.pairwise((*options, ""))):
        here = f"{where}[{i}]"
        if key := setting_of(option):
            raise ConfigError(
                f"{shorten(option)!r} has a key of its own",
                where=here,
                remedy=f"set {spell_setting(key)} instead",
            )
        include = re.fullmatch(rf"{_INCLUDE}(.*)", option, re.DOTALL)
        if include and not Path(include[1] or following).is_absolute():
            raise ConfigError(
                f"{shorten(option)!r} depends on where the build happens to run",
                where=here,
                remedy="name directories of the project as include directories",
            )
    return options


_REFUSED_OPTIONS = (
    rf"^(?:{'|'.join(SETTING_OF_OPTION)})(?:[= ]|$)",
    rf"^{_INCLUDE}(?![=/\\]|[A-Za-z]:).",
)
_OPTION = {**strings().schema["items"], "not": {"anyOf": [{"pattern": each} for each in _REFUSED_OPTIONS]}}
OPTIONS = strings().then(_check_options, items=_OPTION)


def _check_macro(name: str, where: str) -> None:
    if not re.fullmatch(r"[A-Za-z_]\w*", name):
        raise ConfigError(
            "not the name of a macro",
            where=where,
            remedy=f"define macros with parameters in a header and name it in {spell_setting('pre-include')}"
            if "(" in name
            else "names have letters, digits and underscores",
        )


_VALUE = scalar('a string or an integer, such as "1"')
MACROS = mapping(rf"^{C_NAME}$", _check_macro, _VALUE, "a table of macros and their values")
