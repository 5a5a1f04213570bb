"""cuTile Python: functions with ``@ct.kernel``, compiled to Tile IR, and that by tileiras.

An array is a pointer, the length of each axis, and the stride of each axis in elements: the second version of
its calling convention. The extra ``cutile`` pins a minor version.
"""

from __future__ import annotations

import ast
import io
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import Any

from cuda_ext.compiler.architectures import FIRST_SPECIFIC
from cuda_ext.compiler.front_ends.described_images import describe_image
from cuda_ext.compiler.front_ends.instantiation import (
    Instantiation,
    TypedParameter,
    argument_order,
    parse_instantiation,
)
from cuda_ext.compiler.front_ends.kernel_description import KernelDescription, declare_parameter
from cuda_ext.compiler.front_ends.python_functions import find_functions
from cuda_ext.compiler.products import CompiledImage, Signatures
from cuda_ext.compiler.translation_unit import TranslationUnit
from cuda_ext.errors import CompilationError
from cuda_ext.formats.architecture import Architecture
from cuda_ext.manifest import Parameter
from cuda_ext.records import FixedLaunch, HiddenParameter
from cuda_ext.toolchain.front_ends.installed_package import InstalledPackage
from cuda_ext.toolchain.front_ends.source_import import import_source
from cuda_ext.toolchain.tileiras import Tileiras

__all__ = ["CuTile"]

_PACKAGE = InstalledPackage("cuTile", "cuda.tile", "cuda-tile", "1.7", "cutile")
# The first version of Tile IR that is for all GPUs, and so the one that most drivers read.
_PORTABLE = "13.3"


# Their names in cuTile and in C++.
_TYPES = {
    "bool": ("bool_", "bool"),
    "i8": ("int8", "signed char"),
    "i16": ("int16", "short"),
    "i32": ("int32", "int"),
    "i64": ("int64", "long long"),
    "u8": ("uint8", "unsigned char"),
    "u16": ("uint16", "unsigned short"),
    "u32": ("uint32", "unsigned int"),
    "u64": ("uint64", "unsigned long long"),
    "f16": ("float16", "__half"),
    "bf16": ("bfloat16", "__nv_bfloat16"),
    "f32": ("float32", "float"),
    "f64": ("float64", "double"),
    "f8e4m3": ("float8_e4m3fn", "__nv_fp8_e4m3"),
    "f8e5m2": ("float8_e5m2", "__nv_fp8_e5m2"),
}
_EXTENT = 4  # bytes
_OPTIONS = ("num_ctas", "num_worker_warps", "occupancy", "opt_level")


class CuTile:
    """cuTile as a :class:`~cuda_ext.compiler.translation_unit.Compiler`; it is imported to compile only."""

    name = "cutile"

    @cached_property
    def _tileiras(self) -> Tileiras:
        return Tileiras()

    @cached_property
    def version(self) -> str:
        """Its version, ``1.7``."""
        return ".".join(_PACKAGE.version().split(".")[:2])

    def remember(self, version: str) -> None:
        self.__dict__["version"] = version

    def files(self) -> Sequence[Path]:
        """Its modules, and what tileiras consists of."""
        return [*_PACKAGE.files("**/*.py", "_cext*.so", "_cext*.pyd"), *self._tileiras.files()]

    def capabilities(self) -> tuple[int, ...]:
        return self._tileiras.capabilities

    def supports(self, architecture: Architecture) -> bool:
        if architecture.number not in self.capabilities() or architecture.kind == "ltoir":
            return False
        return not architecture.suffix or (
            architecture.suffix == "a" and architecture.number >= FIRST_SPECIFIC
        )

    def search_path(self, unit: TranslationUnit) -> Sequence[Path]:  # noqa: ARG002 - there are no headers
        return ()

    def reflect(self, unit: TranslationUnit, architecture: Architecture) -> Signatures:
        raise NotImplementedError  # images come with signatures

    def compile(
        self, unit: TranslationUnit, architectures: Sequence[Architecture]
    ) -> tuple[CompiledImage, ...]:
        (text,) = unit.instantiate
        instantiation = parse_instantiation(text)
        tile = _import()
        kernel = getattr(import_source(unit), instantiation.function, None)
        if not isinstance(kernel, tile.kernel):
            problem = f"{instantiation.function!r} is not a function with @ct.kernel"
            raise CompilationError(problem, where=unit.name)
        names = next(f.parameters for f in find_functions(unit.source) if f.name == instantiation.function)
        try:
            constants = dict(_constants(instantiation))
            kernel = _configure(kernel, instantiation, {n: c for n, c in constants.items() if n not in names})
            bytecode = _compile(tile, kernel, instantiation, names, constants)
        except Exception as error:
            raise CompilationError(f"{instantiation}: {str(error).strip()}", where=unit.name) from None
        description = _describe(instantiation, names)
        images = []
        for architecture in architectures:
            data = bytecode
            if architecture.kind == "cubin":
                level = kernel._compiler_options.opt_level_for_target(f"sm_{architecture.number}")
                data = self._tileiras.assemble(bytecode, architecture, unit.name, level)
            images.append(describe_image(architecture, data, description, unit))
        return tuple(images)


