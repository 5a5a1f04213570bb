"""Conditions of variants: ``sm_90a``, ``sm >= 80 and (n >= 65536 or n % 4 == 0)``.

A condition is a subset of Python's expressions: Python's parser reads it, and nothing evaluates it as Python.
It compares ``sm``, the compute capability of the GPU (90 for 9.0), and integer arguments of a kernel with
numbers, and so ``x.shape[0]`` and ``x.stride[0]`` where these are hidden parameters. Targets stand alone:
``sm_90`` holds on a GPU of exactly that capability, ``sm_90a`` and ``sm_100f`` where the GPU loads an image
for that target.
"""

from __future__ import annotations

import ast
import contextlib
import operator
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, TypeAlias, TypeVar

from cuda_ext.errors import ManifestError
from cuda_ext.facts.architecture import Architecture
from cuda_ext.facts.kernels import HiddenParameter, Kernel, Parameter
from cuda_ext.facts.manifest import Variants

SM = "sm"
T = TypeVar("T")


class ConditionError(ValueError):
    """A text that is not a condition; the message contains the problem and the remedy."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """``n % 4 == 0``: an argument or a hidden parameter, or its remainder, compared with a number."""

    name: str
    modulus: int | None
    operator: str
    number: int

    @property
    def term(self) -> str:
        return self.name if self.modulus is None else f"{self.name} % {self.modulus}"

    def fits(self, parameter: Parameter) -> bool:
        """Return True if values of `parameter` can be compared: integers, and the alignment of addresses."""
        if parameter.kind == "pointer":
            return self.modulus is not None and self.modulus in _ALIGNMENTS
        return parameter.is_integer

    def value(self, number: int) -> int:
        """Return the value to compare if the argument is `number`."""
        return number if self.modulus is None else number % self.modulus

    def holds(self, number: int) -> bool:
        return _OPERATORS[self.operator](self.value(number), self.number)

    def __str__(self) -> str:
        return f"{self.term} {self.operator} {self.number}"


@dataclass(frozen=True, slots=True)
class Junction:
    """Conditions of which all or one must hold, or one that must not hold."""

    word: Literal["and", "or", "not"]
    operands: tuple[Condition, ...]


# An architecture is a target.
Leaf: TypeAlias = Architecture | Comparison
Condition: TypeAlias = Leaf | Junction

_OPERATORS: dict[str, Callable[[int, int], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    "==": operator.eq,
    "!=": operator.ne,
    ">=": operator.ge,
    ">": operator.gt,
}
_ALIGNMENTS = [1 << power for power in range(9)]  # of all memory that the driver allocates, and less
_SYMBOLS: dict[type[ast.cmpop], str] = dict(
    zip((ast.Lt, ast.LtE, ast.Eq, ast.NotEq, ast.GtE, ast.Gt), _OPERATORS, strict=True)
)
_TOKEN = re.compile(r"[^\W\d]\w*|\d\w*|[][().-]|[^\w\s][^\w\s().[\]-]*")
_PUNCTUATION = {*_OPERATORS, *"%-().[]"}
_INTENDED = {"=": "==", "&&": "and", "&": "and", "||": "or", "|": "or", "!": "not", "=>": ">=", "=<": "<="}
_DEEPEST = 32
_LEAF = "a target such as sm_90a, or a comparison such as sm >= 80 or n >= 65536"


def parse(text: str) -> Condition:
    """Parse a condition. Raises :class:`ConditionError`."""
    source = _TOKEN.sub(lambda match: _escape(match[0]), " ".join(text.split()))
    try:
        return _Parser(source).condition(ast.parse(source, mode="eval").body)
    except SyntaxError as error:
        if error.msg.startswith("invalid syntax"):  # and perhaps a proposal for programs
            rest = _unescape(source[error.offset - 1 :]) if error.offset else ""
            found = repr(rest[:20]) if rest else "the end"
            raise ConditionError(
                f"invalid syntax at {found}; write {_LEAF}, and join several with 'and' or 'or'"
            ) from None
        raise ConditionError(error.msg) from None
    except (RecursionError, MemoryError):
        raise ConditionError(
            f"is nested more than {_DEEPEST} deep; write it with fewer parentheses"
        ) from None


def _escape(token: str) -> str:
    """Check `token`, and prefix a name: a parameter may be named like a keyword of Python."""
    if token in ("and", "or", "not"):
        return token
    if token.isidentifier():
        return f"_{token}"
    if intended := _INTENDED.get(token):
        raise ConditionError(f"found {token!r}; did you mean {intended!r}?")
    if token[0].isdigit():
        try:
            int(token, 0)
        except ValueError:
            raise ConditionError(f"expected an integer, found {token[:40]!r}") from None
    elif token not in _PUNCTUATION:
        raise ConditionError(f"{token!r} is not supported; write {_LEAF}")
    return token


def _unescape(source: str) -> str:
    return re.sub(r"\b_", "", source)


@dataclass(frozen=True)
class _Parser:
    """Converts Python's syntax tree of `source`, whose names are escaped."""

    source: str

    @cached_property
    def content(self) -> bytes:
        return self.source.encode()

    def condition(self, node: ast.expr, depth: int = 0) -> Condition:
        if depth > _DEEPEST:
            raise RecursionError
        match node:
            case ast.BoolOp(op, values):
                operands = tuple(self.condition(value, depth + 1) for value in values)
                return Junction("and" if isinstance(op, ast.And) else "or", operands)
            case ast.UnaryOp(ast.Not(), operand):
                return Junction("not", (self.condition(operand, depth + 1),))
            case ast.Name() if (name := self._text(node)) and _is_target(name):
                if re.fullmatch(r"sm_[1-9][0-9]{1,2}[af]?", name):
                    return Architecture.parse(name)
                raise ConditionError(
                    f"{name!r} is not a target; targets are spelled as sm_90, sm_90a or sm_100f"
                )
            case ast.Compare(left, [symbol], [right]) if type(symbol) in _SYMBOLS:
                comparison = self._comparison(left, _SYMBOLS[type(symbol)], right)
                if "(" in self._text(node):
                    raise ConditionError(
                        f"parentheses must enclose whole comparisons, found {self._text(node)!r}; "
                        f"write {comparison}"
                    )
                return comparison
        raise self._unexpected(f"expected {_LEAF}", node)

    def _comparison(self, left: ast.expr, symbol: str, right: ast.expr) -> Comparison:
        name, modulus = left, None
        if isinstance(left, ast.BinOp) and isinstance(left.op, ast.Mod):
            name, modulus = left.left, self._integer(left.right, "%")
            if modulus < 1:
                raise ConditionError(f"expected a number from 1 on after '%', found {modulus}")
        # Not name.id, since Python normalises some letters of names.
        text = self._text(name)
        is_extent = isinstance(name, ast.Subscript) and re.fullmatch(
            r"\w+\.(?:shape|stride)\[\d{1,2}\]", text
        )
        if not (is_extent or isinstance(name, ast.Name)) or _is_target(text):
            raise self._unexpected(
                "expected the name of an argument or its remainder, such as n or n % 4", left
            )
        return Comparison(text, modulus, symbol, self._integer(right, symbol))

    def _integer(self, node: ast.expr, after: str) -> int:
        match node:
            case ast.Constant(int(number)) if number < 1 << 64:
                return number
            case ast.UnaryOp(ast.USub(), ast.Constant(int(number)) as digits) if (
                digits.col_offset == node.col_offset + 1 and number <= 1 << 63
            ):
                return -number
            case ast.Constant(int(number)) | ast.UnaryOp(ast.USub(), ast.Constant(int(number))) if (
                number >> 63
            ):
                raise ConditionError(f"integers have 64 bits, found {self._text(node)[:40]!r}")
        raise self._unexpected(f"expected an integer after {after!r}", node)

    def _text(self, node: ast.expr) -> str:
        """Return the part of the condition that became `node`."""
        # Not ast.get_source_segment, which goes through the whole source each time.
        return _unescape(self.content[node.col_offset : node.end_col_offset].decode())

    def _unexpected(self, expected: str, node: ast.expr) -> ConditionError:
        return ConditionError(f"{expected}, found {self._text(node)!r}")


