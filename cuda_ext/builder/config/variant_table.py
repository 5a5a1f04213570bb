"""The key ``variants``: names that stand for the first of several kernels whose condition holds."""

from __future__ import annotations

import re
from collections.abc import Sequence

from cuda_ext.builder.config.kinds import (
    C_NAME,
    NAME,
    Kind,
    array_schema,
    expect,
    key_path,
    map_schema,
    refuse_empty,
    show,
    table_schema,
)
from cuda_ext.errors import ConfigError
from cuda_ext.formats.variant_conditions import ConditionError, parse
from cuda_ext.manifest import Candidate, Variants

__all__ = ["VARIANTS"]

_EXAMPLE = 'a table such as { gemm = [{ kernel = "hopper", when = "sm_90a" }, { kernel = "simple" }] }'
_CANDIDATE = 'a table such as { kernel = "gemm_large", when = "sm >= 80 and n >= 65536" }'


def _check(value: object, where: str) -> tuple[Variants, ...]:
    table = expect(value, dict, where, _EXAMPLE)
    return tuple(_check_variants(name, items, key_path(where, name)) for name, items in table.items())


def _check_variants(name: str, items: object, where: str) -> Variants:
    if not re.fullmatch(r"[A-Za-z_]\w*(::[A-Za-z_]\w*)*", name):
        raise ConfigError("not a name that a kernel could have", where=where, remedy="write it as C++ does")
    array = expect(items, list, where, f"an array of candidates, each {_CANDIDATE}")
    candidates = [_check_candidate(item, f"{where}[{i}]") for i, item in enumerate(array)]
    _check_default(candidates or refuse_empty(where, "name the kernels, the default last"), where)
    return Variants(name, tuple(candidates))


def _check_default(candidates: Sequence[Candidate], where: str) -> None:
    """The last candidate, and no other, has no condition."""
    for i, candidate in enumerate(candidates):
        is_last = i == len(candidates) - 1
        if candidate.when is None and not is_last:
            raise ConfigError(
                "has no condition, so that what follows is never taken",
                where=f"{where}[{i}]",
                remedy="give it one with when, or move it to the end",
            )
        if candidate.when is not None and is_last:
            raise ConfigError(
                "the last candidate is the default, which is taken where no other is",
                where=f"{where}[{i}].when",
                remedy="take the condition out, or add a candidate without one",
            )


def _check_candidate(value: object, where: str) -> Candidate:
    table = expect(value, dict, where, _CANDIDATE)
    for key in table:
        if key not in ("kernel", "when"):
            raise ConfigError(
                "unknown key", where=key_path(where, key), remedy="a candidate has kernel and when"
            )
    if "kernel" not in table:
        raise ConfigError("is missing", where=f"{where}.kernel", remedy="name the kernel that is taken")
    kernel = expect(table["kernel"], str, f"{where}.kernel", 'a name expression such as "gemm<float>"')
    if "when" not in table:
        return Candidate(kernel)
    when = expect(table["when"], str, f"{where}.when", 'a condition such as "sm >= 80 and n >= 65536"')
    try:
        parse(when)
    except ConditionError as error:
        raise ConfigError(f"{show(when)}: {error}", where=f"{where}.when") from None
    return Candidate(kernel, when)


# To the schema, a condition is a list of comparisons with parentheses that it cannot match.
_END = r"(?![^\x00-/:-@\x5B-\x5E\x60\x7B-\x7F])"
_TARGET = rf"sm_\d{{2,3}}[af]?{_END}"
_NUMBER = rf"(?:0[xX][\da-fA-F_]+|0[bB][01_]+|0[oO][0-7_]+|0[0_]*|(?!0)\d[\d_]*){_END}"
_TERM = rf"(?!sm_\d|(?:and|or|not){_END}){NAME}\s*(?:%\s*{_NUMBER}\s*)?"
_COMPARISON = rf"{_TERM}(?:[<>]=?|[=!]=)\s*-?{_NUMBER}"
_LEAF = rf"(?:(?:not{_END}|\()\s*)*(?:{_TARGET}|{_COMPARISON})\s*(?:\)\s*)*"
_CONDITION = rf"^\s*(?:{_LEAF}(?:(?:and|or){_END}\s*(?=\S)|$))+$"

_CANDIDATES = array_schema(
    table_schema(
        {
            "kernel": {"type": "string", "description": "The kernel, as a C++ name expression."},
            "when": {
                "type": "string",
                "pattern": _CONDITION,
                "description": "When to take it, such as `sm_90a` or `sm >= 80 and n >= 65536`.",
            },
        },
        required=["kernel"],
    ),
    # The default must be there, so the array is not empty.
    contains={"not": {"required": ["when"]}},
)

VARIANTS = Kind(_check, map_schema(rf"^{C_NAME}(?:::{C_NAME})*$", _CANDIDATES))
