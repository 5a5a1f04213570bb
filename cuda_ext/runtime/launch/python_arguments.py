"""Arguments of Python functions that kernels do not have: constants, and tuples."""

from __future__ import annotations

import numbers
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from enum import Enum
from typing import Any

from cuda_ext.errors import ArgumentError
from cuda_ext.facts.kernels import Kernel
from cuda_ext.facts.launches import TRITON_OPTIONS
from cuda_ext.runtime.arrays.dtypes import dtypes_of

# An enumerator, as lowered names have it: its type and its number.
ENUMERATOR = re.compile(r"\(([^()]*)\)(-?\d+)")
_WORDS = {"True": True, "False": False, "None": None}


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
    """Name all arguments, if constants are given by position.

    That is so if there are more arguments than parameters, if a name is that of one before, or always in
    some kernels. Return ``None`` otherwise. Raises :class:`ArgumentError` for arguments that are given twice.
    """
    for kernel in kernels:
        first = {parameter.name for parameter in kernel.parameters[: len(arguments)]}
        is_longer = len(kernel.parameters) < len(arguments)
        if (is_longer or first & named.keys() or kernel.is_in_order) and 0 < len(arguments) <= len(
            kernel.order
        ):
            by_position = dict(zip(kernel.order, arguments, strict=False))
            if repeated := by_position.keys() & named.keys():
                raise ArgumentError("is given twice", where=f"argument {min(repeated)!r}")
            return {**by_position, **named}
    return None


def option_names(kernel: Kernel) -> frozenset[str]:
    """Return the names that are options of the front-end in a call of `kernel`, and no arguments."""
    own = {*kernel.order, *kernel.constants, *(parameter.name for parameter in kernel.parameters)}
    return frozenset({*TRITON_OPTIONS, *kernel.options}) - own


def check_options(kernel: Kernel, given: Mapping[str, Any]) -> None:
    """Raise :class:`ArgumentError` for an option in `given` that `kernel` was not compiled with."""
    for name, value in given.items():
        text = kernel.options.get(name)
        if text is None or not is_meant(value, text):
            built = f"{kernel.expression} was compiled for {name}={text}, not {value!r}"
            error = ArgumentError(
                "was fixed when the kernel was compiled" if text is None else built,
                where=f"argument {name!r}",
                remedy=f"give it in `instantiate`, as in {name}={value!r}",
            )
            error.is_missing = True
            raise error


def is_meant(value: Any, text: str, template: str = "", meanings: Mapping[str, str] = {}) -> bool:
    """Return True if the argument `value` means the constant `text`: a value, or a type by one of its dtypes.

    Strings also name functions, types and enumerators, as the `meanings` of names where `template` is.

    A character means its number. An ``auto`` parameter that is ``true`` or ``3u`` is no number of Python.

    >>> is_meant(1, "True"), is_meant(1, "(Mode)1"), is_meant("float16", "__half"), is_meant(True, "1")
    (True, True, True, False)
    >>> is_meant(True, "true"), is_meant(1, "true"), is_meant("a", "97"), is_meant(3, "3u")
    (True, False, True, False)
    """
    value = plain_value(value)
    if isinstance(value, bool):
        return text in (str(value), str(value).lower())
    if text in spelled_constants(value):
        return True
    if isinstance(value, str):
        return _is_named(value, text, template, meanings)
    if type(value) is not int:
        return False
    enumerator = ENUMERATOR.fullmatch(text)
    return int(enumerator[2]) == value if enumerator else text in _WORDS and _WORDS[text] == value


def spelled_constants(value: object) -> set[str]:
    """Return the texts of the constants that are equal to `value`: strings also name dtypes and functions."""
    if isinstance(value, numbers.Integral) and not isinstance(value, bool):
        value = int(value)
    if value is None or isinstance(value, bool | int | float | str | tuple):
        return {repr(value), value} if isinstance(value, str) else {repr(value)}
    return set()


def plain_value(value: Any) -> Any:
    """Return the number or text that stands for `value`: that of an enumeration, and the name of a dtype.

    Triton's constexpr stands for its value, and a function for its name.
    """
    if isinstance(value, Enum) or type(value).__name__ == "constexpr":
        value = value.value
    numpy = sys.modules.get("numpy")
    if numpy is not None and isinstance(value, numpy.bool_):
        return bool(value)
    if isinstance(value, numbers.Integral) and not isinstance(value, bool):
        return int(value)
    if callable(value) and hasattr(value, "__name__"):  # a function, or the type of numpy's scalars
        return value.__name__
    return str(value).removeprefix("torch.") if "dtype" in type(value).__name__.lower() else value


def _is_named(value: str, text: str, template: str, meanings: Mapping[str, str]) -> bool:
    if value in ("true", "false"):
        return text == value.title()
    if len(value) == 1 and not value.isdigit() and value not in meanings and text == str(ord(value)):
        return True
    from cuda_ext.formats.lowered_names.meanings import spell_out  # not needed for numbers

    if value.removeprefix("torch.") in dtypes_of(text):
        return True
    meant = spell_out(f"{template}<{value}>", meanings)[len(template) + 1 : -1]
    inner = (
        known for known, meaning in meanings.items() if meaning == text
    )  # an enumerator without its type
    return meant == text or any(known.endswith(f"::{value}") for known in inner)


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
    if text in ("true", "false"):  # of an auto parameter
        return [text == "true", text]
    if text[:1] in ("'", '"') and "\\" not in text:
        return [text[1:-1], text]
    if enumerator := ENUMERATOR.fullmatch(text):
        return [int(enumerator[2]), text]
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
