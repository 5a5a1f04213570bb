"""Conditions of variants: ``sm_90a``, ``sm >= 80 and (n >= 65536 or n % 4 == 0)``.

A condition is a subset of Python's expressions: Python's parser reads it, and nothing evaluates it as Python.
It compares ``sm``, the compute capability of the GPU (90 for 9.0), and integer arguments of a kernel with
numbers. Targets stand alone: ``sm_90`` holds on a GPU of exactly that capability, ``sm_90a`` and ``sm_100f``
where the GPU loads an image for that target.
"""

from __future__ import annotations

import ast
import contextlib
import keyword
import operator
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, TypeAlias

from cuda_ext.errors import ManifestError
from cuda_ext.manifest import Kernel, Variants

__all__ = [
    "SM",
    "Comparison",
    "Condition",
    "ConditionError",
    "Junction",
    "Leaf",
    "Not",
    "Target",
    "arguments",
    "parse_conditions",
    "parse",
    "find_reasons",
    "simplify",
    "write",
]

SM = "sm"


class ConditionError(ValueError):
    """A text is not a condition; the message says why, and what to write."""


@dataclass(frozen=True, slots=True)
class Target:
    """``sm_90a``: the compute capability and nvcc's suffix."""

    number: int
    suffix: str

    def __str__(self) -> str:
        return f"sm_{self.number}{self.suffix}"


@dataclass(frozen=True, slots=True)
class Comparison:
    """``n % 4 == 0``: an argument, or its remainder, compared with a number."""

    name: str
    modulus: int | None
    operator: str
    number: int

    @property
    def term(self) -> str:
        return self.name if self.modulus is None else f"{self.name} % {self.modulus}"

    def value(self, number: int) -> int:
        """The value that is compared if the argument is `number`."""
        return number if self.modulus is None else number % self.modulus

    def holds(self, number: int) -> bool:
        return _OPERATORS[self.operator](self.value(number), self.number)

    def __str__(self) -> str:
        return f"{self.term} {self.operator} {self.number}"


@dataclass(frozen=True, slots=True)
class Not:
    operand: Condition


@dataclass(frozen=True, slots=True)
class Junction:
    """Two or more conditions, all or one of which must hold."""

    word: Literal["and", "or"]
    operands: tuple[Condition, ...]


Leaf: TypeAlias = Target | Comparison
Condition: TypeAlias = Leaf | Not | Junction


