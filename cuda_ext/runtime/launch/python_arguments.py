"""Arguments of Python functions that kernels do not have: constants, and tuples."""

from __future__ import annotations

import numbers
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from cuda_ext.errors import ArgumentError
from cuda_ext.facts.kernels import Kernel

_WORDS = {"True": True, "False": False, "None": None}
# Options of Triton in a launch.
_COMPILED = frozenset({"num_warps", "num_stages", "num_ctas", "maxnreg"})


def flatten_tuples(
    kernels: Iterable[Kernel], arguments: Sequence[Any], named: Mapping[str, Any]
) -> tuple[list[Any], dict[str, Any]] | None:
    """Replace tuples by their items, if one of `kernels` has ``xs_0``, ``xs_1`` for a tuple ``xs``.

    Return ``None`` without a tuple. Raises :class:`ArgumentError` for arguments that are given twice.
    """
    if not any(isinstance(value, tuple) for value in (*arguments, *named.values())):
        return None
    names: list[Sequence[str]] = []
    for kernel in kernels:
        names += kernel.order, [parameter.name for parameter in kernel.parameters]
    flat: list[Any] = []
    flat_named: dict[str, Any] = {}

    def add(value: Any) -> None:
        here = (each[len(flat)] for each in names if len(flat) < len(each))
        if isinstance(value, tuple) and any(name.endswith("_0") for name in here):
            for item in value:
                add(item)
        else:
            flat.append(value)

    def add_named(name: str, value: Any) -> None:
        if isinstance(value, tuple) and any(_is_first(n, name) for each in names for n in each):
            for number, item in enumerate(value):
                add_named(f"{name}_{number}", item)
        elif name in flat_named:
            raise ArgumentError("is given twice", where=f"argument {name!r}")
        else:
            flat_named[name] = value

    for value in arguments:
        add(value)
    for name, value in named.items():
        add_named(name, value)
    is_unchanged = [*map(id, flat)] == [*map(id, arguments)] and flat_named.keys() == named.keys()
    return None if is_unchanged else (flat, flat_named)


def _is_first(name: str, parameter: str) -> bool:
    """Return True if `name` is the first item of a tuple: ``xs_0`` of ``xs``, or ``xs_0_0``."""
    return name != parameter and name.startswith(parameter) and not name[len(parameter) :].replace("_0", "")


def name_arguments(
    kernels: Iterable[Kernel], arguments: Sequence[Any], named: Mapping[str, Any]
) -> dict[str, Any] | None:
    """Name all arguments, if constants are given by position: more arguments than a kernel has parameters.

    Return ``None`` otherwise. Raises :class:`ArgumentError` for arguments that are given twice.
    """
    for kernel in kernels:
        if len(kernel.parameters) < len(arguments) <= len(kernel.order):
            by_position = dict(zip(kernel.order, arguments, strict=False))
            if repeated := by_position.keys() & named.keys():
                raise ArgumentError("is given twice", where=f"argument {min(repeated)!r}")
            return {**by_position, **named}
    return None


def refuse_compiled_options(kernels: Iterable[Kernel], named: Mapping[str, Any]) -> None:
    """Raise :class:`ArgumentError` for a compiler option in `named`, which `kernels` already fix."""
    options = _COMPILED & named.keys()
    for kernel in kernels:
        options -= {*kernel.order, *kernel.constants, *(parameter.name for parameter in kernel.parameters)}
    for option in sorted(options):
        raise ArgumentError(
            "was fixed when the kernel was compiled",
            where=f"argument {option!r}",
            remedy=f"give it in `instantiate`, as in {option}={named[option]!r}",
        )


def spelled_constants(value: object) -> set[str]:
    """Return the texts of the constants that `value` may mean: strings also name dtypes and functions."""
    if isinstance(value, numbers.Integral) and not isinstance(value, bool):
        value = int(value)
    if value is None or isinstance(value, bool | int | float | str | tuple):
        return {repr(value), value} if isinstance(value, str) else {repr(value)}
    return set()


def values_of_constant(text: str) -> list[object]:
    """List the arguments that C takes for the constant `text` of Python; the first is its value.

    Other arguments are compared carefully. Dtypes and functions are texts.

    >>> values_of_constant("64"), values_of_constant("'relu'"), values_of_constant("fp32")
    ([64, '64'], ['relu', "'relu'"], ['fp32'])
    >>> values_of_constant("(2, 3)")
    [(2, 3), '(2, 3)']
    """
    if text in _WORDS:
        return [_WORDS[text], text]
    if text[:1] in ("'", '"') and "\\" not in text:
        return [text[1:-1], text]
    for kind in (int, float):
        try:
            value = kind(text)
        except ValueError:
            continue
        if repr(value) == text:
            return [value, text]
    if text[:1] in ("(", "'", '"'):
        from ast import literal_eval  # a slow import

        try:
            return [literal_eval(text), text]
        except (ValueError, SyntaxError):
            pass
    return [text]