def _is_target(name: str) -> bool:
    return re.match(r"sm_\d", name) is not None


def parse_conditions(variants: Variants, kernels: Mapping[str, Kernel], where: str) -> list[Condition | None]:
    """Parse the condition of each candidate; the default has none. `kernels` are the kernels by expression.

    Raises :class:`~cuda_ext.errors.ManifestError`, with `where`, for a condition that is invalid, or that
    compares anything but integer parameters of its kernel, the alignment of pointers, and hidden parameters.
    A launch takes their values by the parameters of the default, so that must have them, too.
    """
    default = kernels[variants.candidates[-1].kernel]
    conditions: list[Condition | None] = []
    for i, candidate in enumerate(variants.candidates):
        condition = None
        if candidate.when is not None:
            with contextlib.suppress(ConditionError):
                condition = parse(candidate.when)
            if condition is None or not all(
                fits(comparison, kernel.parameters, kernel.hidden)
                for comparison in list_comparisons(condition)
                for kernel in (default, kernels[candidate.kernel])
            ):
                raise ManifestError(
                    f"damaged manifest: condition {i} of {variants.name} is {candidate.when!r}",
                    where=where,
                    remedy="reinstall the package that holds it",
                )
        conditions.append(condition)
    return conditions


def fits(
    comparison: Comparison, parameters: Iterable[Parameter], hidden: Iterable[HiddenParameter] = ()
) -> bool:
    """Return True if a launch of a kernel with these parameters can make the `comparison`."""
    if any(each.source == comparison.name and each.extent for each in hidden):
        return True
    return any(p.name == comparison.name and comparison.fits(p) for p in parameters)