_OPERATORS: dict[str, Callable[[int, int], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    "==": operator.eq,
    "!=": operator.ne,
    ">=": operator.ge,
    ">": operator.gt,
}
_SYMBOLS: dict[type[ast.cmpop], str] = dict(
    zip((ast.Lt, ast.LtE, ast.Eq, ast.NotEq, ast.GtE, ast.Gt), _OPERATORS, strict=True)
)
_TOKEN = re.compile(r"[^\W\d]\w*|\d\w*|[()-]|[^\w\s()-]+")
_PUNCTUATION = {*_OPERATORS, "%", "-", "(", ")"}
_INTENDED = {"=": "==", "&&": "and", "&": "and", "||": "or", "|": "or", "!": "not", "=>": ">=", "=<": "<="}
_DEEPEST = 32
_LEAF = "a target such as sm_90a, or a comparison such as sm >= 80 or n >= 65536"


def parse(text: str) -> Condition:
    """Parse a condition. Raises :class:`ConditionError`."""
    text = " ".join(text.split())
    for token in _TOKEN.findall(text):
        _check_token(token)
    try:
        return _condition(ast.parse(text, mode="eval").body, text)
    except SyntaxError as error:
        if error.msg.startswith("invalid syntax"):  # and perhaps a proposal for programs
            rest = text[error.offset - 1 :] if error.offset else ""
            found = repr(rest[:20]) if rest else "the end"
            raise ConditionError(
                f"invalid syntax at {found}; write {_LEAF}, and join several with 'and' or 'or'"
            ) from None
        raise ConditionError(error.msg) from None
    except (RecursionError, MemoryError):
        raise ConditionError(
            f"is nested more than {_DEEPEST} deep; write it with fewer parentheses"
        ) from None


def _check_token(token: str) -> None:
    if intended := _INTENDED.get(token):
        raise ConditionError(f"found {token!r}; did you mean {intended!r}?")
    if token[0].isdigit():
        try:
            int(token, 0)
        except ValueError:
            raise ConditionError(f"expected an integer, found {token[:40]!r}") from None
    elif keyword.iskeyword(token) and token not in ("and", "or", "not"):
        raise ConditionError(f"{token!r} is a keyword of Python; rename the parameter")
    elif not token.isidentifier() and token not in _PUNCTUATION:
        raise ConditionError(f"{token!r} is not supported; write {_LEAF}")


def _condition(node: ast.expr, text: str, depth: int = 0) -> Condition:
    """Convert `node`, which is part of `text`."""
    if depth > _DEEPEST:
        raise RecursionError
    match node:
        case ast.BoolOp(op, values):
            operands = tuple(_condition(value, text, depth + 1) for value in values)
            return Junction("and" if isinstance(op, ast.And) else "or", operands)
        case ast.UnaryOp(ast.Not(), operand):
            return Not(_condition(operand, text, depth + 1))
        case ast.Name(name) if re.fullmatch(r"sm_\d+\w*", name):
            if target := re.fullmatch(r"sm_(\d{2,3})([af]?)", name):
                return Target(int(target[1]), target[2])
            raise ConditionError(f"{name!r} is not a target; targets are spelled as sm_90, sm_90a or sm_100f")
        case ast.Compare(left, [symbol], [right]) if type(symbol) in _SYMBOLS:
            name, modulus = _term(left, text)
            comparison = _SYMBOLS[type(symbol)]
            return Comparison(name, modulus, comparison, _integer(right, comparison, text))
    raise _unexpected(f"expected {_LEAF}", node, text)


def _term(node: ast.expr, text: str) -> tuple[str, int | None]:
    """The name of an argument, and what it is taken modulo."""
    match node:
        case ast.Name(name) if not re.match(r"sm_\d", name):
            return name, None
        case ast.BinOp(ast.Name(name), ast.Mod(), right) if not re.match(r"sm_\d", name):
            modulus = _integer(right, "%", text)
            if modulus < 1:
                raise ConditionError(f"expected a number from 1 on after '%', found {modulus}")
            return name, modulus
    raise _unexpected("expected the name of an argument or its remainder, such as n or n % 4", node, text)


def _integer(node: ast.expr, after: str, text: str) -> int:
    match node:
        case ast.Constant(int(number)):
            return number
        case ast.UnaryOp(ast.USub(), ast.Constant(int(number))):
            return -number
    raise _unexpected(f"expected an integer after {after!r}", node, text)


def _unexpected(expected: str, node: ast.expr, text: str) -> ConditionError:
    return ConditionError(f"{expected}, found {ast.get_source_segment(text, node)!r}")


def parse_conditions(variants: Variants, kernel: Kernel) -> list[Condition | None]:
    """Parse the condition of each candidate; the default has none. `kernel` is any of the candidates.

    Raises :class:`~cuda_ext.errors.ManifestError` for one that is invalid, or that compares anything but
    integer parameters of `kernel`.
    """
    integers = {parameter.name for parameter in kernel.parameters if parameter.is_integer}
    conditions: list[Condition | None] = []
    for i, candidate in enumerate(variants.candidates):
        condition = None
        if candidate.when is not None:
            with contextlib.suppress(ConditionError):
                condition = parse(candidate.when)
            if condition is None or not integers.issuperset(arguments(condition)):
                raise ManifestError(
                    f"damaged manifest: condition {i} of {variants.name} is {candidate.when!r}",
                    remedy="reinstall the package that holds it",
                )
        conditions.append(condition)
    return conditions


def arguments(condition: Condition) -> list[str]:
    """List the arguments that `condition` compares, once each."""
    match condition:
        case Not(operand):
            return arguments(operand)
        case Junction(_, operands):
            return list(dict.fromkeys(name for operand in operands for name in arguments(operand)))
        case Comparison(name) if name != SM:
            return [name]
        case _:
            return []


def simplify(condition: Condition | bool, holds: Callable[[Leaf], bool | None]) -> Condition | bool:
    """Evaluate `condition` as far as `holds` knows its leaves: its value, or what remains of it."""
    match condition:
        case bool():
            return condition
        case Not(operand):
            value = simplify(operand, holds)
            return not value if isinstance(value, bool) else Not(value)
        case Junction(word, operands):
            values = [simplify(operand, holds) for operand in operands]
            decisive = word == "or"
            if any(value is decisive for value in values):
                return decisive
            rest = tuple(value for value in values if not isinstance(value, bool))
            if len(rest) > 1:
                return Junction(word, rest)
            return rest[0] if rest else not decisive
        case _:
            known = holds(condition)
            return condition if known is None else known


def find_reasons(condition: Condition, holds: Callable[[Leaf], bool | None]) -> list[Leaf]:
    """List the leaves that decide `condition`; `holds` must know enough of them."""
    match condition:
        case Not(operand):
            return find_reasons(operand, holds)
        case Junction(word, operands):
            for operand in operands:
                if simplify(operand, holds) is (word == "or"):
                    return find_reasons(operand, holds)
            return [leaf for operand in operands for leaf in find_reasons(operand, holds)]
        case _:
            return [condition]


def write(condition: Condition, leaf: Callable[[Leaf], str] = str) -> str:
    """Write `condition` as text, its leaves by `leaf`. Python and :func:`parse` agree on its meaning."""
    match condition:
        case Not(operand):
            return f"not ({write(operand, leaf)})"
        case Junction(word, operands):
            inner = (write(operand, leaf) for operand in operands)
            return f" {word} ".join(
                f"({text})" if isinstance(operand, Junction) else text
                for operand, text in zip(operands, inner, strict=True)
            )
        case _:
            return leaf(condition)
