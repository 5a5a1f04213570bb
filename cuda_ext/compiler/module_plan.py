"""A module: planned as libraries, and assembled from them with the manifest that describes it.

Everything is done in memory; nothing is read from or written to the project.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import PurePosixPath
from typing import Literal, NamedTuple

from cuda_ext.compiler.products import Library
from cuda_ext.compiler.translation_unit import TranslationUnit
from cuda_ext.errors import BuildError
from cuda_ext.formats.architecture import Architecture
from cuda_ext.manifest import SCHEMA, Compression, Manifest

__all__ = ["CompiledModule", "Emit", "LibraryPlan", "ModulePlan", "assemble"]

Emit = Literal["fatbin", "cubin", "ptx", "ltoir"]


@dataclass(frozen=True, eq=False)
class LibraryPlan:
    """What the driver loads as one: a unit for its architectures or, with ``link``, several that are linked.

    ``module`` is the name of its module. ``emit`` is the form of the output: a fatbin, or the single images
    as files. ``part`` is the number of the instantiation, where each instantiation has its own library.
    ``only`` limits a linked library to the compilation of one of its units, without a link.
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

    @property
    def stem(self) -> str:
        """The name of its files, without their suffix."""
        if self.link:
            return self.module.rpartition(".")[2]
        stem = PurePosixPath(self.units[0].name).stem
        return stem if self.part is None else f"{stem}-{self.part}"

    @cached_property
    def targets(self) -> tuple[Architecture, ...]:
        """The architectures that sources are compiled for, one for each of ``architectures``."""
        if not self.link:
            return self.architectures
        through_lto = any(unit.kind == "ltoir" for unit in self.units)
        # PTX comes out of a link only when LTO-IR goes in, and LTO-IR is not linked with cubins.
        return tuple(a.as_kind("ltoir") if through_lto or a.kind == "ptx" else a for a in self.architectures)

    @cached_property
    def passes(self) -> tuple[tuple[Architecture, ...], ...]:
        """The targets of each pass of a compiler, which makes the cubin and the PTX of a target at once."""
        passes: dict[object, list[Architecture]] = {}
        for target in dict.fromkeys(self.targets):
            passes.setdefault(target if target.kind == "ltoir" else target.target, []).append(target)
        return tuple(map(tuple, passes.values()))

    @cached_property
    def newest(self) -> Architecture:
        """The newest target, for which signatures are read.

        For newer GPUs, the tool chain's headers have variables that they lack for older ones.
        """
        return max(self.targets, key=lambda target: (target.number, target.suffix))


@dataclass(frozen=True, slots=True)
class ModulePlan:
    """All that determines a module's bytes, besides the compiler.

    With ``embed`` the sources and headers of the units travel with the module, and so do ``headers``, by
    their canonical names.
    """

    name: str
    libraries: tuple[LibraryPlan, ...]
    compress: Compression = "size"
    embed: bool = True
    headers: Mapping[str, bytes] = field(default_factory=dict)

    def only(self, source: str) -> list[LibraryPlan]:
        """What can be compiled with the source of that name alone."""
        return [
            replace(library, only=unit) if library.link else library
            for library in self.libraries
            for unit in library.units
            if unit.name == source
        ]


class CompiledModule(NamedTuple):
    """A manifest, the files that it names, and the compiler's warnings."""

    manifest: Manifest
    files: Mapping[str, bytes]
    log: tuple[str, ...]


def assemble(plan: ModulePlan, libraries: Sequence[Library], compiler: str, version: str) -> CompiledModule:
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
    files |= {f"sources/{name}": content for name, content in embedded.items()}
    log = dict.fromkeys(text for library in libraries for text in library.log)
    return CompiledModule(manifest, files, tuple(log))


def _check_unique(libraries: Iterable[Library]) -> None:
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
    for unit in (unit for library in plan.libraries for unit in library.units):
        if unit.kind in ("cu", "ptx"):
            files[unit.name] = unit.source
            files |= unit.headers
    return dict(sorted(files.items()))