def list_comparisons(condition: Condition) -> list[Comparison]:
    """List the comparisons of arguments in `condition`, once each."""
    comparisons = (leaf for leaf in _leaves(condition) if isinstance(leaf, Comparison) and leaf.name != SM)
    return list(dict.fromkeys(comparisons))


def _leaves(condition: Condition) -> Iterator[Leaf]:
    if isinstance(condition, Junction):
        for operand in condition.operands:
            yield from _leaves(operand)
    else:
        yield condition


def decide(condition: Condition, evaluate: Callable[[Leaf], tuple[bool, T]]) -> tuple[bool, list[T]]:
    """Evaluate `condition`; `evaluate` returns whether a leaf holds, and the reason.

    Returns the value, and the reasons of the leaves that decide it.
    """
    if not isinstance(condition, Junction):
        value, reason = evaluate(condition)
        return value, [reason]
    results = [decide(operand, evaluate) for operand in condition.operands]
    if condition.word == "not":
        ((value, reasons),) = results
        return not value, reasons
    decisive = condition.word == "or"
    for value, reasons in results:
        if value is decisive:
            return value, reasons
    return not decisive, [reason for _, reasons in results for reason in reasons]


def branch(condition: Condition, then: int, otherwise: int, add: Callable[[Leaf, int, int], int]) -> int:
    """Turn `condition` into branches: return the number of the first, which leads to `then` or `otherwise`.

    `add` takes a leaf and where to go on if it holds, and if not, and returns the number of that branch. It
    is called for the last leaf first.
    """
    if not isinstance(condition, Junction):
        return add(condition, then, otherwise)
    if condition.word == "not":
        return branch(condition.operands[0], otherwise, then, add)
    for operand in reversed(condition.operands):
        begin = branch(operand, then, otherwise, add)
        then, otherwise = (begin, otherwise) if condition.word == "and" else (then, begin)
    return begin
