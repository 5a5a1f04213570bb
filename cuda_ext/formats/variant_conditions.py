"""When one of several kernels is to be taken: ``sm_90a``, ``sm >= 80 and (n >= 65536 or n % 4 == 0)``.

A condition is read by the parser below and never evaluated as Python. It compares ``sm``, the compute
capability of the GPU (90 for 9.0), and integers among a kernel's arguments with numbers. Targets stand
alone: ``sm_90`` holds on a GPU of just that capability, ``sm_90a`` and ``sm_100f`` where the GPU takes an
image made for that target.
"""

from __future__ import annotations

import contextlib
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
    "conditions_of",
    "parse",
    "reasons",
    "settled",
    "spelled",
]

SM = "sm"


class ConditionError(ValueError):
    """A text is no condition; the message says why, and how to mend it."""


@dataclass(frozen=True, slots=True)
class Target:
    """``sm_90a``: the compute capability and nvcc's suffix."""

    number: int
    suffix: str

    def __str__(self) -> str:
        return f"sm_{self.number}{self.suffix}"


@dataclass(frozen=True, slots=True)
class Comparison:
    """``n % 4 == 0``: what is called `name`, or its remainder, compared with a number."""

    name: str
    modulus: int | None
    operator: str
    number: int

    @property
    def term(self) -> str:
        return self.name if self.modulus is None else f"{self.name} % {self.modulus}"

    def value(self, number: int) -> int:
        """What is compared where `number` is called ``name``."""
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
    """Two or more conditions, all or one of which have to hold."""

    word: Literal["and", "or"]
    operands: tuple[Condition, ...]


Leaf: TypeAlias = Target | Comparison
Condition: TypeAlias = Leaf | Not | Junction


def parse(text: str) -> Condition:
    """Read a condition. Raises :class:`ConditionError`."""
    parser = _Parser(text)
    condition = parser.disjunction()
    if left := parser.found:
        raise ConditionError(f"{left!r} does not belong there; join conditions with 'and' or 'or'")
    return condition


def conditions_of(variants: Variants, kernel: Kernel) -> list[Condition | None]:
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
    """The names of the arguments that `condition` compares, once each."""
    match condition:
        case Not(operand):
            return arguments(operand)
        case Junction(_, operands):
            return list(dict.fromkeys(name for operand in operands for name in arguments(operand)))
        case Comparison(name) if name != SM:
            return [name]
        case _:
            return []


def settled(condition: Condition | bool, holds: Callable[[Leaf], bool | None]) -> Condition | bool:
    """What is left of `condition` to find out, or its value, where `holds` knows some leaves or all."""
    match condition:
        case bool():
            return condition
        case Not(operand):
            rest = settled(operand, holds)
            return not rest if isinstance(rest, bool) else Not(rest)
        case Junction(word, operands):
            found = [settled(operand, holds) for operand in operands]
            decisive = word == "or"
            if any(value is decisive for value in found):
                return decisive
            left = tuple(value for value in found if not isinstance(value, bool))
            return not decisive if not left else left[0] if len(left) == 1 else Junction(word, left)
        case _:
            known = holds(condition)
            return condition if known is None else known


def reasons(condition: Condition, holds: Callable[[Leaf], bool | None]) -> list[Leaf]:
    """The leaves that make `condition` hold or not hold, where `holds` knows enough of them."""
    match condition:
        case Not(operand):
            return reasons(operand, holds)
        case Junction(word, operands):
            for operand in operands:
                if settled(operand, holds) is (word == "or"):
                    return reasons(operand, holds)
            return [leaf for operand in operands for leaf in reasons(operand, holds)]
        case _:
            return [condition]


def spelled(condition: Condition, leaf: Callable[[Leaf], str] = str) -> str:
    """`condition` as text, with what `leaf` makes of its leaves. Python and :func:`parse` read it alike."""
    match condition:
        case Not(operand):
            return f"not ({spelled(operand, leaf)})"
        case Junction(word, operands):
            inner = (spelled(operand, leaf) for operand in operands)
            return f" {word} ".join(
                f"({text})" if isinstance(operand, Junction) else text
                for operand, text in zip(operands, inner, strict=True)
            )
        case _:
            return leaf(condition)


_TOKEN = re.compile(r"\s*([^\W\d]\w*|-?\d\w*|[()]|-|[^\w\s()-]+)")
_OPERATORS: dict[str, Callable[[int, int], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    "==": operator.eq,
    "!=": operator.ne,
    ">=": operator.ge,
    ">": operator.gt,
}
_RESERVED = ("and", "or", "not")
_DEEPEST = 32  # Python, too, reads parentheses up to some depth only
_MEANT = {"=": "==", "&&": "and", "&": "and", "||": "or", "|": "or", "!": "not", "=>": ">=", "=<": "<="}


class _Parser:
    """Recursive descent: ``or`` binds least, then ``and``, then ``not``. ``found`` is the next token."""

    def __init__(self, text: str) -> None:
        self._tokens = [match[1] for match in _TOKEN.finditer(text)]
        self._depth = 0
        for token in self._tokens:
            if meant := _MEANT.get(token):
                raise ConditionError(f"found {token!r}; did you mean {meant!r}?")

    @property
    def found(self) -> str:
        return self._tokens[0] if self._tokens else ""

    def disjunction(self) -> Condition:
        return self._joined("or", self._conjunction)

    def _conjunction(self) -> Condition:
        return self._joined("and", self._negation)

    def _joined(self, word: Literal["and", "or"], operand: Callable[[], Condition]) -> Condition:
        operands = [operand()]
        while self._take(word):
            operands.append(operand())
        return operands[0] if len(operands) == 1 else Junction(word, tuple(operands))

    def _negation(self) -> Condition:
        if self.found not in ("not", "("):
            return self._leaf()
        self._depth += 1
        if self._depth > _DEEPEST:
            raise ConditionError(f"is nested more than {_DEEPEST} deep; write it with fewer parentheses")
        if self._take("not"):
            condition: Condition = Not(self._negation())
        else:
            self._tokens.pop(0)
            condition = self.disjunction()
            if not self._take(")"):
                raise self._expected("')'")
        self._depth -= 1
        return condition

    def _leaf(self) -> Leaf:
        name = self.found
        if not name.isidentifier() or name in _RESERVED:
            raise self._expected("a target such as sm_90a, or a comparison such as sm >= 80 or n >= 65536")
        self._tokens.pop(0)
        if re.fullmatch(r"sm_\d+\w*", name):
            if target := re.fullmatch(r"sm_(\d{2,3})([af]?)", name):
                return Target(int(target[1]), target[2])
            raise ConditionError(f"{name!r} is no target; those are spelled as sm_90, sm_90a or sm_100f")
        modulus = self._integer("%") if self._take("%") else None
        if modulus is not None and modulus < 1:
            raise ConditionError(f"expected a number from 1 on after '%', found {modulus}")
        comparison = self.found
        if comparison not in _OPERATORS:
            raise self._expected(f"one of {' '.join(_OPERATORS)} after {name!r}")
        self._tokens.pop(0)
        return Comparison(name, modulus, comparison, self._integer(comparison))

    def _integer(self, after: str) -> int:
        try:
            number = int(self.found, 0)
        except ValueError:
            raise self._expected(f"an integer after {after!r}") from None
        self._tokens.pop(0)
        return number

    def _take(self, token: str) -> bool:
        if self.found != token:
            return False
        self._tokens.pop(0)
        return True

    def _expected(self, what: str) -> ConditionError:
        return ConditionError(f"expected {what}, found {repr(self.found) if self.found else 'the end'}")
