"""Triton: functions with ``@triton.jit``, compiled without a driver.

The interface that is used here is not documented, so the extra ``triton`` pins a minor version.
"""

from __future__ import annotations

import ast
import os
import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import fields, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cuda_ext.compiler.front_ends.described_kernels import KernelDescription, describe_images
from cuda_ext.compiler.front_ends.instantiation import Instantiation, TypedParameter, parse_instantiation
from cuda_ext.compiler.products import CompiledImage, Signatures, Trace
from cuda_ext.compiler.signatures.reflection import read_image, reflect_image
from cuda_ext.compiler.translation_unit import TranslationUnit
from cuda_ext.errors import CompilationError, ToolchainError
from cuda_ext.formats.architecture import Architecture
from cuda_ext.manifest import Parameter, ParameterKind
from cuda_ext.records import FixedLaunch, HiddenParameter
from cuda_ext.toolchain import process
from cuda_ext.toolchain.front_ends.source_import import import_source, scratch_directory

if TYPE_CHECKING:
    from types import ModuleType

__all__ = ["Triton"]

_SUPPORTED = "3.9"
_INSTALL = 'install "cuda-ext[triton]"'
# The C++ types of Triton's, and how the manifest sorts them.
_TYPES: dict[str, tuple[str, ParameterKind, int]] = {
    "i1": ("bool", "bool", 1),
    "i8": ("signed char", "integer", 1),
    "i16": ("short", "integer", 2),
    "i32": ("int", "integer", 4),
    "i64": ("long long", "integer", 8),
    "u8": ("unsigned char", "unsigned", 1),
    "u16": ("unsigned short", "unsigned", 2),
    "u32": ("unsigned int", "unsigned", 4),
    "u64": ("unsigned long long", "unsigned", 8),
    "fp16": ("__half", "struct", 2),
    "bf16": ("__nv_bfloat16", "struct", 2),
    "fp32": ("float", "float", 4),
    "fp64": ("double", "float", 8),
    "fp8e4nv": ("__nv_fp8_e4m3", "struct", 1),
    "fp8e5": ("__nv_fp8_e5m2", "struct", 1),
}
# Of the parameters that Triton adds: scratch memory, global and for profiling.
_ADDRESS = 8


class Triton:
    """Triton as a :class:`~cuda_ext.compiler.translation_unit.Compiler`; it is imported to compile only."""

    name = "triton"

    @cached_property
    def _directory(self) -> Path:
        from importlib.util import find_spec

        spec = find_spec("triton")
        if spec is None or not spec.submodule_search_locations:
            raise ToolchainError("Triton is not installed", remedy=_INSTALL)
        return Path(spec.submodule_search_locations[0])

    @cached_property
    def version(self) -> str:
        """Its version, ``3.9.0``."""
        from importlib.metadata import version

        _ = self._directory
        installed = version("triton")
        if not installed.startswith(f"{_SUPPORTED}."):
            raise ToolchainError(
                f"Triton {installed} is installed, and {_SUPPORTED} is supported", remedy=_INSTALL
            )
        return installed

    def remember(self, version: str) -> None:
        self.__dict__["version"] = version

    def files(self) -> Sequence[Path]:
        return [self._directory / "_C/libtriton.so", self._directory / "compiler/compiler.py"]

    def capabilities(self) -> tuple[int, ...]:
        """What the assemblers of Triton support, from its oldest GPU on."""
        found: set[int] = set()
        for name in ("ptxas", "ptxas-blackwell"):
            path = self._directory / "backends/nvidia/bin" / name
            if path.exists():
                listed = process.run([str(path), "--help"], environ=os.environ).output
                found.update(int(number) for number in re.findall(r"'sm_(\d+)'", listed))
        return tuple(sorted(number for number in found if number >= 75))

    def supports(self, architecture: Architecture) -> bool:
        if architecture.number not in self.capabilities() or architecture.suffix == "f":
            return False
        # Code from 9.0 on is for exactly one capability.
        return architecture.number < 90 or architecture.kind == "cubin"

    def search_path(self, unit: TranslationUnit) -> Sequence[Path]:  # noqa: ARG002 - there are no headers
        return ()

    def reflect(self, unit: TranslationUnit, architecture: Architecture) -> Signatures:
        raise NotImplementedError  # images come with signatures

    def compile(
        self, unit: TranslationUnit, architectures: Sequence[Architecture]
    ) -> tuple[CompiledImage, ...]:
        (text,) = unit.instantiate
        instantiation = parse_instantiation(text)
        triton = self._import()
        function = _find_function(triton, import_source(unit), instantiation.function, unit.name)
        kernel = _compile(triton, function, instantiation, architectures[0].number, unit.name)
        images, signatures = [], []
        description = _describe(instantiation, function.arg_names, kernel.metadata)
        for architecture in architectures:
            data = kernel.asm["cubin"] if architecture.kind == "cubin" else kernel.asm["ptx"].encode()
            image = read_image(architecture, data)
            own = reflect_image(architecture.kind, data)
            (image,), own = describe_images([image], own, [description], unit.name)
            images.append(image)
            signatures.append(own)
        trace = Trace(reads=frozenset(unit.headers))
        return tuple(replace(i, signatures=s, trace=trace) for i, s in zip(images, signatures, strict=True))

    def _import(self) -> ModuleType:
        # Line information has the paths of files; the default of fusion depends on the version.
        os.environ |= {
            "TRITON_DISABLE_LINE_INFO": "1",
            "TRITON_DEFAULT_FP_FUSION": "1",
            "TRITON_ALWAYS_COMPILE": "1",
        }
        os.environ.setdefault("TRITON_CACHE_DIR", scratch_directory())
        try:
            import triton
        except ImportError as error:
            raise ToolchainError(f"Triton cannot be imported: {error}", remedy=_INSTALL) from None
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


