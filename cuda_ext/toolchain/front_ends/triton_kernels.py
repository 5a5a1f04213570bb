"""Kernels that Triton compiles: types and constants in Triton's spelling, and descriptions for launches.

Types are ``*fp16``, ``i32``, ``tensordesc<fp16[64, 32]>``.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields
from types import ModuleType
from typing import Any

from cuda_ext.compiler.front_ends.instantiation import Instantiation, ParameterType, TypedParameter
from cuda_ext.compiler.front_ends.kernel_description import (
    DTYPES,
    KernelDescription,
    declare_parameter,
    describe_function,
)
from cuda_ext.errors import CompilationError
from cuda_ext.facts.kernels import Parameter
from cuda_ext.facts.launches import TRITON_OPTIONS, FixedLaunch, HiddenParameter, TensorMap
from cuda_ext.toolchain.front_ends.triton_versions import differences_of

_IN_CPP = {dtype.triton: dtype.cpp for dtype in DTYPES}
# The type of a tensor that the host describes: its element type, and the lengths of a block.
DESCRIPTOR = re.compile(r"tensordesc<\s*(\w+)\s*\[([\d\s,]+)\]\s*>")
_ADDRESS = 8


def signature_of(instantiation: Instantiation, names: Sequence[str]) -> dict[str, Any]:
    """Return the type of each parameter in `names`, as Triton takes it. Raises :class:`CompilationError`."""
    types = instantiation.types
    return {name: _signature_of(types[name]) if name in types else "constexpr" for name in names}


def _signature_of(type_: ParameterType) -> Any:
    if not isinstance(type_, TypedParameter):
        return tuple(map(_signature_of, type_))
    if _element_of(type_.type) not in _IN_CPP:
        raise CompilationError(
            f"{type_.type!r} is not a type of a parameter",
            remedy=f"the types are {', '.join(_IN_CPP)}, and with * pointers to them",
        )
    return type_.type


def hints_of(instantiation: Instantiation, names: Sequence[str]) -> dict[tuple[int, ...], Any]:
    """Return the divisors that Triton may assume, by the positions of the parameters among `names`."""
    return {
        (names.index(each.name), *each.path): [["tt.divisibility", each.divisor]]
        for each in instantiation.parameters
        if each.divisor > 1
    }


def _element_of(type_: str) -> str:
    """Return the element type of a pointer or a tensor descriptor; the type itself if it is neither."""
    if descriptor := DESCRIPTOR.fullmatch(type_):
        return descriptor[1]
    return type_.removeprefix("*k" if type_.startswith("*k") else "*")


def describe_kernel(
    instantiation: Instantiation, function: Any, constants: Mapping[str, str], metadata: Any
) -> KernelDescription:
    """Describe the kernel of `instantiation`, whose parameters are in the order of `function`.

    `constants` spells all values, and `metadata` is Triton's description of the kernel.
    """
    names = function.arg_names
    typed = instantiation.parameters
    arrays = (p.type for p in typed if p.type.startswith("*") or DESCRIPTOR.fullmatch(p.type))
    hidden = list(_hidden(typed))
    count = len(typed) + len(hidden)
    # Even if this image needs no scratch memory, that of another architecture may.
    hidden += (
        HiddenParameter(position, _ADDRESS, source)
        for position, source in enumerate(differences_of(metadata.triton_version).added, count)
    )
    kernel = describe_function(instantiation, names, map(_element_of, arrays), constants)
    kernel = kernel._replace(
        lowered=metadata.name,
        parameters=tuple(map(_parameter, typed)),
        hidden=tuple(hidden),
        options={**_default_options(names), **kernel.options},
        defaults=dict(_defaults(instantiation, function)),
    )
    launch = FixedLaunch(
        block=(metadata.target.warp_size * metadata.num_warps,),
        shared=metadata.shared,
        cluster=(metadata.num_ctas,) if metadata.num_ctas > 1 else (),
        cooperative=metadata.launch_cooperative_grid,
        dependent=metadata.launch_pdl,
        scratch=metadata.global_scratch_size,
        tensor_maps=_tensor_maps(typed, metadata),
    )
    return KernelDescription(kernel, launch, instantiation.conditions)


def _defaults(instantiation: Instantiation, function: Any) -> Iterator[tuple[str, str]]:
    """Yield the numbers that are defaults of typed parameters."""
    typed = {parameter.argument for parameter in instantiation.parameters}
    for parameter in function.params:
        if parameter.name in typed and parameter.has_default and isinstance(parameter.default, int | float):
            yield parameter.name, repr(parameter.default)


def _default_options(names: Sequence[str]) -> dict[str, str]:
    """Return the options that launches often give, with Triton's defaults, but for parameters in `names`."""
    from triton.backends.nvidia.compiler import CUDAOptions

    common = TRITON_OPTIONS.keys() - {*names}
    return {each.name: repr(each.default) for each in fields(CUDAOptions) if each.name in common}


def _hidden(typed: Sequence[TypedParameter]) -> Iterator[HiddenParameter]:
    """Yield the shapes (32 bits) and strides (64 bits) behind each tensor descriptor."""
    position = 0
    for parameter in typed:
        position += 1
        if descriptor := DESCRIPTOR.fullmatch(parameter.type):
            axes = range(descriptor[2].count(",") + 1)
            for size, what in ((4, "shape"), (8, "stride")):
                for axis in axes:
                    yield HiddenParameter(position, size, f"{parameter.argument}.{what}[{axis}]")
                    position += 1


def _tensor_maps(typed: Sequence[TypedParameter], metadata: Any) -> dict[str, TensorMap]:
    """Return the formats of the tensor maps that the host makes, by parameter."""
    names = [parameter.argument for parameter in typed if DESCRIPTOR.fullmatch(parameter.type)]
    formats = getattr(metadata, "tensordesc_meta", None) or ()
    # Some types have other numbers on the device.
    types = {8: 10, 9: 8, 10: 9}
    return {
        name: TensorMap(
            types.get(each["elem_type"], each["elem_type"]),
            each["elem_size"],
            tuple(each["block_size"]),
            each["swizzle"],
        )
        for name, each in zip(names, formats, strict=True)
    }


def _parameter(typed: TypedParameter) -> Parameter:
    name, type_, element = typed.argument, typed.type, _IN_CPP[_element_of(typed.type)]
    if DESCRIPTOR.fullmatch(type_):
        return Parameter(name, "CUtensorMap", "struct", 128, 0, element, alignment=64)
    if not type_.startswith("*"):
        return declare_parameter(name, element)
    return declare_parameter(name, f"const {element}*" if type_.startswith("*k") else f"{element}*")


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
                    f"the default of {parameter.name!r} is not a constant",
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
    text = node.id
    language = vars(triton.language).items()
    dtypes = {each: value for each, value in language if isinstance(value, triton.language.dtype)}
    dtypes |= {spell_constant(value): value for value in dtypes.values()}
    function = getattr(module, text, None)
    if text in dtypes or isinstance(function, triton.JITFunction):
        return dtypes.get(text, function)
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
