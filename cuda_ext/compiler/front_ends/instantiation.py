"""Instantiations of Python functions: ``softmax(out: *fp16:16, n: i32, BLOCK=1024, num_warps=4)``."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import NamedTuple

from cuda_ext.compiler.name_expressions import split_arguments

__all__ = ["Instantiation", "TypedParameter", "parse_instantiation"]


class TypedParameter(NamedTuple):
    """A parameter with the type that the front-end has for it, and the number that must divide its values."""

    name: str
    type: str
    divisor: int = 1


@dataclass(frozen=True)
class Instantiation:
    """A Python function, with the types of its parameters.

    ``constants`` have the values of other parameters, and of the front-end's options, as Python spells them.
    """

    function: str
    parameters: tuple[TypedParameter, ...]
    constants: Mapping[str, str]

    @property
    def condition(self) -> str:
        """What the arguments of a launch must satisfy, in the language of variants; or empty."""
        return " and ".join(f"{p.name} % {p.divisor} == 0" for p in self.parameters if p.divisor > 1)

    def without_condition(self) -> Instantiation:
        """The same for all arguments."""
        return replace(self, parameters=tuple(p._replace(divisor=1) for p in self.parameters))

    def __str__(self) -> str:
        typed = (f"{p.name}: {p.type}" + (f":{p.divisor}" if p.divisor > 1 else "") for p in self.parameters)
        constants = (f"{name}={value}" for name, value in self.constants.items())
        return f"{self.function}({', '.join([*typed, *constants])})"


_CALL = re.compile(r"\s*([^\W\d]\w*)\s*\((.*)\)\s*", re.DOTALL)
_TYPED = re.compile(r"([^\W\d]\w*)\s*:\s*([^:]+?)\s*(?::\s*(\d{1,3}))?")
_CONSTANT = re.compile(r"([^\W\d]\w*)\s*=\s*(.+)", re.DOTALL)
_DIVISORS = (1, 2, 4, 8, 16, 32, 64, 128, 256)


def parse_instantiation(text: str) -> Instantiation:
    """Parse an instantiation. Raises :class:`ValueError` that says what is wrong."""
    call = _CALL.fullmatch(text)
    if not call:
        raise ValueError(
            "expected a function with the types of its parameters, such as scale(x: *fp32, n: i32, "
            "BLOCK=1024)"
        )
    parameters: list[TypedParameter] = []
    constants: dict[str, str] = {}
    for item in split_arguments(call[2]):
        if typed := _TYPED.fullmatch(item):
            name, divisor = typed[1], int(typed[3] or 1)
            if divisor not in _DIVISORS:
                raise ValueError(f"{item!r}: expected a power of two up to 256 behind the type")
            parameters.append(TypedParameter(name, " ".join(typed[2].split()), divisor))
        elif constant := _CONSTANT.fullmatch(item):
            name = constant[1]
            constants[name] = _literal(name, constant[2])
        else:
            raise ValueError(f"{item!r}: expected a type, as in n: i32, or a value, as in BLOCK=1024")
        if [*(p.name for p in parameters), *constants].count(name) > 1:
            raise ValueError(f"the parameter {name!r} is given twice")
    return Instantiation(call[1], tuple(parameters), constants)


def _literal(name: str, text: str) -> str:
    """The constant `text` in one spelling."""
    text = text.strip()
    with suppress(ValueError, SyntaxError, MemoryError, RecursionError):
        value = ast.literal_eval(text)
        if value is None or isinstance(value, int | float | str | tuple):
            return repr(value)
    if re.fullmatch(r"[^\W\d]\w*", text):
        return text  # a dtype
    raise ValueError(f"{name}={text}: expected a number, True, False, None, a string or a dtype")


class PythonFunction(NamedTuple):
    """A function that a source defines, and the names of its parameters."""

    name: str
    parameters: tuple[str, ...]


def find_functions(source: bytes) -> Iterator[PythonFunction]:
    """The decorated functions of a Python source. Raises :class:`SyntaxError` or :class:`ValueError`."""
    for node in ast.parse(source).body:
        if isinstance(node, ast.FunctionDef) and node.decorator_list:
            listed = *node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs
            yield PythonFunction(node.name, tuple(argument.arg for argument in listed))
