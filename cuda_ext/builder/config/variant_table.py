"""The key ``variants``: names for several kernels, of which the first whose condition holds is taken."""

from __future__ import annotations

import re
from collections.abc import Sequence

from cuda_ext.builder.config.kinds import C_NAME, array, mapping, show, string, table
from cuda_ext.errors import ConfigError
from cuda_ext.facts.candidates import Candidate, Variants
from cuda_ext.formats.variant_conditions import (
    PATTERN,
    Condition,
    ConditionError,
    can_hold,
    parse,
)

_EXAMPLE = 'a table such as { gemm = [{ kernel = "hopper", when = "sm_90a" }, { kernel = "simple" }] }'
_CANDIDATE = 'a table such as { kernel = "gemm_large", when = "sm >= 80 and n >= 65536" }'


def _check_name(name: str, where: str) -> None:
    if not re.fullmatch(r"[A-Za-z_]\w*(::[A-Za-z_]\w*)*", name):
        raise ConfigError("not a name that a kernel could have", where=where, remedy="write it as C++ does")


def check_condition(when: str, where: str) -> Condition:
    """Parse the condition `when`, which must be one that can hold."""
    try:
        condition = parse(when)
    except ConditionError as error:
        raise ConfigError(f"{show(when)}: {error}", where=where) from None
    if not can_hold(condition):
        raise ConfigError(f"{show(when)} never holds", where=where, remedy="correct it, or take it out")
    return condition


def _check_default(candidates: Sequence[Candidate], where: str) -> Sequence[Candidate]:
    """Check that the last candidate, and no other, has no condition."""
    *others, default = candidates
    for i, candidate in enumerate(others):
        if not candidate.when:
            raise ConfigError(
                "has no condition, so later candidates are never taken",
                where=f"{where}[{i}]",
                remedy="give it one with when, or move it to the end",
            )
    if default.when:
        raise ConfigError(
            "the last candidate is the default, and must have no condition",
            where=f"{where}[{len(others)}].when",
            remedy="take the condition out, or add a candidate without one",
        )
    return candidates


_KERNEL = string(
    'a name expression such as "gemm<float>"', description="The kernel, as a C++ name expression."
)
WHEN = string(
    'a condition such as "sm >= 80 and n >= 65536"',
    pattern=PATTERN,
    description="When to take it, such as `sm_90a` or `sm >= 80 and n >= 65536`.",
).then(check_condition)
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
