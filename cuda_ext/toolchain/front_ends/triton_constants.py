"""Values of constants: read them from an instantiation for Triton, and spell them."""

from __future__ import annotations

import ast
import re
from types import ModuleType
from typing import Any

from cuda_ext.compiler.front_ends.instantiation import Instantiation
from cuda_ext.errors import CompilationError


def read_constants(module: ModuleType, function: Any, instantiation: Instantiation) -> dict[str, Any]:
    """Read the values of the constants and options of `instantiation`, and defaults of other parameters.

    They are in the order of `function`, so that one kernel has one name. Raises :class:`CompilationError`.
    """
    given = {
        name: _read_value(module, name, ast.parse(text, mode="eval").body)
        for name, text in {**instantiation.constants, **instantiation.configuration}.items()
    }
    defaults = {}
    for parameter in function.params:
        if parameter.has_default and parameter.name not in instantiation.types.keys() | given.keys():
            default = getattr(parameter.default, "value", parameter.default)  # the value of a constexpr
            if not spell_constant(default):
                raise CompilationError(
                    f"the default of {parameter.name!r} is no constant",
                    remedy=f"give it a type or a value, as in {parameter.name}=1",
                )
            defaults[parameter.name] = default
    values = {**defaults, **given}
    names = [name for name in function.arg_names if name in values]
    return {name: values[name] for name in dict.fromkeys([*names, *given])}


def _read_value(module: ModuleType, name: str, node: ast.expr) -> Any:
    """Read the constant `node`: a literal, a dtype, a function of `module`, or a tuple of these."""
    import triton

    if isinstance(node, ast.Tuple):
        return tuple(_read_value(module, name, item) for item in node.elts)
    if not isinstance(node, ast.Name):
        return ast.literal_eval(node)
    names = {"fp16": "float16", "bf16": "bfloat16", "fp32": "float32", "fp64": "float64"}
    text = node.id
    spelled = names.get(text, re.sub(r"^([iu])(\d)", r"int\2" if text[0] == "i" else r"uint\2", text))
    for owner, kind in ((triton.language, triton.language.dtype), (module, triton.JITFunction)):
        if isinstance(value := getattr(owner, spelled, None), kind):
            return value
    raise CompilationError(
        f"{name}={text} is neither a value nor a dtype, nor a function with @triton.jit",
        remedy="quote it if it is a string",
    )


def spell_constant(value: Any) -> str:
    """Spell `value` as in an instantiation; return an empty string if it is not a constant."""
    import triton

    if isinstance(value, tuple):
        texts = [spell_constant(item) for item in value]
        comma = "," if len(texts) == 1 else ""
        return f"({', '.join(texts)}{comma})" if all(texts) else ""
    if isinstance(value, triton.language.dtype):
        return re.sub(r"^(u?)int", lambda match: match[1] or "i", str(value))
    if isinstance(value, triton.JITFunction):
        return str(value.__name__)
    return repr(value) if value is None or isinstance(value, bool | int | float | str) else ""
