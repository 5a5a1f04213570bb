"""Triton: compile functions with ``@triton.jit`` without a driver.

This module uses an undocumented interface of Triton, so the extra ``triton`` bounds its versions.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import fields
from functools import cache, cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cuda_ext.compiler.architectures import FIRST_SPECIFIC
from cuda_ext.compiler.front_ends.described_images import describe_image
from cuda_ext.compiler.front_ends.instantiation import Instantiation, parse_instantiation
from cuda_ext.compiler.products import CompiledImage
from cuda_ext.compiler.spelled_settings import spell_override
from cuda_ext.compiler.translation_unit import TranslationUnit
from cuda_ext.errors import CompilationError
from cuda_ext.facts.architecture import Architecture
from cuda_ext.toolchain import process
from cuda_ext.toolchain.front_ends.contained_code import contained
from cuda_ext.toolchain.front_ends.installed_package import InstalledPackage
from cuda_ext.toolchain.front_ends.source_import import files_read, import_source, scratch_directory
from cuda_ext.toolchain.front_ends.target_gpu import target_gpu
from cuda_ext.toolchain.front_ends.triton_kernels import (
    DESCRIPTOR,
    describe_kernel,
    hints_of,
    read_constants,
    signature_of,
    spell_constant,
)
from cuda_ext.toolchain.front_ends.triton_versions import VERSIONS

if TYPE_CHECKING:
    from types import ModuleType

_PACKAGE = InstalledPackage("Triton", "triton", "triton", tuple(VERSIONS), "triton")
# The files that determine the generated code.
_FILES = (
    *("_C/libtriton.*", "compiler/**/*.py", "language/**/*.py", "runtime/jit.py"),
    *("backends/nvidia/*.py", "backends/nvidia/bin/ptxas*", "backends/nvidia/lib/*.bc"),
)
# Below this capability, the parts of a tensor descriptor are passed one by one.
_FIRST_WITH_TENSOR_MAPS = 90
# From this capability on, Triton uses the newer of its two assemblers, if it has two.
_FIRST_NEWER = 100
# The options that the target and the sources determine.
_FIXED = {
    "arch",
    "backend_name",
    "cluster_dims",
    "extern_libs",
    "instrumentation_mode",
    "ir_override",
    "warp_size",
}
# Environment variables that change Triton, its LLVM or its ptxas.
_VARIABLE = re.compile(r"(TRITON|MLIR|LLVM|NVPTX|PTXAS|DISABLE_(LLVM|MMA|PTXAS)|ALLOW_LHS|USE_\w+_LOC)_?")


class Triton:
    """Triton as a :class:`~cuda_ext.compiler.translation_unit.Compiler`; it is imported only to compile."""

    name = "triton"

    @cached_property
    def version(self) -> str:
        """Its version, ``3.9.0``."""
        return _PACKAGE.version()

    def files(self) -> Sequence[Path]:
        return _PACKAGE.files(*_FILES)

    def capabilities(self) -> tuple[int, ...]:
        """Return the compute capabilities that Triton's assemblers support, from its oldest GPU on."""
        assemblers = {path.name: path for path in _PACKAGE.files("backends/nvidia/bin/ptxas*")}
        newer = assemblers.pop("ptxas-blackwell", assemblers["ptxas"])
        listed = [number for number in _listed(assemblers["ptxas"]) if number < _FIRST_NEWER]
        listed += (number for number in _listed(newer) if number >= _FIRST_NEWER)
        return tuple(sorted(number for number in listed if number >= 75))

    def supports(self, architecture: Architecture) -> bool:
        if architecture.number not in self.capabilities() or architecture.suffix == "f":
            return False
        return architecture.number < FIRST_SPECIFIC or architecture.kind == "cubin"

    def search_path(self, unit: TranslationUnit) -> Sequence[Path]:  # noqa: ARG002 - there are no headers
        return ()

    def compile(
        self, unit: TranslationUnit, architectures: Sequence[Architecture]
    ) -> tuple[CompiledImage, ...]:
        (text,) = unit.instantiate
        number = architectures[0].number
        with _own_variables(), target_gpu(number):
            triton = _import()
            module = import_source(unit)
            with contained(text, unit.name, lambda error: _describe(error, unit)):
                instantiation = parse_instantiation(text)
                function = _find_function(triton, module, instantiation.function)
                instantiation = instantiation.in_order(function.arg_names)
                constants = read_constants(module, function, instantiation)
                kernel = _compile(triton, function, instantiation, constants, number)
                texts = {name: spell_constant(value) for name, value in constants.items()}
                description = describe_kernel(instantiation, function, texts, kernel.metadata)
        images = {"cubin": kernel.asm["cubin"], "ptx": kernel.asm["ptx"].encode()}
        reads = files_read(unit)
        return tuple(
            describe_image(each, images[each.kind], description, unit, reads) for each in architectures
        )