def _import() -> Any:
    for name in [name for name in os.environ if "CUDA_TILE_" in name]:
        del os.environ[name]  # some of them change the code
    try:
        import cuda.tile
    except ImportError as error:
        raise _PACKAGE.cannot_be_imported(error) from None
    return cuda.tile


def _constants(instantiation: Instantiation) -> Iterator[tuple[str, Any]]:
    for name, text in {**instantiation.constants, **instantiation.configuration}.items():
        try:
            yield name, ast.literal_eval(text)
        except ValueError:
            raise ValueError(
                f"{name}={text}: constants are numbers, True, False, and tuples of these"
            ) from None


def _configure(kernel: Any, instantiation: Instantiation, options: Mapping[str, Any]) -> Any:
    """`kernel` with these options of its decorator."""
    if unknown := options.keys() - {*_OPTIONS}:
        raise ValueError(
            f"{instantiation.function} has no parameter {min(unknown)!r}, and cuTile no such option; its "
            f"options are {', '.join(_OPTIONS)}"
        )
    return kernel.replace_hints(**options) if options else kernel


def _compile(
    tile: Any,
    kernel: Any,
    instantiation: Instantiation,
    names: Sequence[str],
    constants: Mapping[str, Any],
) -> bytes:
    """Compile `kernel`, whose parameters have these `names`, to Tile IR of the oldest version that can be."""
    typed = {name: [p for p in instantiation.parameters if p.name == name] for name in names}
    signature = tile.compilation.KernelSignature(
        [constants[name] if name in constants else _constraint(tile, typed[name]) for name in names],
        tile.compilation.CallingConvention.cutile_python_v2(),
        instantiation.function,
    )
    for version in (_PORTABLE, None):
        bytecode = io.BytesIO()
        with suppress(*([tile.TileUnsupportedFeatureError] if version else [])):
            tile.compilation.export_kernel(
                kernel, [signature], bytecode, output_format="tileir_bytecode", bytecode_version=version
            )
            break
    return bytecode.getvalue()


def _constraint(tile: Any, items: Sequence[TypedParameter]) -> Any:
    """A parameter for cuTile: a scalar, an array, or a tuple of these."""
    if not items:
        raise ValueError("each parameter takes a type or a value, also one that has a default")
    if items[0].item is not None:
        return tuple(_constraint(tile, [item._replace(item=None)]) for item in items)
    (each,) = items
    if each.type not in _TYPES:
        raise ValueError(f"{each.type!r} is not a type of a parameter; the types are {', '.join(_TYPES)}")
    dtype = getattr(tile, _TYPES[each.type][0])
    if not each.axes:
        if each.divisor > 1:
            raise ValueError(f"{each.name}: {each.spelled_type}: cuTile takes divisors of arrays alone")
        return tile.compilation.ScalarConstraint(dtype)
    return tile.compilation.ArrayConstraint(
        dtype,
        len(each.axes),
        index_dtype=tile.int32,
        stride_lower_bound_incl=0,
        alias_groups=(),  # cuTile itself takes no arrays that overlap
        may_alias_internally=True,
        stride_constant=[axis.stride for axis in each.axes],
        shape_constant=[axis.length for axis in each.axes],
        stride_divisible_by=[1 if axis.stride is not None else _elements(each) for axis in each.axes],
        shape_divisible_by=[axis.divisor for axis in each.axes],
        base_addr_divisible_by=each.divisor,
    )


def _elements(array: TypedParameter) -> int:
    """The number of elements that divides the strides of `array`."""
    return max(1, array.divisor // _parameter(array._replace(axes=())).size)


def _describe(instantiation: Instantiation, names: Sequence[str]) -> KernelDescription:
    ordered = sorted(instantiation.parameters, key=lambda parameter: names.index(parameter.name))
    hidden: list[HiddenParameter] = []
    for number, each in enumerate(ordered):
        for part in ("shape", "stride"):
            for axis in range(len(each.axes)):
                position = number + len(hidden) + 1
                hidden.append(HiddenParameter(position, _EXTENT, f"{each.argument}.{part}[{axis}]"))
    constants = {name: instantiation.constants[name] for name in names if name in instantiation.constants}
    types = dict.fromkeys(each.type for each in ordered if each.axes)
    arguments = ", ".join([*types, *(f"{name}={value}" for name, value in constants.items())])
    return KernelDescription(
        f"{instantiation.function}<{arguments}>" if arguments else instantiation.function,
        instantiation.function,
        tuple(map(_parameter, ordered)),
        tuple(hidden),
        FixedLaunch(block=(1, 1, 1)),
        instantiation.combine([term for each in ordered for term in each.terms(_elements(each))]) or None,
        constants,
        instantiation.configuration,
        argument_order(names, ordered, constants),
    )


def _parameter(typed: TypedParameter) -> Parameter:
    spelled = _TYPES[typed.type][1]
    return declare_parameter(typed.argument, f"{spelled}*" if typed.axes else spelled)