def _compile(triton: Any, function: Any, instantiation: Instantiation, number: int, where: str) -> Any:
    from triton.backends.compiler import GPUTarget
    from triton.backends.nvidia.compiler import CUDAOptions
    from triton.compiler import ASTSource

    names = function.arg_names
    for each in instantiation.parameters:
        if _element(each.type) not in _TYPES:
            raise CompilationError(
                f"{instantiation}: {each.type!r} is not a type of a parameter",
                where=where,
                remedy=f"the types are {', '.join(_TYPES)}, and with * pointers to them",
            )
    known = {each.name for each in fields(CUDAOptions)}
    constants = {name: _value(triton, name, text, where) for name, text in instantiation.constants.items()}
    if unknown := constants.keys() - known - {*names}:
        raise CompilationError(
            f"{instantiation.function} has no parameter {min(unknown)!r}, and Triton no such option",
            where=where,
            remedy=f"its parameters: {', '.join(names)}",
        )
    signature = {**dict.fromkeys(names, "constexpr"), **{p.name: p.type for p in instantiation.parameters}}
    hints = {
        (names.index(p.name),): [["tt.divisibility", p.divisor]]
        for p in instantiation.parameters
        if p.divisor > 1
    }
    source = ASTSource(
        function, signature, {(names.index(n),): v for n, v in constants.items() if n in names}, hints
    )
    options = {name: value for name, value in constants.items() if name not in names}
    try:
        return triton.compile(source, target=GPUTarget("cuda", number, 32), options=options)
    except Exception as error:
        raise CompilationError(f"{instantiation}: {error}", where=where) from None


def _value(triton: Any, name: str, text: str, where: str) -> Any:
    with suppress(ValueError):
        return ast.literal_eval(text)
    names = {"fp16": "float16", "bf16": "bfloat16", "fp32": "float32", "fp64": "float64"}
    spelled = names.get(text, re.sub(r"^([iu])(\d)", r"int\2" if text[0] == "i" else r"uint\2", text))
    dtype = getattr(triton.language, spelled, None)
    if not isinstance(dtype, triton.language.dtype):
        raise CompilationError(
            f"{name}={text} is neither a value nor a dtype", where=where, remedy="quote it if it is a string"
        )
    return dtype


def _element(type_: str) -> str:
    """What a pointer points to; the type itself if it is none."""
    return type_.removeprefix("*k" if type_.startswith("*k") else "*")


def _describe(instantiation: Instantiation, names: Sequence[str], metadata: Any) -> KernelDescription:
    typed = {parameter.name: parameter for parameter in instantiation.parameters}
    parameters = tuple(_parameter(typed[name]) for name in names if name in typed)
    constants = {name: value for name, value in instantiation.constants.items() if name in names}
    types = dict.fromkeys(_element(p.type) for p in typed.values() if p.type.startswith("*"))
    arguments = ", ".join([*types, *(f"{name}={value}" for name, value in constants.items())])
    count = len(parameters)
    return KernelDescription(
        f"{instantiation.function}<{arguments}>" if arguments else instantiation.function,
        metadata.name,
        parameters,
        (
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
        ),
        instantiation.condition or None,
        constants,
    )


def _parameter(typed: TypedParameter) -> Parameter:
    name, type_ = typed.name, typed.type
    if not type_.startswith("*"):
        spelled, kind, size = _TYPES[type_]
        return Parameter(name, spelled, kind, size, 0)
    const = type_.startswith("*k")
    element = _TYPES[_element(type_)][0]
    return Parameter(name, f"const {element}*" if const else f"{element}*", "pointer", 8, 0, element, const)
