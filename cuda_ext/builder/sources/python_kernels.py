"""Instantiations of Python functions, checked against the source without importing it."""

from __future__ import annotations

from collections.abc import Iterable

from cuda_ext.compiler.front_ends.instantiation import (
    Instantiation,
    PythonFunction,
    find_functions,
    parse_instantiation,
)
from cuda_ext.compiler.translation_unit import TranslationUnit
from cuda_ext.errors import ConfigError, did_you_mean, shorten

__all__ = ["check_instantiations"]


def check_instantiations(unit: TranslationUnit, texts: Iterable[str], where: str) -> list[str]:
    """Return the instantiations of `unit` that `texts`, at the key path `where`, ask for, in one spelling.

    One with a condition is followed by the same without it. Raises :class:`ConfigError`.
    """
    functions = {function.name: function for function in find_functions(unit.source)}
    checked: dict[str, None] = {}
    for number, text in enumerate(texts):
        here = f"{where}[{number}]"
        try:
            each = parse_instantiation(text)
        except ValueError as error:
            raise ConfigError(str(error), where=here) from None
        if each.function not in functions:
            names = ", ".join(functions) or "none"
            remedy = did_you_mean(each.function, functions) or f"its decorated functions: {names}"
            raise ConfigError(
                f"{unit.name} has no function {shorten(each.function)!r}", where=here, remedy=remedy
            )
        _check_parameters(each, functions[each.function], here)
        checked[str(each)] = None
        checked[str(each.without_condition())] = None
    return [*checked]


def _check_parameters(each: Instantiation, function: PythonFunction, where: str) -> None:
    names = function.parameters
    given = [*(parameter.name for parameter in each.parameters), *each.constants]
    for parameter in each.parameters:
        if parameter.name not in names:
            remedy = did_you_mean(parameter.name, names) or f"its parameters: {', '.join(names)}"
            raise ConfigError(
                f"{each.function} has no parameter {shorten(parameter.name)!r}", where=where, remedy=remedy
            )
    for name in names:
        if name not in given and name not in function.defaults:
            raise ConfigError(
                f"the parameter {shorten(name)!r} of {each.function} has neither a type nor a value",
                where=where,
                remedy=f"add {name}: i32, or {name}=1 for a constant",
            )
