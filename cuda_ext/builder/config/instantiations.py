"""The key ``instantiate``: name expressions, and tables that stand for all combinations of values."""

from __future__ import annotations

import difflib
import itertools
import re
from collections.abc import Iterable, Iterator, Mapping
from functools import partial

from cuda_ext.builder.config.kinds import (
    C_NAME,
    Kind,
    Schema,
    array_schema,
    check_array,
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
    items = check_array(value, where, "an array of name expressions", _check_item)
    return tuple(itertools.chain.from_iterable(items))


def _check_item(item: object, where: str) -> Iterable[str]:
    """The expressions that `item` stands for: itself, or a table with the values of its placeholders."""
    if not isinstance(item, str):
        what = 'a name expression such as "axpy<float>", or a table with kernel'
        return list(_multiply_out(expect(item, dict, where, what), where))
    if not item.strip():
        refuse_empty(where, "take it out")
    if absent := re.search(_ABSENT, item):
        name = absent[0].strip("<, \t\r\n{}")
        raise ConfigError(
            f"{{{name}}} has no values",
            where=where,
            remedy=f'write {{ kernel = {show(item)}, {name} = ["..."] }}',
        )
    return [item]


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
        yield _PLACEHOLDER.sub(partial(_replace, chosen), pattern)


def _replace(values: Mapping[str, str], placeholder: re.Match[str]) -> str:
    return values[placeholder[1]]


def _check_values(table: Mapping[str, object], name: str, where: str) -> list[str]:
    """The values of one placeholder."""
    if name not in table:
        raise ConfigError(f"{{{name}}} has no values", where=where, remedy=f"add {name} = [...]")
    here = f"{where}.{name}"
    values = check_array(table[name], here, "an array of values", string_or_integer)
    return values or refuse_empty(here, "add values")


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
