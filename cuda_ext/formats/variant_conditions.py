"""Conditions of variants: ``sm_90a``, ``sm >= 80 and (n >= 65536 or n % 4 == 0)``.

A condition is a subset of Python's expressions: Python's parser reads it, and nothing evaluates it as Python.
It compares ``sm``, the compute capability of the GPU (90 for 9.0), and integer arguments of a kernel with
numbers. Targets stand alone: ``sm_90`` holds on a GPU of exactly that capability, ``sm_90a`` and ``sm_100f``
where the GPU loads an image for that target.
"""

from __future__ import annotations

import ast
import contextlib
import operator
import re
from collections.abc import Callable, Mapping
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
_WORDS = ("and", "or", "not")
_PUNCTUATION = {*_OPERATORS, "%", "-", "(", ")"}
_INTENDED = {"=": "==", "&&": "and", "&": "and", "||": "or", "|": "or", "!": "not", "=>": ">=", "=<": "<="}
_DEEPEST = 32
_LEAF = "a target such as sm_90a, or a comparison such as sm >= 80 or n >= 65536"


def parse(text: str) -> Condition:
    """Parse a condition. Raises :class:`ConditionError`."""
    source = _Source(text)
    try:
        return _condition(ast.parse(source.text, mode="eval").body, source)
    except SyntaxError as error:
        if error.msg.startswith("invalid syntax"):  # and perhaps a proposal for programs
            rest = source.restore(source.text[error.offset - 1 :]) if error.offset else ""
            found = repr(rest[:20]) if rest else "the end"
            raise ConditionError(
                f"invalid syntax at {found}; write {_LEAF}, and join several with 'and' or 'or'"
            ) from None
        raise ConditionError(error.msg) from None
    except (RecursionError, MemoryError):
        raise ConditionError(
            f"is nested more than {_DEEPEST} deep; write it with fewer parentheses"
        ) from None


class _Source:
    """The text of a condition for Python's parser: its names are ``v0``, ``v1``, and so on.

    A parameter may be named like a keyword of Python, and Python normalises some letters of names.
    """

    def __init__(self, text: str) -> None:
        self._names: list[str] = []
        self.text = _TOKEN.sub(self._replace, " ".join(text.split()))

    def _replace(self, match: re.Match[str]) -> str:
        token = match[0]
        if token in _WORDS:
            return token
        _check_token(token)
        if not token.isidentifier():
            return token
        self._names.append(token)
        return f"v{len(self._names) - 1}"

    def restore(self, text: str) -> str:
        """Return `text`, which is part of the source, with the names of the condition."""
        return re.sub(r"\bv(\d+)\b", lambda match: self._names[int(match[1])], text)

    def segment(self, node: ast.expr) -> str:
        """The part of the condition that became `node`."""
        return self.restore(ast.get_source_segment(self.text, node) or "")

    def is_argument(self, node: ast.expr) -> bool:
        return isinstance(node, ast.Name) and not re.match(r"sm_\d", self.segment(node))

    def unexpected(self, expected: str, node: ast.expr) -> ConditionError:
        return ConditionError(f"{expected}, found {self.segment(node)!r}")


def _check_token(token: str) -> None:
    if intended := _INTENDED.get(token):
        raise ConditionError(f"found {token!r}; did you mean {intended!r}?")
    if token[0].isdigit():
        try:
            int(token, 0)
        except ValueError:
            raise ConditionError(f"expected an integer, found {token[:40]!r}") from None
    elif not token.isidentifier() and token not in _PUNCTUATION:
        raise ConditionError(f"{token!r} is not supported; write {_LEAF}")


def _condition(node: ast.expr, source: _Source, depth: int = 0) -> Condition:
    """Convert `node`, which is part of `source`."""
    if depth > _DEEPEST:
        raise RecursionError
    match node:
        case ast.BoolOp(op, values):
            operands = tuple(_condition(value, source, depth + 1) for value in values)
            return Junction("and" if isinstance(op, ast.And) else "or", operands)
        case ast.UnaryOp(ast.Not(), operand):
            return Not(_condition(operand, source, depth + 1))
        case ast.Name() if re.match(r"sm_\d", name := source.segment(node)):
            if target := re.fullmatch(r"sm_(\d{2,3})([af]?)", name):
                return Target(int(target[1]), target[2])
            raise ConditionError(f"{name!r} is not a target; targets are spelled as sm_90, sm_90a or sm_100f")
        case ast.Compare(left, [symbol], [right]) if type(symbol) in _SYMBOLS:
            return _comparison(node, left, _SYMBOLS[type(symbol)], right, source)
    raise source.unexpected(f"expected {_LEAF}", node)


def _comparison(node: ast.expr, left: ast.expr, symbol: str, right: ast.expr, source: _Source) -> Comparison:
    name, modulus = _term(left, source)
    comparison = Comparison(name, modulus, symbol, _integer(right, symbol, source))
    text = source.segment(node)
    if "(" in text:
        raise ConditionError(
            f"parentheses must enclose whole comparisons, found {text!r}; write {comparison}"
        )
    return comparison


def _term(node: ast.expr, source: _Source) -> tuple[str, int | None]:
    """The name of an argument, and what it is taken modulo."""
    match node:
        case ast.Name() if source.is_argument(node):
            return source.segment(node), None
        case ast.BinOp(left, ast.Mod(), right) if source.is_argument(left):
            modulus = _integer(right, "%", source)
            if modulus < 1:
                raise ConditionError(f"expected a number from 1 on after '%', found {modulus}")
            return source.segment(left), modulus
    raise source.unexpected("expected the name of an argument or its remainder, such as n or n % 4", node)


def _integer(node: ast.expr, after: str, source: _Source) -> int:
    match node:
        case ast.Constant(int(number)):
            return number
        case ast.UnaryOp(ast.USub(), ast.Constant(int(number)) as digits) if (
            digits.col_offset == node.col_offset + 1
        ):
            return -number
    raise source.unexpected(f"expected an integer after {after!r}", node)


def parse_conditions(variants: Variants, kernels: Mapping[str, Kernel], where: str) -> list[Condition | None]:
    """Parse the condition of each candidate; the default has none. `kernels` are the kernels by expression.

    Raises :class:`~cuda_ext.errors.ManifestError`, with `where`, for a condition that is invalid, or that
    compares anything but integer parameters of its kernel. A launch takes their values by the parameters of
    the default, so that must have them, too.
    """
    default = _integers(kernels[variants.candidates[-1].kernel])
    conditions: list[Condition | None] = []
    for i, candidate in enumerate(variants.candidates):
        condition = None
        if candidate.when is not None:
            with contextlib.suppress(ConditionError):
                condition = parse(candidate.when)
            integers = default & _integers(kernels[candidate.kernel])
            if condition is None or not integers.issuperset(arguments(condition)):
                raise ManifestError(
                    f"damaged manifest: condition {i} of {variants.name} is {candidate.when!r}",
                    where=where,
                    remedy="reinstall the package that holds it",
                )
        conditions.append(condition)
    return conditions


def _integers(kernel: Kernel) -> set[str]:
    return {parameter.name for parameter in kernel.parameters if parameter.is_integer}


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
