"""Arguments that functions of Python have and kernels do not: constants, and tuples."""

from __future__ import annotations

import ast
import numbers
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from cuda_ext.manifest import Parameter

__all__ = ["constant_values", "flatten_tuples", "is_constant"]


def flatten_tuples(
    signatures: Iterable[Sequence[Parameter]], arguments: Sequence[Any], named: Mapping[str, Any]
) -> tuple[list[Any], dict[str, Any]] | None:
    """Replace tuples by their items, where one of `signatures` has ``xs_0``, ``xs_1`` for a tuple ``xs``.

    Return ``None`` where there is none.
    """
    names = [[parameter.name for parameter in parameters] for parameters in signatures]
    flat: list[Any] = []
    flat_named: dict[str, Any] = {}
    tuples = 0
    for value in arguments:
        firsts = (each[len(flat)] for each in names if len(flat) < len(each))
        is_flattened = isinstance(value, tuple) and any(name.endswith("_0") for name in firsts)
        flat += value if is_flattened else [value]
        tuples += is_flattened
    for name, value in named.items():
        is_flattened = isinstance(value, tuple) and any(f"{name}_0" in each for each in names)
        items = {f"{name}_{i}": item for i, item in enumerate(value)} if is_flattened else {name: value}
        flat_named.update(items)
        tuples += is_flattened
    return (flat, flat_named) if tuples else None


def is_constant(value: object, text: str) -> bool:
    """Whether `value` is the constant that Python spells `text`. Strings name dtypes and functions, too."""
    if isinstance(value, numbers.Integral) and not isinstance(value, bool):
        value = int(value)
    is_plain = value is None or isinstance(value, bool | int | float | str | tuple)
    return is_plain and text in (repr(value), value)


def constant_values(constants: Mapping[str, str]) -> dict[str, Any]:
    """The values of `constants`, which Python spells so; those of dtypes and functions are their names."""

    def evaluate(text: str) -> Any:
        with suppress(ValueError):
            return ast.literal_eval(text)
        return text

    return {name: evaluate(text) for name, text in constants.items()}
