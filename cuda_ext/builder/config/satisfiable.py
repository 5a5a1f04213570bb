"""Decide if conditions of variants can hold for any arguments, on any GPU."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from itertools import product

from cuda_ext.facts.architecture import Architecture
from cuda_ext.formats.variant_conditions import SM, Comparison, Condition, Junction

# The highest compute capability for which conditions are tried; it stands for all later GPUs.
LAST = 199
# The largest least common multiple of moduli for which all remainders are tried.
_MOST_REMAINDERS = 1 << 10


def can_hold(condition: Condition) -> bool:
    """Return True if `condition` holds for some arguments on some GPU, or if that is hard to tell."""
    return any(may_hold(condition, capability) for capability in range(LAST + 1))


def may_hold(condition: Condition, capability: int) -> bool:
    """Return True if `condition` holds for some arguments on a GPU of this compute capability."""
    return _possible(condition, capability)[0]


def _possible(condition: Condition, capability: int) -> tuple[bool, bool]:
    """Return two booleans: `condition` may hold, and it may not hold."""
    match condition:
        case Junction("not", (operand,)):
            holds, fails = _possible(operand, capability)
            return fails, holds
        case Junction(word, operands):
            holding, failing = zip(*(_possible(operand, capability) for operand in operands), strict=True)
            if word == "or":
                return any(holding), all(failing)
            return all(holding) and _agree(_all_of(condition)), any(failing)
        case Comparison(name) if name == SM:
            return condition.holds(capability), not condition.holds(capability)
        case Comparison():
            return _agree([condition]), True
        case Architecture(suffix=""):
            return condition.number == capability, condition.number != capability
    return True, True


def _all_of(condition: Condition) -> Iterator[Comparison]:
    """Yield the comparisons of arguments that must all hold if `condition` does."""
    match condition:
        case Junction("and", operands):
            for operand in operands:
                yield from _all_of(operand)
        case Comparison(name) if name != SM:
            yield condition


def _agree(comparisons: Iterable[Comparison]) -> bool:
    """Return True if all of `comparisons` hold for some integers."""
    by_name: dict[str, list[Comparison]] = {}
    for each in comparisons:
        by_name.setdefault(each.name, []).append(each)
    for own in by_name.values():
        period = math.lcm(*(each.modulus or 1 for each in own))
        near = range(-period, period + 1)
        numbers = {each.number for each in own if each.modulus is None} or {0}
        if period <= _MOST_REMAINDERS and not any(
            all(each.holds(number + offset) for each in own) for number, offset in product(numbers, near)
        ):
            return False
    return True
