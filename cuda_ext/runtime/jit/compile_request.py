"""Compile a request from the embedded sources of a module, with the same functions and checks as a build."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from cuda_ext.compiler.architectures import targets_of
from cuda_ext.compiler.headers import closure
from cuda_ext.compiler.module_plan import LibraryPlan
from cuda_ext.compiler.translation_unit import Compiler, SourceKind, TranslationUnit
from cuda_ext.errors import CompilationError
from cuda_ext.facts.architecture import Architecture
from cuda_ext.facts.sources import Source
from cuda_ext.runtime.jit.request import Entry, Request
from cuda_ext.toolchain.compile_library import compile_library


def compile_request(
    request: Request, texts: Mapping[str, bytes], compiler: Compiler, kind: SourceKind = "cu"
) -> Entry:
    """Compile `request`; `texts` are the embedded sources and headers by name.

    `kind` is that of a Python source.

    Raises :class:`~cuda_ext.errors.CompilationError`, also if `texts` differ from those of the build.
    """
    restore = partial(_restore_python, kind) if request.is_python else _restore_unit
    units = tuple(restore(source, texts) for source in request.sources)
    target = (_target_of_python if request.is_python else _target)(request.architecture, compiler)
    link = request.link is not None
    plan = LibraryPlan(request.link or "", units if link else units[:1], (target,), "none", "cubin", link)
    packed = compile_library(plan, compiler)
    (image,) = packed.unit.images
    content = packed.files[image.file]
    conditions = next(iter(packed.conditions.values()), ())
    found = packed.kernels, packed.symbols, packed.structures
    return Entry(image.architecture, content, *found, image.launches, conditions)


def _restore_python(kind: SourceKind, source: Source, texts: Mapping[str, bytes]) -> TranslationUnit:
    others = {name: text for name, text in texts.items() if name.endswith(".py") and name != source.name}
    return TranslationUnit(source.name, texts[source.name], kind, others, source.options, source.instantiate)


def _restore_unit(source: Source, texts: Mapping[str, bytes]) -> TranslationUnit:
    text = texts.get(source.name, b"")
    kind: SourceKind = "ptx" if source.name.endswith(".ptx") else "cu"
    others = {name: content for name, content in texts.items() if name != source.name}
    # The `headers` argument of cuda_ext.compile may have headers that no #include names.
    for headers in (closure(text, source.options, others) if kind == "cu" else {}, others):
        unit = TranslationUnit(source.name, text, kind, headers, source.options, source.instantiate)
        if unit.sha256 == source.sha256:
            return unit
    raise CompilationError(
        "it, or one of its headers, is not what the module was built from",
        where=source.name,
        remedy="reinstall the package that holds it",
    )


def _target_of_python(wanted: Architecture, compiler: Compiler) -> Architecture:
    """Return `wanted`, with the suffix ``a`` where front-ends compile for exactly one GPU."""
    (target,) = targets_of("triton", [wanted])
    if not compiler.supports(target):
        known = ", ".join(f"sm_{number}" for number in compiler.capabilities())
        raise CompilationError(
            f"{compiler.name} {compiler.version} cannot compile for {wanted}",
            remedy=f"it compiles for {known}",
        )
    return target


def _target(wanted: Architecture, compiler: Compiler) -> Architecture:
    """Choose the architecture to compile for, so that a GPU of architecture `wanted` can load the image.

    If the compiler does not know `wanted`, this is an older cubin of the same generation, or else PTX.
    """
    if compiler.supports(wanted):
        return wanted
    older = [number for number in compiler.capabilities() if number <= wanted.number]
    if not older:
        raise CompilationError(
            f"{compiler.name} {compiler.version} cannot compile for sm_{wanted.number}: it begins with "
            f"sm_{min(compiler.capabilities())}",
            remedy="older GPUs require an older CUDA",
        )
    same_generation = max(older) // 10 == wanted.major
    return Architecture("cubin" if same_generation else "ptx", max(older))
