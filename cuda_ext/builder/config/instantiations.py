"""The key ``instantiate``: name expressions, and tables that stand for all combinations of values."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

from cuda_ext.builder.config.kinds import (
    C_NAME,
    Kind,
    Schema,
    array,
    expect,
    key_path,
    map_schema,
    scalar,
    show,
    string,
)
from cuda_ext.compiler.translation_unit import MOST_INSTANTIATIONS
from cuda_ext.errors import ConfigError, closest_name, shorten

_PLACEHOLDER = re.compile(r"\{([A-Za-z_]\w*)\}")
# A constant that a launch derives: BLOCK={next_power_of_2(n)}. A name alone is a placeholder.
_DERIVED = re.compile(r"\b([A-Za-z_]\w*)\s*=\s*\{(?![A-Za-z_]\w*\})([^{}]+)\}")
# A placeholder without values in an expression; no template argument of C++ is a braced list.
_ABSENT = r"[<,]\s*\{[A-Za-z_]\w*\}"


def _check_item(item: object, where: str) -> Iterable[str]:
    """Return the expressions of `item`: itself, or those of a table with values of its placeholders."""
    if isinstance(item, str):
        return [_EXPRESSION.check(item, where)]
    what = 'a name expression such as "axpy<float>", or a table with kernel'
    return _multiply_out(expect(item, dict, where, what), where)


def _check_expression(text: str, where: str) -> str:
    if not text.strip():
        raise ConfigError("is empty", where=where, remedy="take it out")
    if absent := re.search(_ABSENT, text):
        name = absent[0].strip("<, \t\r\n{}")
        remedy = f'write {{ kernel = {show(text)}, {name} = ["..."] }}'
        raise ConfigError(f"{{{name}}} has no values", where=where, remedy=remedy)
    return text


def _multiply_out(table: Mapping[str, object], where: str) -> Iterator[str]:
    """Yield the expressions of `table` one by one: there may be any number of them."""
    if "kernel" not in table and (close := closest_name("kernel", table)):
        raise ConfigError("unknown key", where=key_path(where, close), remedy="did you mean 'kernel'?")
    pattern = EXPRESSION_PATTERN.check(table.get("kernel"), f"{where}.kernel")
    derived = dict(_DERIVED.findall(pattern))
    pattern = _DERIVED.sub(r"\1={\1}", pattern)
    names = table.keys() - {"kernel"}
    check_placeholders(pattern, [name for name in table if name in names], where, [*derived])
    given = {name: VALUES.check(table[name], f"{where}.{name}") for name in table if name in names}
    given |= {name: _derive(name, text, given.get(name, ()), where) for name, text in derived.items()}
    return (text for _, text in multiply_out(pattern, given))


def check_placeholders(pattern: str, names: Sequence[str], where: str, derived: Sequence[str] = ()) -> None:
    """Check that the placeholders of `pattern` are `names`, and those `derived`. Raises ConfigError."""
    placeholders = dict.fromkeys(_PLACEHOLDER.findall(pattern))
    for name in names:
        if name not in placeholders:
            raise ConfigError(
                f"the expression {shorten(pattern)!r} has no {{{name}}}",
                where=key_path(where, name),
                remedy="put it there, or take the key out",
            )
    for name in placeholders:
        if name not in names and name not in derived:
            raise ConfigError(f"{{{name}}} has no values", where=where, remedy=f"add {name} = [...]")


def multiply_out(pattern: str, values: Mapping[str, Sequence[str]]) -> Iterator[tuple[dict[str, str], str]]:
    """Yield all combinations of `values`, each with the `pattern` in which they replace placeholders."""
    placeholders = dict.fromkeys(_PLACEHOLDER.findall(pattern))
    # The text between placeholders, and their names at odd positions.
    parts = list(enumerate(_PLACEHOLDER.split(pattern)))
    combinations = itertools.product(*(values[name] for name in placeholders))
    for chosen in (dict(zip(placeholders, each, strict=True)) for each in combinations):
        yield chosen, "".join(chosen[text] if i % 2 else text for i, text in parts)


def _derive(name: str, expression: str, values: Sequence[str], where: str) -> Sequence[str]:
    from cuda_ext.compiler.front_ends.derived_constants import derive_values  # few tables need it

    try:
        return derive_values(expression, values)
    except ValueError as error:
        problem, _, remedy = str(error).partition(": ")
        raise ConfigError(problem, where=f"{where}.{name}", remedy=remedy) from None


def _check_value(value: object, where: str) -> str:
    return json.dumps(value) if isinstance(value, bool) else _SCALAR.check(value, where)


_SCALAR = scalar("a string, an integer or a boolean")
VALUE = Kind(_check_value, {"type": ["string", "integer", "boolean"]})
_EXPRESSION = string(description="A C++ name expression.").then(
    _check_expression, **{"not": {"anyOf": [{"pattern": r"^\s*$"}, {"pattern": _ABSENT}]}}
)
EXPRESSION_PATTERN = string(
    'a string such as "reduce<{T}>"',
    description="A C++ name expression with placeholders, such as `reduce<{T}>`.",
)
VALUES = array(VALUE, "an array of values", "add values")
_PRODUCT: Schema = {
    **map_schema(rf"^{C_NAME}$", VALUES.schema),
    "properties": {"kernel": EXPRESSION_PATTERN.schema},
    "required": ["kernel"],
}
_ITEM = Kind(_check_item, {"anyOf": [_EXPRESSION.schema, _PRODUCT]})


def _chain(items: Iterable[Iterable[str]], where: str) -> tuple[str, ...]:
    """Return all expressions of `items`, which are counted before they take memory."""
    expressions = tuple(itertools.islice(itertools.chain.from_iterable(items), MOST_INSTANTIATIONS + 1))
    if len(expressions) > MOST_INSTANTIATIONS:
        remedy = "list fewer values, or divide the module"
        raise ConfigError(
            f"stands for more than {MOST_INSTANTIATIONS:,} instantiations", where=where, remedy=remedy
        )
    return expressions


INSTANTIATIONS = array(_ITEM, "an array of name expressions").then(_chain)
