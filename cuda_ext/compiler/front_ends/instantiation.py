"""Instantiations of Python functions: ``softmax(out: *fp16:16, n: i32, BLOCK=1024, num_warps=4)``."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import NamedTuple

from cuda_ext.compiler.name_expressions import split_arguments

__all__ = ["Instantiation", "TypedParameter", "parse_instantiation"]


class TypedParameter(NamedTuple):
    """A parameter with the type that the front-end has for it, and the number that must divide its values.

    ``item`` is its position in a tuple, if the parameter of the function is one.
    """

    name: str
    type: str
    divisor: int = 1
    item: int | None = None

    @property
    def argument(self) -> str:
        """The name of its argument: ``x``, or ``xs_0`` in a tuple ``xs``."""
        return self.name if self.item is None else f"{self.name}_{self.item}"

    @property
    def spelled_type(self) -> str:
        return f"{self.type}:{self.divisor}" if self.divisor > 1 else self.type


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
        return " and ".join(f"{p.argument} % {p.divisor} == 0" for p in self.parameters if p.divisor > 1)

    def without_condition(self) -> Instantiation:
        """The same for all arguments."""
        return replace(self, parameters=tuple(p._replace(divisor=1) for p in self.parameters))

    def __str__(self) -> str:
        types: dict[str, list[TypedParameter]] = {}
        for parameter in self.parameters:
            types.setdefault(parameter.name, []).append(parameter)
        typed = (f"{name}: {_spell_types(items)}" for name, items in types.items())
        constants = (f"{name}={value}" for name, value in self.constants.items())
        return f"{self.function}({', '.join([*typed, *constants])})"


def _spell_types(items: Sequence[TypedParameter]) -> str:
    if items[0].item is None:
        return items[0].spelled_type
    return "(" + "".join(f"{item.spelled_type}, " for item in items).rstrip(" ") + ")"


_CALL = re.compile(r"\s*([^\W\d]\w*)\s*\((.*)\)\s*", re.DOTALL)
_TYPED = re.compile(r"([^\W\d]\w*)\s*:(.+)", re.DOTALL)
_TYPE = re.compile(r"\s*([^:]+?)\s*(?::\s*(\d{1,3}))?\s*")
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
            name = typed[1]
            is_repeated = name in [p.name for p in parameters]
            parameters += _parse_types(name, typed[2].strip())
        elif constant := _CONSTANT.fullmatch(item):
            name = constant[1]
            is_repeated = name in constants
            constants[name] = _parse_constant(name, constant[2].strip())
        else:
            raise ValueError(f"{item!r}: expected a type, as in n: i32, or a value, as in BLOCK=1024")
        if is_repeated or (name in constants and name in [p.name for p in parameters]):
            raise ValueError(f"the parameter {name!r} is given twice")
    return Instantiation(call[1], tuple(parameters), constants)


def _parse_types(name: str, text: str) -> Iterator[TypedParameter]:
    """The parameter `name` of the type `text`, or the items of one that is a tuple of types."""
    if not text.startswith("("):
        yield _parse_type(name, text)
        return
    items = list(split_arguments(text[1:-1])) if text.endswith(")") else []
    if not items:
        raise ValueError(f"{name}: {text}: expected types in parentheses, such as (*fp32, i32)")
    for number, item in enumerate(items):
        yield _parse_type(name, item)._replace(item=number)


def _parse_type(name: str, text: str) -> TypedParameter:
    match = _TYPE.fullmatch(text)
    if not match:
        raise ValueError(f"{name}: {text}: expected a type, such as i32 or *fp32:16")
    divisor = int(match[2] or 1)
    if divisor not in _DIVISORS:
        raise ValueError(f"{name}: {text}: expected a power of two up to 256 behind the type")
    return TypedParameter(name, " ".join(match[1].split()), divisor)


def _parse_constant(name: str, text: str) -> str:
    """The constant `text` in one spelling."""
    with suppress(ValueError, SyntaxError, MemoryError, RecursionError):
        return _spell_constant(ast.parse(text, mode="eval").body)
    raise ValueError(f"{name}={text}: expected a number, True, False, None, a string, a dtype, or a tuple")


def _spell_constant(node: ast.expr) -> str:
    match node:
        case ast.Tuple(items):
            inner = ", ".join(map(_spell_constant, items))
            return f"({inner},)" if len(items) == 1 else f"({inner})"
        case ast.Name(name):  # a dtype, or a function
            return name
    value = ast.literal_eval(node)
    if value is None or isinstance(value, int | float | str):
        return repr(value)
    raise ValueError


class PythonFunction(NamedTuple):
    """A function that a source defines, and the names of its parameters; ``defaults`` are those with one."""

    name: str
    parameters: tuple[str, ...]
    defaults: frozenset[str]


def find_functions(source: bytes) -> Iterator[PythonFunction]:
    """The decorated functions of a Python source. Raises :class:`SyntaxError` or :class:`ValueError`."""
    for node in ast.parse(source).body:
        if isinstance(node, ast.FunctionDef) and node.decorator_list:
            by_position, by_name = [*node.args.posonlyargs, *node.args.args], node.args.kwonlyargs
            defaults = by_position[len(by_position) - len(node.args.defaults) :]
            defaults += (each for each, of in zip(by_name, node.args.kw_defaults, strict=True) if of)
            yield PythonFunction(
                node.name,
                tuple(argument.arg for argument in (*by_position, *by_name)),
                frozenset(argument.arg for argument in defaults),
            )
