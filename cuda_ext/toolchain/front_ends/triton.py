"""Triton: functions with ``@triton.jit``, compiled without a driver.

The interface that is used here is not documented, so the extra ``triton`` pins a minor version.
"""

from __future__ import annotations

import ast
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields
from functools import cache, cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cuda_ext.compiler.architectures import FIRST_SPECIFIC
from cuda_ext.compiler.front_ends.described_images import describe_image
from cuda_ext.compiler.front_ends.instantiation import (
    Instantiation,
    TypedParameter,
    argument_order,
    parse_instantiation,
)
from cuda_ext.compiler.front_ends.kernel_description import KernelDescription, declare_parameter
from cuda_ext.compiler.products import CompiledImage, Signatures
from cuda_ext.compiler.translation_unit import TranslationUnit
from cuda_ext.errors import CompilationError
from cuda_ext.formats.architecture import Architecture
from cuda_ext.manifest import Parameter
from cuda_ext.records import FixedLaunch, HiddenParameter, TensorMap
from cuda_ext.toolchain import process
from cuda_ext.toolchain.diagnostics import shorten_output
from cuda_ext.toolchain.front_ends.installed_package import InstalledPackage
from cuda_ext.toolchain.front_ends.source_import import import_source, scratch_directory

if TYPE_CHECKING:
    from types import ModuleType

__all__ = ["Triton"]

