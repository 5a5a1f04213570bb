"""One module from its translation units: images, fatbins, and the manifest that describes them.

Everything is done in memory; nothing is read from or written to the project. What was asked for is what
comes out: every requested architecture and instantiation is checked in the finished fatbins.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from cuda_ext.compiler.architectures import Architecture
from cuda_ext.compiler.fatbin import Compression, FatbinImage, make_fatbin, read_fatbin
from cuda_ext.compiler.library import Library, Report, collect, compile_unit, link_units
from cuda_ext.compiler.names import normalise
from cuda_ext.compiler.translation_unit import Compiler, SurveyedKernel, TranslationUnit
from cuda_ext.errors import BuildError
from cuda_ext.manifest import SCHEMA, Image, Kernel, Manifest, Symbol, Unit

__all__ = ["CompiledModule", "Emit", "ModulePlan", "UnitPlan", "compile_module"]

Emit = Literal["fatbin", "cubin", "ptx", "ltoir"]


@dataclass(frozen=True, slots=True)
class UnitPlan:
    """A translation unit and the architectures that it is compiled for."""

    unit: TranslationUnit
    architectures: tuple[Architecture, ...]


@dataclass(frozen=True, slots=True)
class ModulePlan:
    """All that decides a module's bytes, besides the compiler.

    ``emit`` says how far to go: one fatbin per unit, or the single images as files. With ``link`` all
    units, compiled as relocatable device code, become one library. With ``embed`` the sources and
    headers of the units travel with the module.
    """

    name: str
    units: tuple[UnitPlan, ...]
    compress: Compression = "size"
    emit: Emit = "fatbin"
    link: bool = False
    embed: bool = True


@dataclass(frozen=True, slots=True)
class CompiledModule:
    """The manifest and the files that it names."""

    manifest: Manifest
    files: Mapping[str, bytes]


def compile_module(plan: ModulePlan, compiler: Compiler, report: Report = lambda _: None) -> CompiledModule:
    """Compile every unit of `plan` for its architectures.

    `report` receives one line per unit and the compiler's warnings. Raises
    :class:`~cuda_ext.errors.BuildError` with one message that holds all failing units.
    """
    if plan.link:
        units = [unit_plan.unit for unit_plan in plan.units]
        architectures = sorted({a for unit_plan in plan.units for a in unit_plan.architectures})
        libraries = [link_units(plan.name, units, architectures, compiler, report)]
    else:
        libraries = collect(lambda p: compile_unit(p.unit, p.architectures, compiler, report), plan.units)
    described = [_describe(library, index, plan, report) for index, library in enumerate(libraries)]
    _check_unique(described)
    embedded = _embedded(plan)
    manifest = Manifest(
        schema=SCHEMA,
        module=plan.name,
        compiler=compiler.name,
        version=compiler.version,
        compress=plan.compress,
        units=tuple(d.unit for d in described),
        kernels=tuple(kernel for d in described for kernel in d.kernels),
        symbols=tuple(symbol for d in described for symbol in d.symbols),
        embedded={n: hashlib.sha256(c).hexdigest() for n, c in embedded.items()} if plan.embed else None,
    )
    files = {name: content for d in described for name, content in d.files.items()}
    return CompiledModule(manifest, files | {f"sources/{name}": c for name, c in embedded.items()})


@dataclass(frozen=True, slots=True)
class _Described:
    """A library as the manifest tells of it, and its files."""

    unit: Unit
    kernels: tuple[Kernel, ...]
    symbols: tuple[Symbol, ...]
    files: Mapping[str, bytes]


# For each image, the lowered names by name expression: they differ where the compiler mangles differently.
_NameMaps = list[dict[str, str]]


def _describe(library: Library, index: int, plan: ModulePlan, report: Report) -> _Described:
    _check_instantiations(library)
    kernels, kernel_names = _kernels(library, index)
    symbols, symbol_names = _symbols(library, index, report)
    files, placed = _place(library, plan)
    images = []
    for image, file, *names in zip(library.images, placed, kernel_names, symbol_names, strict=True):
        here = names[0] | names[1]
        expected = {k.expression: k.lowered for k in kernels} | {s.name: s.lowered for s in symbols}
        images.append(
            Image(
                architecture=str(image.architecture),
                kind=image.architecture.kind,
                file=file,
                size=len(image.data),
                sha256=hashlib.sha256(files[file]).hexdigest(),
                names={e: here.get(e) for e, lowered in expected.items() if here.get(e) != lowered}
                if image.architecture.kind != "ltoir"
                else {},
            )
        )
    unit = Unit(
        sources=tuple(unit.name for unit in library.units),
        sha256=hashlib.sha256("".join(unit.sha256 for unit in library.units).encode()).hexdigest(),
        options=library.units[0].options.spelled(),
        images=tuple(images),
    )
    return _Described(unit, kernels, symbols, files)


def _kernels(library: Library, index: int) -> tuple[tuple[Kernel, ...], _NameMaps]:
    """The kernels of `library`, under the expressions that authors asked for or the compiler gave."""
    survey = library.survey.kernels
    entries = [_found(library, image.entries, survey) for image in library.images]
    overloaded = {
        name
        for lowered_names in entries
        for name, count in Counter(survey[lowered].name for lowered in lowered_names).items()
        if count > 1
    }
    kernels: dict[str, Kernel] = {}
    name_maps: _NameMaps = []
    for image, lowered_names in zip(library.images, entries, strict=True):
        names = {normalise(e): lowered for e, lowered in image.names.items() if lowered in lowered_names}
        for lowered in set(lowered_names).difference(names.values()):
            names[_expression(survey[lowered], overloaded)] = lowered
        for expression, lowered in names.items():
            kernel = Kernel(expression, lowered, index, survey[lowered].parameters)
            if kernels.setdefault(expression, kernel).parameters != kernel.parameters:
                raise BuildError(
                    f"{library.units[0].name}: kernel {expression!r} has other parameters for "
                    f"{image.architecture}; give it another name there"
                )
        name_maps.append(names)
    return tuple(sorted(kernels.values(), key=lambda k: k.expression)), name_maps


def _expression(kernel: SurveyedKernel, overloaded: set[str]) -> str:
    if kernel.name not in overloaded:
        return kernel.name
    return f"{kernel.name}({', '.join(p.type for p in kernel.parameters)})"


def _symbols(library: Library, index: int, report: Report) -> tuple[tuple[Symbol, ...], _NameMaps]:
    """The variables of `library` that can be told apart by name."""
    survey = library.survey.symbols
    symbols: dict[str, Symbol] = {}
    name_maps: _NameMaps = []
    ambiguous: set[str] = set()
    for image in library.images:
        names: dict[str, str] = {}
        for lowered in _found(library, image.variables, survey):
            found = survey[lowered]
            if names.setdefault(found.name, lowered) != lowered:
                ambiguous.add(found.name)
            symbol = Symbol(found.name, lowered, index, found.space, found.type, found.size)
            if symbols.setdefault(found.name, symbol).size != symbol.size:
                raise BuildError(
                    f"{library.units[0].name}: variable {found.name!r} has another size for "
                    f"{image.architecture}; give it another name there"
                )
        name_maps.append(names)
    for name in sorted(ambiguous):
        report(f"{library.stem}: several units have a {name!r} of their own, and it cannot be told by name")
        del symbols[name]
    return tuple(sorted(symbols.values(), key=lambda s: s.name)), name_maps


def _found(library: Library, lowered_names: Sequence[str], survey: Mapping[str, object]) -> Sequence[str]:
    """Which of `lowered_names` are in `survey`. LTO-IR does not tell its own: all, where it stands alone."""
    if all(i.architecture.kind == "ltoir" for i in library.images):
        return tuple(survey)
    return tuple(lowered for lowered in lowered_names if lowered in survey)


def _place(library: Library, plan: ModulePlan) -> tuple[dict[str, bytes], list[str]]:
    """The files of `library`, and for each of its images which one it is in."""
    if plan.emit != "fatbin":
        names = [f"{library.stem}.{i.architecture}.{i.architecture.kind}" for i in library.images]
        return {name: image.data for name, image in zip(names, library.images, strict=True)}, names
    name = f"{library.stem}.fatbin"
    fatbin = library.container or make_fatbin(
        [FatbinImage(i.architecture.kind, str(i.architecture), i.data) for i in library.images],
        plan.compress,
    )
    found = {entry.architecture for entry in read_fatbin(fatbin)}
    if missing := [str(i.architecture) for i in library.images if str(i.architecture) not in found]:
        raise BuildError(f"{name}: built for {', '.join(missing)}, but not found in it")
    return {name: fatbin}, [name] * len(library.images)


def _check_instantiations(library: Library) -> None:
    for image in library.images:
        if image.architecture.kind == "ltoir":
            continue
        for expression, lowered in image.names.items():
            if lowered not in image.entries and lowered not in image.variables:
                raise BuildError(
                    f"{library.units[0].name}: instantiation {expression!r} is missing from the image "
                    f"for {image.architecture}"
                )


def _check_unique(described: Iterable[_Described]) -> None:
    sources: dict[str, str] = {}
    for library in described:
        for kernel in library.kernels:
            source = library.unit.sources[0]
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
    found: dict[str, bytes] = {}
    for unit_plan in plan.units:
        if unit_plan.unit.kind == "cu":
            found[unit_plan.unit.name] = unit_plan.unit.source
            found |= unit_plan.unit.headers
    return dict(sorted(found.items()))
