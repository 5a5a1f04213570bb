"""cuTile Python: compile functions with ``@ct.kernel`` to Tile IR, and assemble that with tileiras.

Kernels use version 2 of cuTile's calling convention: an array becomes a pointer, the length of each axis, and
the stride of each axis in elements. The extra ``cutile`` pins a minor version of cuTile.
"""

from __future__ import annotations

import ast
import io
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext, suppress
from functools import cached_property
from pathlib import Path
from typing import Any

from cuda_ext.compiler.architectures import FIRST_SPECIFIC
from cuda_ext.compiler.front_ends.described_images import describe_image
from cuda_ext.compiler.front_ends.instantiation import (
    Instantiation,
    ParameterType,
    TypedParameter,
    parse_instantiation,
)
from cuda_ext.compiler.front_ends.kernel_description import (
    DTYPES,
    KernelDescription,
    declare_parameter,
    describe_function,
)
from cuda_ext.compiler.front_ends.python_functions import find_functions
from cuda_ext.compiler.products import CompiledImage
from cuda_ext.compiler.translation_unit import TranslationUnit
from cuda_ext.errors import CompilationError
from cuda_ext.facts.architecture import Architecture
from cuda_ext.facts.kernels import Parameter
from cuda_ext.facts.launches import FixedLaunch, HiddenParameter
from cuda_ext.toolchain.front_ends.contained_code import contained
from cuda_ext.toolchain.front_ends.installed_package import InstalledPackage
from cuda_ext.toolchain.front_ends.source_import import files_read, import_source
from cuda_ext.toolchain.front_ends.target_gpu import target_gpu
from cuda_ext.toolchain.tileiras import Tileiras

_PACKAGE = InstalledPackage("cuTile", "cuda.tile", "cuda-tile", ("1.7",), "cutile")
# The first version of Tile IR that supports all GPUs. More drivers read it than any later version.
_PORTABLE = "13.3"

_TYPES = {dtype.cutile: dtype for dtype in DTYPES}
_EXTENT = 4  # bytes
_OPTIONS = ("num_ctas", "num_worker_warps", "occupancy", "opt_level")


class CuTile:
    """cuTile as a :class:`~cuda_ext.compiler.translation_unit.Compiler`; it is imported only to compile."""

    name = "cutile"

    @cached_property
    def _tileiras(self) -> Tileiras:
        return Tileiras()

    @cached_property
    def version(self) -> str:
        """The version of cuTile, such as ``1.7``."""
        return ".".join(_PACKAGE.version().split(".")[:2])

    def files(self) -> Sequence[Path]:
        """Return the modules of cuTile and the files of tileiras."""
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

    def compile(
        self, unit: TranslationUnit, architectures: Sequence[Architecture]
    ) -> tuple[CompiledImage, ...]:
        (text,) = unit.instantiate
        tile = _import()
        is_portable = architectures[0].kind == "tileir"
        number = None if is_portable else architectures[0].number
        with target_gpu(number):
            module = import_source(unit)
        with target_gpu(number), contained(text, unit.name):
            instantiation = parse_instantiation(text)
            kernel = getattr(module, instantiation.function, None)
            if not isinstance(kernel, tile.kernel):
                raise CompilationError(f"{instantiation.function!r} is not a function with @ct.kernel")
            functions = {function.name: function for function in find_functions(unit.source)}
            names = functions[instantiation.function].parameters
            instantiation = instantiation.in_order(names)
            constants = dict(_constants(instantiation))
            kernel = _configure(kernel, instantiation, {n: c for n, c in constants.items() if n not in names})
            bytecode = _compile(tile, kernel, instantiation, names, constants)
            level = kernel._compiler_options.opt_level_for_target
        description = _describe(instantiation, names)
        return tuple(
            describe_image(
                each,
                self._tileiras.make_image(bytecode, each, unit.name, level(f"sm_{each.number}")),
                description,
                unit,
                files_read(unit),
            )
            for each in architectures
        )