_PACKAGE = InstalledPackage("Triton", "triton", "triton", "3.9", "triton")
# What decides the code that it makes.
_FILES = (
    *("_C/libtriton.*", "compiler/**/*.py", "language/**/*.py", "runtime/jit.py"),
    *("backends/nvidia/*.py", "backends/nvidia/bin/ptxas*", "backends/nvidia/lib/*.bc"),
)
# The C++ types of Triton's.
_TYPES = {
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
_DESCRIPTOR = re.compile(r"tensordesc<\s*(\w+)\s*\[([\d\s,]+)\]\s*>")
# The capabilities below pass the parts of tensor descriptors one by one.
_FIRST_WITH_TENSOR_MAPS = 90
# The options that a target and the sources decide.
_FIXED = {"arch", "backend_name", "extern_libs", "instrumentation_mode", "ir_override", "warp_size"}
# Variables by which Triton, and the LLVM and ptxas that it has, are changed.
_VARIABLE = re.compile(r"(TRITON|MLIR|LLVM|NVPTX|PTXAS|DISABLE_(LLVM|MMA|PTXAS)|ALLOW_LHS|USE_\w+_LOC)_?")
# Of the parameters that Triton adds: scratch memory, global and for profiling.
_ADDRESS = 8


class Triton:
    """Triton as a :class:`~cuda_ext.compiler.translation_unit.Compiler`; it is imported to compile only."""

    name = "triton"

    @cached_property
    def version(self) -> str:
        """Its version, ``3.9.0``."""
        return _PACKAGE.version()

    def remember(self, version: str) -> None:
        self.__dict__["version"] = version

    def files(self) -> Sequence[Path]:
        return _PACKAGE.files(*_FILES)

    def capabilities(self) -> tuple[int, ...]:
        """What the assemblers of Triton support, from its oldest GPU on."""
        found: set[int] = set()
        for path in _PACKAGE.files("backends/nvidia/bin/ptxas*"):
            listed = process.run([str(path), "--help"], environ=os.environ).output
            found.update(int(number) for number in re.findall(r"'sm_(\d+)'", listed))
        return tuple(sorted(number for number in found if number >= 75))

    def supports(self, architecture: Architecture) -> bool:
        if architecture.number not in self.capabilities() or architecture.suffix == "f":
            return False
        return architecture.number < FIRST_SPECIFIC or architecture.kind == "cubin"

    def search_path(self, unit: TranslationUnit) -> Sequence[Path]:  # noqa: ARG002 - there are no headers
        return ()

    def reflect(self, unit: TranslationUnit, architecture: Architecture) -> Signatures:
        raise NotImplementedError  # images come with signatures

    def compile(
        self, unit: TranslationUnit, architectures: Sequence[Architecture]
    ) -> tuple[CompiledImage, ...]:
        (text,) = unit.instantiate
        instantiation = parse_instantiation(text)
        triton = _import()
        module = import_source(unit)
        function = _find_function(triton, module, instantiation.function, unit.name)
        constants = _constants(triton, module, function, instantiation, unit.name)
        kernel = _compile(triton, function, instantiation, constants, architectures[0].number, unit.name)
        texts = {name: _spell(triton, value) for name, value in constants.items()}
        description = _describe(instantiation, function.arg_names, texts, kernel.metadata)
        return tuple(
            describe_image(
                each,
                kernel.asm["cubin"] if each.kind == "cubin" else kernel.asm["ptx"].encode(),
                description,
                unit,
            )
            for each in architectures
        )


@cache
def _import() -> ModuleType:
    for name in filter(_VARIABLE.match, list(os.environ)):
        del os.environ[name]  # some of them change the code
    # Line information has the paths of files; the default of fusion depends on the version.
    os.environ |= {
        "TRITON_DISABLE_LINE_INFO": "1",
        "TRITON_DEFAULT_FP_FUSION": "1",
        "TRITON_ALWAYS_COMPILE": "1",
        "TRITON_CACHE_DIR": scratch_directory(),
    }
    try:
        import triton
    except ImportError as error:
        raise _PACKAGE.cannot_be_imported(error) from None
    module: ModuleType = triton
    return module


def _find_function(triton: Any, module: ModuleType, name: str, where: str) -> Any:
    function = getattr(module, name, None)
    # Decorators for tuning wrap the function.
    while function is not None and not isinstance(function, triton.JITFunction):
        function = getattr(function, "fn", None)
    if function is None:
        raise CompilationError(f"{name!r} is not a function with @triton.jit", where=where)
    return function


def _constants(
    triton: Any, module: ModuleType, function: Any, instantiation: Instantiation, where: str
) -> dict[str, Any]:
    """The values of the constants of `instantiation`, and of parameters that it leaves to their defaults."""
    given = {
        name: _value(triton, module, name, ast.parse(text, mode="eval").body, where)
        for name, text in {**instantiation.constants, **instantiation.configuration}.items()
    }
    types = {parameter.name for parameter in instantiation.parameters}
    defaults = {}
    for parameter in function.params:
        if parameter.has_default and parameter.name not in types | given.keys():
            default = getattr(parameter.default, "value", parameter.default)  # of a constexpr
            if not _spell(triton, default):
                raise CompilationError(
                    f"{instantiation}: the default of {parameter.name!r} is no constant",
                    where=where,
                    remedy=f"give it a type or a value, as in {parameter.name}=1",
                )
            defaults[parameter.name] = default
    # In the order of the function, so that one kernel has one name.
    names = [name for name in function.arg_names if name in given or name in defaults]
    options = [name for name in given if name not in names]
    return {name: {**defaults, **given}[name] for name in (*names, *options)}


def _compile(
    triton: Any,
    function: Any,
    instantiation: Instantiation,
    constants: Mapping[str, Any],
    number: int,
    where: str,
) -> Any:
    from triton.backends.compiler import GPUTarget
    from triton.backends.nvidia.compiler import CUDAOptions
    from triton.compiler import ASTSource

    names = function.arg_names
    signature: dict[str, Any] = dict.fromkeys(names, "constexpr")
    hints = {}
    for each in instantiation.parameters:
        if _element(each.type) not in _TYPES:
            raise CompilationError(
                f"{instantiation}: {each.type!r} is not a type of a parameter",
                where=where,
                remedy=f"the types are {', '.join(_TYPES)}, and with * pointers to them",
            )
        path: tuple[int, ...] = (names.index(each.name),)
        if each.item is None:
            signature[each.name] = each.type
        else:
            path = *path, each.item
            signature[each.name] = (*signature[each.name], each.type) if each.item else (each.type,)
        if _DESCRIPTOR.fullmatch(each.type) and number < _FIRST_WITH_TENSOR_MAPS:
            raise CompilationError(
                f"{instantiation}: kernels for sm_{number} take no tensor maps",
                where=where,
                remedy=f"name architectures from sm_{_FIRST_WITH_TENSOR_MAPS} on in an override for it",
            )
        if each.divisor > 1:
            hints[path] = [["tt.divisibility", each.divisor]]
    possible = {each.name for each in fields(CUDAOptions)} - _FIXED
    if unknown := constants.keys() - possible - {*names}:
        raise CompilationError(
            f"{instantiation.function} has no parameter {min(unknown)!r}, and Triton no such option",
            where=where,
            remedy=f"its parameters: {', '.join(names)}",
        )
    source = ASTSource(
        function, signature, {(names.index(n),): v for n, v in constants.items() if n in names}, hints
    )
    options = {name: value for name, value in constants.items() if name not in names}
    try:
        return triton.compile(source, target=GPUTarget("cuda", number, 32), options=options)
    except Exception as error:
        raise CompilationError(f"{instantiation}: {shorten_output(str(error))}", where=where) from None


def _value(triton: Any, module: ModuleType, name: str, node: ast.expr, where: str) -> Any:
    """The constant that `node` spells: a literal, a dtype, a function of `module`, or a tuple of these."""
    if isinstance(node, ast.Tuple):
        return tuple(_value(triton, module, name, item, where) for item in node.elts)
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
        where=where,
        remedy="quote it if it is a string",
    )


