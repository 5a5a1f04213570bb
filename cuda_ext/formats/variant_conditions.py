"""Conditions of variants: ``sm_90a``, ``sm >= 80 and n % 16 == 0 and n >= 4096``.

A condition is a list of terms, which must all hold. A term compares ``sm``, the compute capability of the
GPU (90 for 9.0), or an integer argument of a kernel with a number, and so ``x.shape[0]`` and
``x.stride[0]`` where these are hidden parameters, and members of structures, ``p.width``. Pointers are
compared by their alignment, or with ``null``. Targets stand alone: ``sm_90`` means ``sm == 90``;
``sm_90a`` and ``sm_100f`` hold where the GPU loads an image for that target; ``gpu == "NVIDIA H200"`` where
it has this name. There is no *or*: a kernel may be several candidates.
"""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from itertools import product
from typing import Any, TypeAlias

from cuda_ext.errors import ConfigError, did_you_mean, shorten
from cuda_ext.facts.candidates import Term
from cuda_ext.facts.kernels import Parameter
from cuda_ext.facts.launches import HiddenParameter

Condition: TypeAlias = tuple[Term, ...]

SM = "sm"
# A candidate that is built to be measured; no launch takes it. C++ reserves the name, so no parameter has it.
CANDIDATE = "__candidate"
# What names of GPUs consist of in conditions.
GPU_NAME = r"[A-Za-z0-9][A-Za-z0-9 ._/+-]*"
# The highest compute capability for which conditions are tried; it stands for all later GPUs.
LAST = 199
# The largest least common multiple of moduli for which all remainders are tried.
_MOST_REMAINDERS = 1 << 10
_ALIGNMENTS = [1 << power for power in range(9)]  # of all memory that the driver allocates, and less
_OPERATORS: dict[str, Callable[[int, int], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    "==": operator.eq,
    "!=": operator.ne,
    ">=": operator.ge,
    ">": operator.gt,
}

_EQUALITIES = ("==", "!=")

# Editors read the patterns, too. Their `\w` matches only ASCII, so names exclude ASCII characters instead.
_LETTER = r"[^\x00-@\x5B-\x5E\x60\x7B-\x7F]"
_FURTHER = r"[^\x00-/:-@\x5B-\x5E\x60\x7B-\x7F]"
_NUMBER = rf"(?:0[xX][0-9a-fA-F_]+|0[bB][01_]+|0[oO][0-7_]+|0[0_]*|[1-9][0-9_]*)(?!{_FURTHER})"
_TARGET = rf"sm_[1-9][0-9]{{1,2}}[af]?(?!{_FURTHER})"
_NAME = rf"(?!sm_[0-9]|(?:and|or|not)(?!{_FURTHER})){_LETTER}{_FURTHER}*"
_EXTENT = r"\.(?:shape|stride)\[[0-9]{1,2}\]"
_MEMBER = rf"{_NAME}(?:\.{_NAME})*"
_COMPARED = rf"({_NAME}{_EXTENT}|{_MEMBER})\s*(?:%\s*({_NUMBER})\s*)?([<>]=?|[=!]=)\s*(-?{_NUMBER})"
_NULL = rf"({_MEMBER})\s*([=!]=)\s*null(?!{_FURTHER})"
_GPU = rf'gpu\s*==\s*"({GPU_NAME})"'
_TERM = rf"\s*(?:({_TARGET})|{_GPU}|{_COMPARED}|{_NULL})\s*"
PATTERN = rf"^{_TERM}(?:and(?!{_FURTHER}){_TERM})*$"
_FORBIDDEN = re.compile(rf"[()&|]|!(?!=)|(?<!{_FURTHER})(?:or|not)(?!{_FURTHER})")


class ConditionError(ValueError):
    """A text that is not a condition; the message contains the problem and the remedy."""


def parse(text: str) -> Condition:
    """Parse a condition. Raises :class:`ConditionError`."""
    if found := _FORBIDDEN.search(text):
        raise ConditionError(
            f"found {found[0]!r}; join comparisons with 'and', and write two candidates for 'or'"
        )
    return tuple(map(_parse_term, re.split(rf"(?<!{_FURTHER})and(?!{_FURTHER})", text)))


def parse_either(text: str) -> tuple[Condition, ...]:
    """Parse conditions, of which one must hold: ``sm_90 and n == 1 or sm_90 and n == 2``."""
    return tuple(map(parse, re.split(rf"(?<!{_FURTHER})or(?!{_FURTHER})", text)))


def _parse_term(text: str) -> Term:
    match = re.fullmatch(_TERM, text)
    if not match:
        found = repr(" ".join(text.split())[:40]) if text.strip() else "nothing"
        raise ConditionError(
            "expected a target such as sm_90a, or a comparison such as sm >= 80 or n % 16 == 0, "
            f"found {found}"
        )
    groups: Any = match.groups()
    target, gpu, name, modulus, symbol, number, pointer, equality = groups
    if target:
        return Term(target) if target[-1] in "af" else Term(SM, "==", int(target.removeprefix("sm_")))
    if gpu:
        return on_gpu(gpu)
    if pointer:
        return Term(pointer, equality)
    divisor = _parse_number(modulus) if modulus else 0
    if modulus and divisor < 1:
        raise ConditionError(f"expected a number from 1 on after '%', found {divisor}")
    return Term(name, symbol, _parse_number(number), divisor)


def on_gpu(name: str) -> Term:
    """Return the term that holds on GPUs of this name."""
    return Term(f'gpu == "{name}"')


def _parse_number(text: str) -> int:
    with suppress(ValueError):
        number = int(text, 0)
        if abs(number) < 1 << 63:
            return number
    raise ConditionError(f"expected an integer of 64 bits, found {text[:40]!r}")


def spell(conditions: Iterable[Condition]) -> str:
    """Write `conditions`, of which one must hold, as :func:`parse_either` reads them."""
    return " or ".join(" and ".join(map(str, condition)) for condition in conditions)


def holds(term: Term, number: int) -> bool:
    """Return True if the comparison `term` holds for `number`."""
    return _OPERATORS[term.operator](number % term.modulus if term.modulus else number, term.number)


def is_about_gpu(term: Term) -> bool:
    """Return True if `term` compares no argument."""
    return term.name in (SM, CANDIDATE) or not term.operator


def check_terms(
    condition: Condition,
    kernel: str,
    parameters: Sequence[Parameter],
    hidden: Sequence[HiddenParameter],
    where: str,
) -> None:
    """Check that a launch of `kernel` can compare the terms: integers, addresses and extents.

    `parameters` include members of structures. Raises :class:`ConfigError`.
    """
    by_name = {parameter.name: parameter for parameter in parameters}
    integers = ", ".join([*(name for name, parameter in by_name.items() if parameter.is_integer), SM])
    extents = {each.source for each in hidden if each.extent}
    for term in condition:
        name, parameter = term.name, by_name.get(term.name)
        if is_about_gpu(term) or name in extents:
            continue
        if parameter is None:
            problem = f"{kernel} has no parameter {shorten(name)!r}"
            remedy = did_you_mean(name, integers.split(", ")) or f"conditions compare {integers}"
        elif parameter.is_integer or (parameter.kind == "pointer" and _is_about_address(term)):
            continue
        else:
            problem = f"{shorten(name)!r} is {parameter.type}"
            remedy = f"conditions compare integers: {integers}"
            if parameter.kind == "pointer":
                remedy += f"; and pointers by their alignment, up to 256, or with null: {name} % 16 == 0, "
                remedy += f"{name} == null"
        raise ConfigError(f'"{spell([condition])}": {problem}', where=where, remedy=remedy)


def _is_about_address(term: Term) -> bool:
    """Return True if `term` asks what conditions may ask of an address."""
    is_about_null = not term.number and term.operator in _EQUALITIES
    return term.modulus in _ALIGNMENTS if term.modulus else is_about_null


def can_hold(condition: Condition) -> bool:
    """Return True if `condition` holds for some arguments on some GPU, or if that is hard to tell."""
    by_name: dict[str, list[Term]] = {}
    for term in condition:
        if not is_about_gpu(term):
            by_name.setdefault(term.name, []).append(term)
    on_some_gpu = any(may_hold_on(condition, capability) for capability in range(LAST + 1))
    return on_some_gpu and all(map(_agree, by_name.values()))


def may_hold_on(condition: Condition, capability: int) -> bool:
    """Return True if the terms about the GPU may hold for this compute capability."""
    return all(holds(term, capability) for term in condition if term.name == SM)


def _agree(terms: Sequence[Term]) -> bool:
    """Return True if all of `terms`, of one argument, hold for some integer, or if that is hard to tell."""
    period = math.lcm(*(term.modulus or 1 for term in terms))
    near = range(-period, period + 1)
    numbers = {term.number for term in terms if not term.modulus} or {0}
    return period > _MOST_REMAINDERS or any(
        all(holds(term, number + offset) for term in terms) for number, offset in product(numbers, near)
    )
