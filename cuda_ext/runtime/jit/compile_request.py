"""Compilation on demand: a demand and the embedded texts of a module become a record.

It is the same compilation as in a build, with the same checks. The C++ loader makes the same records.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from contextlib import suppress
from importlib import import_module

from cuda_ext.compiler.headers import closure
from cuda_ext.compiler.jobs import run_here
from cuda_ext.compiler.library import compile_unit, link_units
from cuda_ext.compiler.translation_unit import Compiler, SourceKind, TranslationUnit
from cuda_ext.errors import CompilationError
from cuda_ext.formats.architecture import Architecture
from cuda_ext.manifest import Source
from cuda_ext.runtime.jit.entry import Record
from cuda_ext.runtime.jit.request import Demand
from cuda_ext.toolchain.fatbin_packing import pack

__all__ = ["fulfil"]


def fulfil(demand: Demand, texts: Mapping[str, bytes], compiler: Compiler) -> Record:
    """Compile what `demand` asks for; `texts` are the embedded sources and headers.

    Raises :class:`~cuda_ext.errors.CompilationError`, also for texts that are not those of the build.
    """
    # What reads names and types is imported while the first compilation runs.
    with suppress(RuntimeError):  # there may be no thread to be had
        threading.Thread(target=_import_reader, daemon=True).start()
    units = [_unit(source, texts) for source in demand.sources]
    target = _target(demand.architecture, compiler)
    making = link_units(demand.link, units, [target]) if demand.link else compile_unit(units[0], [target])
    packed = pack(run_here(making, compiler), "none", "cubin")
    (image,) = packed.unit.images
    return Record(image.architecture, packed.files[image.file], packed.kernels, packed.symbols)


def _import_reader() -> None:
    with suppress(ImportError):  # whoever needs it says so
        import_module("cuda_ext.formats.dwarf")


def _unit(source: Source, texts: Mapping[str, bytes]) -> TranslationUnit:
    text = texts.get(source.name, b"")
    kind: SourceKind = "ptx" if source.name.endswith(".ptx") else "cu"
    others = {name: content for name, content in texts.items() if name != source.name}
    # Whoever compiles a string may give headers that no directive names.
    for headers in (closure(text, source.options.pre_include, others) if kind == "cu" else {}, others):
        unit = TranslationUnit(source.name, text, kind, headers, source.options, source.instantiate)
        if unit.sha256 == source.sha256:
            return unit
    raise CompilationError(
        f"{source.name}: it, or one of its headers, is not what the module was built from; "
        "reinstall the package that holds it"
    )


def _target(wanted: Architecture, compiler: Compiler) -> Architecture:
    """What to compile for, so that a GPU of architecture `wanted` runs it.

    For a GPU that is newer than the compiler that is a cubin of its generation, or else PTX.
    """
    if compiler.supports(wanted):
        return wanted
    older = [number for number in compiler.capabilities() if number <= wanted.number]
    if not older:
        raise CompilationError(
            f"{compiler.name} {compiler.version} cannot compile for sm_{wanted.number}: it begins with "
            f"sm_{min(compiler.capabilities())}; older GPUs take an older CUDA"
        )
    same_generation = max(older) // 10 == wanted.major
    return Architecture("cubin" if same_generation else "ptx", max(older))
