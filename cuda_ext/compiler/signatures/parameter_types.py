"""Describe parameters of kernels, and members of structures, by their types as the compiler states them."""

from __future__ import annotations

from cuda_ext.facts.kernels import Parameter, ParameterKind
from cuda_ext.formats.lowered_names.lowered_types import LoweredType


def describe_type(slot: Parameter, type_: LoweredType, is_enum: bool, alignment: int) -> Parameter:
    """Complete `slot`, of which name, size and offset are known; `alignment` counts for structures."""
    element, is_const = None, False
    kind: ParameterKind
    match type_.kind:
        case "pointer":
            kind = "pointer"
            if type_.target is not None:
                element, is_const = type_.target.unqualified, type_.target.is_const
        case "builtin":
            kind = _KINDS.get(type_.left, "unsigned" if type_.left.startswith("unsigned") else "integer")
        case _:
            kind = "enum" if is_enum else "struct"
    return slot._replace(
        type=type_.spelling,
        kind=kind,
        element=element,
        const=is_const,
        alignment=alignment if kind == "struct" else 0,
    )


# Python has no long double.
_KINDS: dict[str, ParameterKind] = {
    "bool": "bool",
    "float": "float",
    "double": "float",
    **dict.fromkeys(("long double", "__float128", "_Float16", "__bf16"), "opaque"),
    **dict.fromkeys(("char8_t", "char16_t", "char32_t"), "unsigned"),
}
