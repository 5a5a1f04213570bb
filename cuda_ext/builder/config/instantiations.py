"""The key ``instantiate``: name expressions, and tables that stand for all combinations of values."""

from __future__ import annotations

import difflib
import itertools
import re
from collections.abc import Iterator, Mapping

from cuda_ext.builder.config.kinds import (
    C_NAME,
    Kind,
    Schema,
    array_schema,
    expect,
    key_path,
    map_schema,
    refuse_empty,
    show,
    string_or_integer,
)
from cuda_ext.errors import ConfigError

__all__ = ["INSTANTIATIONS"]

_PLACEHOLDER = re.compile(r"\{([A-Za-z_]\w*)\}")
# A placeholder in an expression that has no values for it: no template argument of C++ is a list in braces.
_ABSENT = r"[<,]\s*\{[A-Za-z_]\w*\}"


def _check(value: object, where: str) -> tuple[str, ...]:
    if isinstance(value, str):
        raise ConfigError(
            "expected an array of name expressions", where=where, remedy=f"write [{show(value)}]"
        )
    return tuple(_expressions(expect(value, list, where, "an array of name expressions"), where))


def _expressions(items: list[object], where: str) -> Iterator[str]:
    """The strings in `items` as they are; tables multiplied out over the values of their placeholders."""
    for i, item in enumerate(items):
        here = f"{where}[{i}]"
        if isinstance(item, str):
            yield _check_expression(item, here)
        else:
            what = 'a name expression such as "axpy<float>", or a table with kernel'
            yield from _multiply_out(expect(item, dict, here, what), here)


def _check_expression(text: str, where: str) -> str:
    if not text.strip():
        refuse_empty(where, "take it out")
    if absent := re.search(_ABSENT, text):
        name = absent[0].strip("<, \t\r\n{}")
        raise ConfigError(
            f"{{{name}}} has no values",
            where=where,
            remedy=f'write {{ kernel = {show(text)}, {name} = ["..."] }}',
        )
    return text


def _multiply_out(table: Mapping[str, object], where: str) -> Iterator[str]:
    if "kernel" not in table and (close := difflib.get_close_matches("kernel", table, n=1)):
        raise ConfigError("unknown key", where=key_path(where, close[0]), remedy="did you mean 'kernel'?")
    pattern = expect(table.get("kernel"), str, f"{where}.kernel", 'a string such as "reduce<{T}>"')
    placeholders = dict.fromkeys(_PLACEHOLDER.findall(pattern))
    for name in table:
        if name != "kernel" and name not in placeholders:
            raise ConfigError(
                f"the expression {pattern!r} has no {{{name}}}",
                where=key_path(where, name),
                remedy="put it there, or take the key out",
            )
    values = [_check_values(table, name, where) for name in placeholders]
    for combination in itertools.product(*values):
        chosen = dict(zip(placeholders, combination, strict=True))
        yield _PLACEHOLDER.sub(lambda match, chosen=chosen: chosen[match[1]], pattern)  # type: ignore[misc]


def _check_values(table: Mapping[str, object], name: str, where: str) -> list[str]:
    """The values of one placeholder."""
    if name not in table:
        raise ConfigError(f"{{{name}}} has no values", where=where, remedy=f"add {name} = [...]")
    here = f"{where}.{name}"
    values = table[name]
    if isinstance(values, str):
        raise ConfigError("expected an array of values", where=here, remedy=f"write [{show(values)}]")
    items = expect(values, list, here, "an array of values") or refuse_empty(here, "add values")
    return [string_or_integer(item, f"{here}[{i}]") for i, item in enumerate(items)]


_EXPRESSION: Schema = {
    "type": "string",
    "description": "A C++ name expression.",
    "not": {"anyOf": [{"pattern": r"^\s*$"}, {"pattern": _ABSENT}]},
}
_PRODUCT: Schema = {
    **map_schema(rf"^{C_NAME}$", array_schema({"type": ["string", "integer"]}, minItems=1)),
    "properties": {
        "kernel": {
            "type": "string",
            "description": "A C++ name expression with placeholders, such as `reduce<{T}>`.",
        }
    },
    "required": ["kernel"],
}

INSTANTIATIONS = Kind(_check, array_schema({"anyOf": [_EXPRESSION, _PRODUCT]}))
