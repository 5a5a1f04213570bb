"""The key ``kernels``: descriptions of the kernels in sources that are already compiled."""

from __future__ import annotations

import math
from typing import Any

from cuda_ext.builder.config.kinds import FLAG, Kind, array, expect, show, string, table
from cuda_ext.builder.config.variant_table import WHEN
from cuda_ext.compiler.front_ends.kernel_description import LIMITS, KernelDescription, parse_signature
from cuda_ext.errors import ConfigError
from cuda_ext.facts.kernels import Kernel
from cuda_ext.facts.launches import FixedLaunch
from cuda_ext.formats.spelling import normalise
from cuda_ext.formats.variant_conditions import check_terms

_EXAMPLE = (
    'a table such as { name = "gemm", signature = "(const float* a, float* b, int n)", block = [128, 1, 1] }'
)
_LARGEST = (1 << 31) - 1


def _count(lowest: int, doc: str) -> Kind:
    def check(value: object, where: str) -> int:
        number: int = -1 if isinstance(value, bool) else expect(value, int, where, "an integer")
        if not lowest <= number <= _LARGEST:
            raise ConfigError(f"expected an integer from {lowest} on, found {show(value)}", where=where)
        return number

    return Kind(check, {"type": "integer", "minimum": lowest, "maximum": _LARGEST, "description": doc})


def _extents(doc: str) -> Kind:
    def check(value: object, where: str) -> tuple[int, ...]:
        items = value if isinstance(value, list) else [value]
        if not 1 <= len(items) <= 3:
            raise ConfigError("expected one to three integers", where=where)
        return tuple(_count(1, "").check(item, where) for item in items)

    count = _count(1, "").schema
    either = [{**count}, {"type": "array", "items": count, "minItems": 1, "maxItems": 3}]
    return Kind(check, {"anyOf": either, "description": doc})


def _describe(keys: dict[str, Any], where: str) -> KernelDescription:
    try:
        parameters, hidden = parse_signature(keys["signature"])
    except ValueError as error:
        raise ConfigError(str(error), where=f"{where}.signature") from None
    fixed = {key: keys[key] for key in FixedLaunch._fields if key in keys}
    if fixed and "block" not in fixed:
        raise ConfigError(
            "is missing",
            where=f"{where}.block",
            remedy="give the threads of a block, or take out " + ", ".join(fixed),
        )
    if any(each.source == "scratch" for each in hidden) != bool(fixed.get("scratch")):
        raise ConfigError(
            "is the size of the memory for each block, whose address a parameter takes",
            where=f"{where}.scratch",
            remedy="give both, scratch = 256 and a parameter void* memory = scratch, or neither",
        )
    for key, (most, what) in LIMITS.items():
        if math.prod(fixed.get(key, ())) > most:
            raise ConfigError(f"expected at most {most} {what}", where=f"{where}.{key}")
    launch = FixedLaunch(**fixed) if fixed else None
    kernel = Kernel(normalise(keys["name"]), keys.get("symbol", keys["name"]), 0, parameters, hidden)
    conditions = (keys["when"],) if "when" in keys else ()
    for condition in conditions:
        check_terms(condition, kernel.expression, parameters, hidden, f"{where}.when")
    return KernelDescription(kernel, launch, conditions)


KERNELS = array(
    table(
        {
            "name": string(
                "a name",
                empty="name the kernel",
                description="The name in Python, such as `gemm` or `gemm<float>`.",
            ),
            "symbol": string(
                "a name", empty="take it out", description="The name in the image, if it is another one."
            ),
            "signature": string(
                description="The parameters in C++. Those with a default are no arguments: `int rows = "
                "x.shape[0]`, `int step = x.stride[0]`, `void* memory = scratch`, `long reserved = 0`."
            ),
            "block": _extents("The threads of a block. With it, a launch gives the grid alone."),
            "shared": _count(0, "The dynamic shared memory of a block, in bytes."),
            "cluster": _extents("The blocks of a cluster; the grid of a launch then counts clusters."),
            "cooperative": FLAG.described("Whether the blocks synchronize."),
            "dependent": FLAG.described("Whether it uses programmatic dependent launch."),
            "when": WHEN.described(
                "On what it was compiled, such as `x % 16 == 0 and n % 4 == 0`. A launch takes "
                "the first of several with the same name whose condition holds.",
            ),
            "scratch": _count(0, "The global memory that a launch allocates for each block, in bytes."),
        },
        _EXAMPLE,
        {"name": "name the kernel", "signature": "write its parameters as C++ does"},
    ).then(_describe),
    f"an array of tables, each {_EXAMPLE}",
)
