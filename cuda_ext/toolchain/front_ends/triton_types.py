"""Types of parameters in Triton's spelling: ``*fp16``, ``i32``, ``tensordesc<fp16[64, 32]>``."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from cuda_ext.compiler.front_ends.instantiation import Instantiation, ParameterType, TypedParameter
from cuda_ext.errors import CompilationError

SPELLED_IN_CPP = {
    "i1": "bool",
    "i8": "signed char",
    "i16": "short",
    "i32": "int",
    "i64": "long long",
    "u8": "unsigned char",
    "u16": "unsigned short",
    "u32": "unsigned int",
    "u64": "unsigned long long",
    "fp16": "__half",
    "bf16": "__nv_bfloat16",
    "fp32": "float",
    "fp64": "double",
    "fp8e4nv": "__nv_fp8_e4m3",
    "fp8e5": "__nv_fp8_e5m2",
}
# The type of a tensor that the host describes: its element type, and the lengths of a block.
DESCRIPTOR = re.compile(r"tensordesc<\s*(\w+)\s*\[([\d\s,]+)\]\s*>")


def signature_of(instantiation: Instantiation, names: Sequence[str]) -> dict[str, Any]:
    """Return the type of each parameter in `names`, as Triton takes it. Raises :class:`CompilationError`."""
    types = instantiation.types
    return {name: _signature_of(types[name]) if name in types else "constexpr" for name in names}


def _signature_of(type_: ParameterType) -> Any:
    if not isinstance(type_, TypedParameter):
        return tuple(map(_signature_of, type_))
    if element_of(type_.type) not in SPELLED_IN_CPP:
        raise CompilationError(
            f"{type_.type!r} is not a type of a parameter",
            remedy=f"the types are {', '.join(SPELLED_IN_CPP)}, and with * pointers to them",
        )
    return type_.type


def hints_of(instantiation: Instantiation, names: Sequence[str]) -> dict[tuple[int, ...], Any]:
    """Return the divisors that Triton may assume, by the positions of the parameters among `names`."""
    return {
        (names.index(each.name), *each.path): [["tt.divisibility", each.divisor]]
        for each in instantiation.parameters
        if each.divisor > 1
    }


def element_of(type_: str) -> str:
    """Return the element type of a pointer or a tensor descriptor; the type itself if it is neither."""
    if descriptor := DESCRIPTOR.fullmatch(type_):
        return descriptor[1]
    return type_.removeprefix("*k" if type_.startswith("*k") else "*")