def _import() -> Any:
    for name in [name for name in os.environ if "CUDA_TILE_" in name]:
        del os.environ[name]  # some of these variables change the code
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
    """Return `kernel` with these `options` of its decorator replaced."""
    if unknown := options.keys() - {*_OPTIONS}:
        raise ValueError(
            f"{instantiation.function} has no parameter {min(unknown)!r}, and cuTile has no such option; its "
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
    """Compile `kernel` to portable Tile IR, or to cuTile's default version if it needs later features.

    `names` are the names of its parameters.
    """
    types = instantiation.types
    if missing := [name for name in names if name not in types and name not in constants]:
        raise ValueError(f"{missing[0]!r}: each parameter needs a type or a value, even with a default")
    signature = tile.compilation.KernelSignature(
        [constants[name] if name in constants else _constraint(tile, types[name]) for name in names],
        tile.compilation.CallingConvention.cutile_python_v2(),
        instantiation.function,
    )
    for version in (_PORTABLE, None):
        bytecode = io.BytesIO()
        with suppress(tile.TileUnsupportedFeatureError) if version else nullcontext():
            tile.compilation.export_kernel(
                kernel, [signature], bytecode, output_format="tileir_bytecode", bytecode_version=version
            )
            break
    return bytecode.getvalue()


def _constraint(tile: Any, each: ParameterType) -> Any:
    """Describe a parameter to cuTile: a scalar, an array, or a tuple of these."""
    if not isinstance(each, TypedParameter):
        return tuple(_constraint(tile, item) for item in each)
    if each.type not in _TYPES:
        raise ValueError(f"{each.type!r} is not a type of a parameter; the types are {', '.join(_TYPES)}")
    name = _TYPES[each.type].torch
    dtype = getattr(tile, "bool_" if name == "bool" else name)
    if not each.axes:
        if each.divisor > 1:
            raise ValueError(f"{each.name}: {each.spelled_type}: cuTile supports divisors only for arrays")
        return tile.compilation.ScalarConstraint(dtype)
    return tile.compilation.ArrayConstraint(
        dtype,
        len(each.axes),
        index_dtype=tile.int32,
        stride_lower_bound_incl=0,
        alias_groups=(),  # cuTile itself accepts no arrays that overlap
        may_alias_internally=True,
        stride_constant=[axis.stride for axis in each.axes],
        shape_constant=[axis.length for axis in each.axes],
        stride_divisible_by=[1 if axis.stride is not None else _elements(each) for axis in each.axes],
        shape_divisible_by=[axis.divisor for axis in each.axes],
        base_addr_divisible_by=each.divisor,
    )


def _elements(array: TypedParameter) -> int:
    """Return the divisor of the strides of `array`, in elements."""
    return max(1, array.divisor // _parameter(array._replace(axes=())).size)


def _describe(instantiation: Instantiation, names: Sequence[str]) -> KernelDescription:
    typed = instantiation.parameters
    hidden: list[HiddenParameter] = []
    for number, each in enumerate(typed):
        for part in ("shape", "stride"):
            for axis in range(len(each.axes)):
                position = number + len(hidden) + 1
                hidden.append(HiddenParameter(position, _EXTENT, f"{each.argument}.{part}[{axis}]"))
    values = {**instantiation.constants, **instantiation.configuration}
    kernel = describe_function(instantiation, names, (e.type for e in typed if e.axes), values)
    return KernelDescription(
        kernel._replace(parameters=tuple(map(_parameter, typed)), hidden=tuple(hidden)),
        FixedLaunch(block=(1, 1, 1)),
        instantiation.combine([term for each in typed for term in each.terms(_elements(each))]),
    )


def _parameter(typed: TypedParameter) -> Parameter:
    spelled = _TYPES[typed.type].cpp
    return declare_parameter(typed.argument, f"{spelled}*" if typed.axes else spelled)
