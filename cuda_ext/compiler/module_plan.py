"""One module from its translation units: images, fatbins, and the manifest that describes them.

Everything is done in memory; nothing is read from or written to the project. What was asked for is what
comes out: every requested architecture and instantiation is checked in the finished fatbins.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from cuda_ext.compiler.jobs import Steps, run_here
from cuda_ext.compiler.library import Library, compile_object, compile_unit, gather, link_units
from cuda_ext.compiler.translation_unit import Compiler, TranslationUnit
from cuda_ext.errors import BuildError
from cuda_ext.formats.architecture import Architecture
from cuda_ext.manifest import SCHEMA, Compression, Manifest, Unit
from cuda_ext.toolchain.fatbin_packing import Emit, PackedLibrary, pack

__all__ = ["CompiledModule", "ModulePlan", "UnitPlan", "assemble", "compile_module", "libraries", "objects"]


@dataclass(frozen=True, slots=True)
class UnitPlan:
    """A translation unit and the architectures that it is compiled for.

    ``part`` counts the libraries that one source with split instantiations becomes.
    """

    unit: TranslationUnit
    architectures: tuple[Architecture, ...]
    part: int | None = None


@dataclass(frozen=True, slots=True)
class ModulePlan:
    """All that decides a module's bytes, besides the compiler.

    ``emit`` says how far to go: one fatbin per unit, or the single images as files. With ``link`` all
    units, compiled as relocatable device code, become one library. With ``embed`` the sources and
    headers of the units travel with the module, and so do ``headers``, by their canonical names.
    """

    name: str
    units: tuple[UnitPlan, ...]
    compress: Compression = "size"
    emit: Emit = "fatbin"
    link: bool = False
    embed: bool = True
    headers: Mapping[str, bytes] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class CompiledModule:
    """The manifest and the files that it names."""

    manifest: Manifest
    files: dict[str, bytes]


def compile_module(
    plan: ModulePlan, compiler: Compiler, report: Callable[[str], None] = lambda _: None
) -> CompiledModule:
    """Compile every unit of `plan` for its architectures, in this process.

    `report` receives the compiler's warnings. Raises :class:`~cuda_ext.errors.BuildError` with one message
    that holds all failing units.
    """
    packed = run_here(gather(libraries(plan)), compiler)
    for log in dict.fromkeys(log for library in packed for log in library.log):
        report(log)
    return assemble(plan, packed, compiler.name, compiler.version)


def libraries(plan: ModulePlan) -> list[Steps[PackedLibrary]]:
    """The computations that make the libraries of `plan`, in their order."""
    if plan.link:
        units = [unit_plan.unit for unit_plan in plan.units]
        architectures = sorted({a for unit_plan in plan.units for a in unit_plan.architectures})
        return [_packed(link_units(plan.name, units, architectures), plan)]
    return [_packed(compile_unit(p.unit, p.architectures, p.part), plan) for p in plan.units]


def objects(plan: ModulePlan) -> list[Steps[PackedLibrary]]:
    """For each unit of `plan`, whose units are linked, what is done before; it makes a library of nothing."""
    units = [unit_plan.unit for unit_plan in plan.units]
    return [_unlinked(p.unit, units, p.architectures) for p in plan.units]


def _unlinked(
    unit: TranslationUnit, units: Sequence[TranslationUnit], architectures: Sequence[Architecture]
) -> Steps[PackedLibrary]:
    log = yield from compile_object(unit, units, architectures)
    return PackedLibrary(Unit((unit.described,), ()), (), (), {}, log)


def _packed(making: Steps[Library], plan: ModulePlan) -> Steps[PackedLibrary]:
    return pack((yield from making), plan.compress, plan.emit)


def assemble(
    plan: ModulePlan, packed: Sequence[PackedLibrary], compiler: str, version: str
) -> CompiledModule:
    """The module of the libraries of `plan`, made by that compiler. Raises :class:`BuildError`."""
    _check_unique(packed)
    embedded = _embedded(plan)
    manifest = Manifest(
        schema=SCHEMA,
        module=plan.name,
        compiler=compiler,
        version=version,
        compress=plan.compress,
        units=tuple(library.unit for library in packed),
        kernels=tuple(replace(k, unit=index) for index, lib in enumerate(packed) for k in lib.kernels),
        symbols=tuple(replace(s, unit=index) for index, lib in enumerate(packed) for s in lib.symbols),
        embedded={n: hashlib.sha256(c).hexdigest() for n, c in embedded.items()} if plan.embed else None,
    )
    files: dict[str, bytes] = {}
    for library in packed:
        if taken := files.keys() & library.files.keys():
            raise BuildError(
                f"{library.unit.sources[0].name}: another source makes {min(taken)} too; rename it"
            )
        files |= library.files
    return CompiledModule(manifest, files | {f"sources/{name}": c for name, c in embedded.items()})


def _check_unique(packed: Iterable[PackedLibrary]) -> None:
    sources: dict[str, str] = {}
    for library in packed:
        for kernel in library.kernels:
            source = library.unit.sources[0].name
            if kernel.expression in sources:
                raise BuildError(
                    f"kernel {kernel.expression!r} is defined twice, in {sources[kernel.expression]} and in "
                    f"{source}; rename one of them or put it into a namespace"
                )
            sources[kernel.expression] = source


def _embedded(plan: ModulePlan) -> dict[str, bytes]:
    """The sources and headers that compilation on demand reads."""
    if not plan.embed:
        return {}
    found = dict(plan.headers)
    for unit_plan in plan.units:
        if unit_plan.unit.kind in ("cu", "ptx"):
            found[unit_plan.unit.name] = unit_plan.unit.source
            found |= unit_plan.unit.headers
    return dict(sorted(found.items()))
