"""Write the types of arguments in stubs."""

from __future__ import annotations

from cuda_ext.facts.kernels import Parameter

# Structures that are passed as something else than their bytes, too.
_STRUCTURES = {
    **dict.fromkeys(("__half", "__nv_bfloat16"), "Half"),
    **dict.fromkeys(("float2", "double2", "complex<float>", "complex<double>"), "Complex"),
    **dict.fromkeys(("cuFloatComplex", "cuDoubleComplex"), "Complex"),
    **dict.fromkeys(("CUtensorMap", "CUtensorMap_st"), "TensorMap"),
}


def plain_type(types: str, typing: str, builtins: str, parameter: Parameter) -> str:
    """Return the type of the values that `parameter` takes; the others are names of modules."""
    match parameter.kind:
        case "pointer":
            return f"{types}.ConstPointer" if parameter.const else f"{types}.Pointer"
        case "integer" | "unsigned" | "enum":
            return f"{typing}.SupportsIndex"
        case "float":
            return f"{typing}.SupportsFloat"
        case "struct" if parameter.element:
            return f"{types}.Pointer"  # a tensor map is made of an array
        case "struct":
            special = _STRUCTURES.get(parameter.type.rpartition("::")[2])
            names = [special, "Vector" if parameter.vector_items else None if special else "Structure"]
            return " | ".join(f"{types}.{name}" for name in names if name)
        case "bool":
            return "bool"
        case _:
            return f"{builtins}.object"