def _spell(triton: Any, value: Any) -> str:
    """`value` as an instantiation spells it; empty if it is no constant."""
    if isinstance(value, tuple):
        texts = [_spell(triton, item) for item in value]
        return f"({', '.join(texts)}{',' * (len(texts) == 1)})" if all(texts) else ""
    if isinstance(value, triton.language.dtype):
        return re.sub(r"^(u?)int", lambda match: match[1] or "i", str(value))
    if isinstance(value, triton.JITFunction):
        return str(value.__name__)
    return repr(value) if value is None or isinstance(value, bool | int | float | str) else ""


def _element(type_: str) -> str:
    """What a pointer or a tensor descriptor leads to; the type itself if it is neither."""
    if descriptor := _DESCRIPTOR.fullmatch(type_):
        return descriptor[1]
    return type_.removeprefix("*k" if type_.startswith("*k") else "*")


def _describe(
    instantiation: Instantiation, names: Sequence[str], texts: Mapping[str, str], metadata: Any
) -> KernelDescription:
    order = {name: number for number, name in enumerate(names)}
    typed = sorted(instantiation.parameters, key=lambda parameter: order[parameter.name])
    parameters = tuple(map(_parameter, typed))
    configuration = {name: texts[name] for name in instantiation.configuration}
    constants = {n: text for n, text in texts.items() if n in order and n not in configuration}
    arrays = (p.type for p in typed if p.type.startswith("*") or _DESCRIPTOR.fullmatch(p.type))
    arguments = ", ".join(
        [*dict.fromkeys(map(_element, arrays)), *(f"{n}={constants[n]}" for n in constants)]
    )
    hidden = list(_hidden(typed))
    count = len(parameters) + len(hidden)
    return KernelDescription(
        f"{instantiation.function}<{arguments}>" if arguments else instantiation.function,
        metadata.name,
        parameters,
        (
            *hidden,
            # Also where this image needs none: that of another architecture may.
            HiddenParameter(count, _ADDRESS, "scratch"),
            HiddenParameter(count + 1, _ADDRESS, "zero"),
        ),
        FixedLaunch(
            block=(metadata.target.warp_size * metadata.num_warps,),
            shared=metadata.shared,
            cluster=(metadata.num_ctas,) if metadata.num_ctas > 1 else (),
            cooperative=metadata.launch_cooperative_grid,
            dependent=metadata.launch_pdl,
            scratch=metadata.global_scratch_size,
            tensor_maps=_tensor_maps(typed, metadata),
        ),
        instantiation.condition or None,
        constants,
        configuration,
        argument_order(names, instantiation.parameters, constants),
    )


def _hidden(typed: Sequence[TypedParameter]) -> Iterator[HiddenParameter]:
    """The shapes and strides behind each tensor descriptor, of 32 and 64 bits."""
    position = 0
    for parameter in typed:
        position += 1
        if descriptor := _DESCRIPTOR.fullmatch(parameter.type):
            axes = range(descriptor[2].count(",") + 1)
            for size, what in ((4, "shape"), (8, "stride")):
                for axis in axes:
                    yield HiddenParameter(position, size, f"{parameter.argument}.{what}[{axis}]")
                    position += 1


def _tensor_maps(typed: Sequence[TypedParameter], metadata: Any) -> dict[str, TensorMap]:
    """The formats of the tensor maps that the host makes, by parameter."""
    names = [parameter.argument for parameter in typed if _DESCRIPTOR.fullmatch(parameter.type)]
    formats = getattr(metadata, "tensordesc_meta", None) or ()
    # Some types have another number on the device.
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
    name, type_, element = typed.argument, typed.type, _TYPES[_element(typed.type)]
    if _DESCRIPTOR.fullmatch(type_):
        return Parameter(name, "CUtensorMap", "struct", 128, 0, element, alignment=64)
    if not type_.startswith("*"):
        return declare_parameter(name, element)
    return declare_parameter(name, f"const {element}*" if type_.startswith("*k") else f"{element}*")
