"""A module: planned as libraries, and assembled from them with the manifest that describes it.

Everything is done in memory; nothing is read from or written to the project.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal

from cuda_ext.compiler.translation_unit import TranslationUnit
from cuda_ext.errors import BuildError
from cuda_ext.formats.architecture import Architecture
from cuda_ext.manifest import SCHEMA, Compression, Manifest

if TYPE_CHECKING:
    from cuda_ext.compiler.products import PackedLibrary

__all__ = [
    "CompiledModule",
    "Emit",
    "LibraryPlan",
    "ModulePlan",
    "UnitPlan",
    "assemble",
    "library_plans",
    "source_plans",
]

Emit = Literal["fatbin", "cubin", "ptx", "ltoir"]


@dataclass(frozen=True, slots=True)
class UnitPlan:
    """A translation unit and the architectures that it is compiled for.

    ``part`` numbers the libraries of a source with split instantiations.
    """

    unit: TranslationUnit
    architectures: tuple[Architecture, ...]
    part: int | None = None


@dataclass(frozen=True, slots=True)
class ModulePlan:
    """All that determines a module's bytes, besides the compiler.

    ``emit`` is the form of the output: one fatbin per unit, or the single images as files. With ``link`` all
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


@dataclass(frozen=True, slots=True, eq=False)
class LibraryPlan:
    """A library of `module`: one unit for its architectures or, with ``link``, several that are linked.

    ``part`` is the number of the instantiation, where each instantiation has its own library. ``only`` limits
    a linked library to the compilation of one of its units, without a link. ``compress`` and ``emit`` are as
    in :class:`ModulePlan`.
    """

    module: str
    units: tuple[TranslationUnit, ...]
    architectures: tuple[Architecture, ...]
    compress: Compression = "size"
    emit: Emit = "fatbin"
    link: bool = False
    part: int | None = None
    only: TranslationUnit | None = None

    @property
    def compiled_units(self) -> tuple[TranslationUnit, ...]:
        """The units whose products are needed."""
        return (self.only,) if self.only else self.units

    def targets(self) -> tuple[Architecture, ...]:
        """The architectures that sources are compiled for, one for each of ``architectures``."""
        if not self.link:
            return self.architectures
        through_lto = any(unit.kind == "ltoir" for unit in self.units)
        # PTX comes out of a link only when LTO-IR goes in, and LTO-IR is not linked with cubins.
        return tuple(a.as_kind("ltoir") if through_lto or a.kind == "ptx" else a for a in self.architectures)


@dataclass(frozen=True, slots=True)
class CompiledModule:
    """The manifest and the files that it names."""

    manifest: Manifest
    files: dict[str, bytes]


def library_plans(plan: ModulePlan) -> list[LibraryPlan]:
    """The libraries of `plan`, in their order."""
    if plan.link:
        units = tuple(unit_plan.unit for unit_plan in plan.units)
        architectures = tuple(sorted({a for unit_plan in plan.units for a in unit_plan.architectures}))
        return [LibraryPlan(plan.name, units, architectures, plan.compress, plan.emit, link=True)]
    return [
        LibraryPlan(plan.name, (p.unit,), p.architectures, plan.compress, plan.emit, part=p.part)
        for p in plan.units
    ]


def source_plans(plan: ModulePlan, source: str) -> list[LibraryPlan]:
    """What can be compiled of `plan` with the source of that name alone."""
    libraries = library_plans(plan)
    if not plan.link:
        return [library for library in libraries if library.units[0].name == source]
    return [
        replace(library, only=unit) for library in libraries for unit in library.units if unit.name == source
    ]


def assemble(
    plan: ModulePlan, libraries: Sequence[PackedLibrary], compiler: str, version: str
) -> CompiledModule:
    """Assemble the module of `libraries`, which that compiler made. Raises :class:`BuildError`."""
    _check_unique(libraries)
    embedded = _embedded(plan)
    manifest = Manifest(
        schema=SCHEMA,
        module=plan.name,
        compiler=compiler,
        version=version,
        compress=plan.compress,
        units=tuple(library.unit for library in libraries),
        kernels=tuple(k._replace(unit=index) for index, lib in enumerate(libraries) for k in lib.kernels),
        symbols=tuple(s._replace(unit=index) for index, lib in enumerate(libraries) for s in lib.symbols),
        embedded={n: hashlib.sha256(c).hexdigest() for n, c in embedded.items()} if plan.embed else None,
    )
    files: dict[str, bytes] = {}
    for library in libraries:
        if shared := files.keys() & library.files.keys():
            raise BuildError(
                f"another source makes {min(shared)} too",
                where=library.unit.sources[0].name,
                remedy="rename it",
            )
        files |= library.files
    return CompiledModule(manifest, files | {f"sources/{name}": c for name, c in embedded.items()})


def _check_unique(libraries: Iterable[PackedLibrary]) -> None:
    sources: dict[str, str] = {}
    for library in libraries:
        for kernel in library.kernels:
            source = library.unit.sources[0].name
            if kernel.expression in sources:
                raise BuildError(
                    f"kernel {kernel.expression!r} is defined twice, in {sources[kernel.expression]} and in "
                    f"{source}",
                    remedy="rename one of them or put it into a namespace",
                )
            sources[kernel.expression] = source


def _embedded(plan: ModulePlan) -> dict[str, bytes]:
    """The sources and headers that compilation on demand reads."""
    if not plan.embed:
        return {}
    files = dict(plan.headers)
    for unit_plan in plan.units:
        if unit_plan.unit.kind in ("cu", "ptx"):
            files[unit_plan.unit.name] = unit_plan.unit.source
            files |= unit_plan.unit.headers
    return dict(sorted(files.items()))