def _listed(assembler: Path) -> set[int]:
    """Return the compute capabilities that `assembler` supports."""
    listed = process.run([str(assembler), "--help"], environ=os.environ).output
    return {int(number) for number in re.findall(r"'sm_(\d+)'", listed)}


def _describe(error: Any, unit: TranslationUnit) -> str:
    """Return Triton's message, with the place in a file if the error has a place in a function."""
    while hasattr(error.__cause__, "src"):  # the mistake is in a function that this function calls
        error = error.__cause__
    said: str = str(error).strip()
    if not getattr(error, "src", None) or not hasattr(error.node, "lineno"):
        return said
    node = error.node
    for name, content in {unit.name: unit.source, **unit.headers}.items():
        before, found, _ = content.decode(errors="replace").partition(error.src)
        if found:
            place = f"at {name}:{before.count(chr(10)) + node.lineno}:{node.col_offset + 1}:"
            return said.replace(f"at {node.lineno}:{node.col_offset}:", place, 1)
    return said


@contextmanager
def _own_variables() -> Iterator[None]:
    """Take variables that change the code out of the environment within this block.

    Compilation on demand runs in a process that may use Triton itself.
    """
    before = {name: os.environ.pop(name) for name in filter(_VARIABLE.match, [*os.environ])}
    # Line information contains the paths of files. The default of fusion depends on the version.
    own = {
        "TRITON_DISABLE_LINE_INFO": "1",
        "TRITON_DEFAULT_FP_FUSION": "1",
        "TRITON_ALWAYS_COMPILE": "1",
        "TRITON_CACHE_DIR": _cache_directory(),
    }
    os.environ |= own
    try:
        yield
    finally:
        for name in own:
            os.environ.pop(name, None)
        os.environ |= before


_cache_directory = cache(scratch_directory)


def _import() -> ModuleType:
    try:
        import triton
    except ImportError as error:
        raise _PACKAGE.cannot_be_imported(error) from None
    module: ModuleType = triton
    return module


def _find_function(triton: Any, module: ModuleType, name: str) -> Any:
    function = getattr(module, name, None)
    # Decorators for tuning wrap the function.
    while function is not None and not isinstance(function, triton.JITFunction):
        function = getattr(function, "fn", None)
    if function is None:
        raise CompilationError(f"{name!r} is not a function with @triton.jit")
    return function


def _compile(
    triton: Any, function: Any, instantiation: Instantiation, constants: Mapping[str, Any], number: int
) -> Any:
    from triton.backends.compiler import GPUTarget
    from triton.backends.nvidia.compiler import CUDAOptions
    from triton.compiler import ASTSource

    names = function.arg_names
    possible = {each.name for each in fields(CUDAOptions)} - _FIXED
    if unknown := constants.keys() - possible - {*names}:
        raise CompilationError(
            f"{instantiation.function} has no parameter {min(unknown)!r}, and Triton has no such option",
            remedy=f"its parameters: {', '.join(names)}",
        )
    signature = signature_of(instantiation, names)
    if number < _FIRST_WITH_TENSOR_MAPS and any(
        DESCRIPTOR.fullmatch(p.type) for p in instantiation.parameters
    ):
        raise CompilationError(
            f"kernels for sm_{number} take no tensor maps",
            remedy=f"name architectures from sm_{_FIRST_WITH_TENSOR_MAPS} on in {spell_override()} for it",
        )
    values = {(names.index(name),): value for name, value in constants.items() if name in names}
    source = ASTSource(function, signature, values, hints_of(instantiation, names))
    # A default of the assembler's options is a variable's, as it was when Triton was imported.
    options = {"ptx_options": None} | {name: value for name, value in constants.items() if name not in names}
    return triton.compile(source, target=GPUTarget("cuda", number, 32), options=options)
