"""The key ``variants``: names for several kernels, of which the first whose condition holds is taken."""

from __future__ import annotations

import re
from collections.abc import Sequence

from cuda_ext.builder.config.kinds import C_NAME, NAME, array, mapping, show, string, table
from cuda_ext.builder.config.satisfiable import can_hold
from cuda_ext.errors import ConfigError, did_you_mean, shorten
from cuda_ext.facts.kernels import HiddenParameter, Parameter
from cuda_ext.facts.manifest import Candidate, Variants
from cuda_ext.formats.variant_conditions import ConditionError, fits, list_comparisons, parse

_EXAMPLE = 'a table such as { gemm = [{ kernel = "hopper", when = "sm_90a" }, { kernel = "simple" }] }'
_CANDIDATE = 'a table such as { kernel = "gemm_large", when = "sm >= 80 and n >= 65536" }'


def _check_name(name: str, where: str) -> None:
    if not re.fullmatch(r"[A-Za-z_]\w*(::[A-Za-z_]\w*)*", name):
        raise ConfigError("not a name that a kernel could have", where=where, remedy="write it as C++ does")


def _check_condition(when: str, where: str) -> str:
    try:
        condition = parse(when)
    except ConditionError as error:
        raise ConfigError(f"{show(when)}: {error}", where=where) from None
    if not can_hold(condition):
        raise ConfigError(f"{show(when)} never holds", where=where, remedy="correct it, or take it out")
    return when


def _check_default(candidates: Sequence[Candidate], where: str) -> Sequence[Candidate]:
    """Check that the last candidate, and no other, has no condition."""
    *others, default = candidates
    for i, candidate in enumerate(others):
        if candidate.when is None:
            raise ConfigError(
                "has no condition, so that what follows is never taken",
                where=f"{where}[{i}]",
                remedy="give it one with when, or move it to the end",
            )
    if default.when is not None:
        raise ConfigError(
            "the last candidate is the default, which is taken where no other is",
            where=f"{where}[{len(others)}].when",
            remedy="take the condition out, or add a candidate without one",
        )
    return candidates


# The schema reads a condition as a list of comparisons; it cannot match parentheses.
_END = r"(?![^\x00-/:-@\x5B-\x5E\x60\x7B-\x7F])"
_TARGET = rf"sm_[1-9]\d{{1,2}}[af]?{_END}"
_NUMBER = rf"(?:0[xX][\da-fA-F_]+|0[bB][01_]+|0[oO][0-7_]+|0[0_]*|(?!0)\d[\d_]*){_END}"
_EXTENT = r"(?:\.(?:shape|stride)\[\d{1,2}\])?"
_TERM = rf"(?!sm_\d|(?:and|or|not){_END}){NAME}{_EXTENT}\s*(?:%\s*{_NUMBER}\s*)?"
_COMPARISON = rf"{_TERM}(?:[<>]=?|[=!]=)\s*-?{_NUMBER}"
_LEAF = rf"(?:(?:not{_END}|\()\s*)*(?:{_TARGET}|{_COMPARISON})\s*(?:\)\s*)*"
_CONDITION = rf"^\s*(?:{_LEAF}(?:(?:and|or){_END}\s*(?=\S)|$))+$"

_KERNEL = string(
    'a name expression such as "gemm<float>"', description="The kernel, as a C++ name expression."
)
WHEN = string(
    'a condition such as "sm >= 80 and n >= 65536"',
    pattern=_CONDITION,
    description="When to take it, such as `sm_90a` or `sm >= 80 and n >= 65536`.",
).then(_check_condition)
_CANDIDATES = array(
    table({"kernel": _KERNEL, "when": WHEN}, _CANDIDATE, {"kernel": "name the kernel that is taken"}).then(
        lambda keys, _: Candidate(**keys)
    ),
    f"an array of candidates, each {_CANDIDATE}",
    "name the kernels, the default last",
).then(_check_default, contains={"not": {"required": ["when"]}})

VARIANTS = mapping(rf"^{C_NAME}(?:::{C_NAME})*$", _check_name, _CANDIDATES, _EXAMPLE).then(
    lambda variants, _: tuple(Variants(name, candidates) for name, candidates in variants.items())
)


def check_comparisons(
    when: str, kernel: str, parameters: Sequence[Parameter], hidden: Sequence[HiddenParameter], where: str
) -> None:
    """Check that the condition `when` compares some of the parameters of `kernel`."""
    by_name = {parameter.name: parameter for parameter in parameters}
    integers = ", ".join([*(name for name, parameter in by_name.items() if parameter.is_integer), "sm"])
    for comparison in list_comparisons(parse(when)):
        name = comparison.name
        if fits(comparison, parameters, hidden):
            continue
        if name not in by_name:
            close = did_you_mean(name, integers.split(", "))
            raise ConfigError(
                f'"{when}": {kernel} has no parameter {shorten(name)!r}',
                where=where,
                remedy=close or f"conditions compare {integers}",
            )
        remedy = f"conditions compare integers: {integers}"
        if by_name[name].kind == "pointer":
            remedy += f"; and the alignment of pointers, up to 256: {name} % 16 == 0"
        raise ConfigError(f'"{when}": {shorten(name)!r} is {by_name[name].type}', where=where, remedy=remedy)
