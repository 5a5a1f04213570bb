"""One module from its translation units: images, fatbins, and the manifest that describes them.

Everything is done in memory; nothing is read from or written to the project. What was asked for is what
comes out: every requested architecture and instantiation is checked in the finished fatbins.
"""

from __future__ import annotations

import functools
import hashlib
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Literal

from cuda_ext.compiler import cubin, ptx, toolkit
from cuda_ext.compiler.architectures import Architecture
from cuda_ext.compiler.fatbin import Compression, FatbinImage, make_fatbin, read_fatbin
from cuda_ext.compiler.linker import LinkInput, link
from cuda_ext.compiler.names import normalise
from cuda_ext.compiler.survey import survey_of_assembly
from cuda_ext.compiler.translation_unit import (
    CompiledImage,
    Compiler,
    Survey,
    SurveyedKernel,
    SurveyedSymbol,
    TranslationUnit,
)
from cuda_ext.errors import BuildError, CompilationError
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


@dataclass(frozen=True, slots=True)
class _Library:
    """What the driver loads as one: a unit's images, or those of a linked module.

    ``container`` is set where the images arrived in a fatbin that ships as it is.
    """

    stem: str
    units: tuple[TranslationUnit, ...]
    images: tuple[CompiledImage, ...]
    survey: Survey
    container: bytes | None = None


def compile_module(
    plan: ModulePlan, compiler: Compiler, report: Callable[[str], None] = lambda _: None
) -> CompiledModule:
    """Compile every unit of `plan` for its architectures.

    `report` receives one line per unit and the compiler's warnings. Raises
    :class:`~cuda_ext.errors.BuildError` with one message that holds all failing units.
    """
    if plan.link:
        libraries = [_linked(plan, compiler, report)]
    else:
        libraries = _collect(functools.partial(_compiled, unit, compiler, report) for unit in plan.units)
    files: dict[str, bytes] = {}
    units: list[Unit] = []
    kernels: list[Kernel] = []
    symbols: list[Symbol] = []
    for index, library in enumerate(libraries):
        own = _kernels(library, index)
        _check_instantiations(library)
        placed = _place(library, plan)
        files |= {file: data for file, data, _ in placed.values()}
        kernels += own
        symbols += _symbols(library, index)
        units.append(
            Unit(
                sources=tuple(unit.name for unit in library.units),
                sha256=hashlib.sha256("".join(u.sha256 for u in library.units).encode()).hexdigest(),
                options=library.units[0].options.spelled(),
                images=tuple(
                    Image(
                        architecture=str(image.architecture),
                        kind=image.architecture.kind,
                        file=placed[image.architecture][0],
                        size=len(image.data),
                        sha256=hashlib.sha256(image.data).hexdigest(),
                        names=_names(own, image),
                    )
                    for image in library.images
                ),
            )
        )
    _check_unique(kernels, units)
    embedded = _embedded(plan)
    files |= {f"sources/{name}": content for name, content in embedded.items()}
    manifest = Manifest(
        schema=SCHEMA,
        module=plan.name,
        compiler=compiler.name,
        version=compiler.version,
        compress=plan.compress,
        units=tuple(units),
        kernels=tuple(kernels),
        symbols=tuple(symbols),
        embedded={n: hashlib.sha256(c).hexdigest() for n, c in embedded.items()} if plan.embed else None,
    )
    return CompiledModule(manifest, files)


def _collect(jobs: Iterable[Callable[[], _Library]]) -> list[_Library]:
    """Run all jobs, so that all failures are reported together, once each."""
    results, failures = [], []
    for job in jobs:
        try:
            results.append(job())
        except CompilationError as error:
            failures.append(str(error))
    if failures:
        raise CompilationError("\n\n".join(dict.fromkeys(failures)))
    return results


def _compiled(plan: UnitPlan, compiler: Compiler, report: Callable[[str], None]) -> _Library:
    unit = plan.unit
    report(f"{unit.name}: {', '.join(map(str, plan.architectures))}")
    container = None
    match unit.kind:
        case "cu":
            images = [compiler.compile(unit, a) for a in plan.architectures]
            survey = _survey(unit, images, compiler)
        case "ptx":
            images = [_assembled(unit, a) for a in plan.architectures]
            survey = survey_of_assembly(unit.source)
        case "ltoir":
            images = [_assembled(unit, a) for a in plan.architectures]
            survey = _merged(cubin.survey_of_cubin(i.data) for i in images if i.architecture.kind == "cubin")
        case "cubin":
            images = [_described(_target_of_cubin(plan), unit.source)]
            survey = cubin.survey_of_cubin(unit.source)
        case "fatbin":
            container = unit.source
            images = [
                _described(Architecture.parse(entry.architecture), entry.payload())
                for entry in read_fatbin(unit.source)
            ]
            survey = _merged(
                cubin.survey_of_cubin(i.data)
                if i.architecture.kind == "cubin"
                else survey_of_assembly(i.data)
                for i in images
                if i.architecture.kind != "ltoir"
            )
    for log in dict.fromkeys(i.log for i in images if i.log):
        report(log)
    if not any(i.entries for i in images) and not all(i.architecture.kind == "ltoir" for i in images):
        raise CompilationError(
            f"{unit.name}: defines no kernel; a unit needs at least one __global__ function (templates only "
            "count when instantiated: list them under instantiate), or set link = true if other units call it"
        )
    return _Library(PurePosixPath(unit.name).stem, (unit,), tuple(images), survey, container)


def _linked(plan: ModulePlan, compiler: Compiler, report: Callable[[str], None]) -> _Library:
    """Compile the units as relocatable device code and link them for each architecture."""
    architectures = sorted({a for p in plan.units for a in p.architectures})
    units = tuple(p.unit for p in plan.units)
    surveys: list[Survey] = []
    objects: dict[Architecture, list[LinkInput]] = {a: [] for a in architectures}
    names: dict[Architecture, dict[str, str]] = {a: {} for a in architectures}

    def compile_unit(unit: TranslationUnit) -> None:
        report(f"{unit.name}: {', '.join(map(str, architectures))}")
        images = []
        for architecture in architectures:
            if unit.kind == "cu":
                # PTX comes out of a link only when LTO-IR goes in.
                image = compiler.compile(
                    unit, architecture.as_kind("ltoir") if architecture.kind == "ptx" else architecture
                )
                images.append(image)
                names[architecture] |= image.names
                if image.log:
                    report(image.log)
                objects[architecture].append(LinkInput(unit.name, image.architecture.kind, image.data))
            elif unit.kind in ("ptx", "cubin", "ltoir"):
                objects[architecture].append(LinkInput(unit.name, unit.kind, unit.source))
            else:
                raise BuildError(f"{unit.name}: a fatbin cannot be device-linked; give its cubins instead")
        if unit.kind == "cu":
            surveys.append(_survey(unit, images, compiler))
        elif unit.kind == "ptx":
            surveys.append(survey_of_assembly(unit.source))
        elif unit.kind == "cubin":
            surveys.append(cubin.survey_of_cubin(unit.source))

    failures = []
    for unit in units:
        try:
            compile_unit(unit)
        except CompilationError as error:
            failures.append(str(error))
    if failures:
        raise CompilationError("\n\n".join(dict.fromkeys(failures)))
    survey = _merged(surveys)
    stem = plan.name.rpartition(".")[2]
    images = []
    for architecture in architectures:
        try:
            data = link(objects[architecture], architecture, _device_runtime(objects[architecture], compiler))
        except CompilationError as error:
            raise CompilationError(f"{plan.name}: linking for {architecture}: {error}") from None
        linked = _described(architecture, data)
        # The device runtime brings entry points of its own: only what the units define counts.
        own = tuple(e for e in linked.entries if e in survey.kernels)
        images.append(CompiledImage(architecture, data, names[architecture], own, linked.variables))
    if not any(i.entries for i in images):
        raise CompilationError(f"{plan.name}: none of its units defines a kernel")
    return _Library(stem, units, tuple(images), survey)


def _device_runtime(objects: Sequence[LinkInput], compiler: Compiler) -> list[Path]:
    """The device runtime library, where an object calls for it."""
    if any(cubin.calls_device_runtime(o.data) for o in objects if o.kind == "cubin"):
        library = toolkit.cudadevrt(int(compiler.version.partition(".")[0]))
        if library is None:
            raise CompilationError(
                "the code launches kernels from the device, which needs the device runtime library "
                "(cudadevrt): install nvidia-cuda-runtime"
            )
        return [library]
    return []


def _survey(unit: TranslationUnit, images: Sequence[CompiledImage], compiler: Compiler) -> Survey:
    """Ask the compiler about the unit until every kernel of every image is known.

    One architecture suffices unless kernels are compiled conditionally.
    """
    surveys: list[Survey] = []
    for image in images:
        known = {name for survey in surveys for name in survey.kernels}
        if not surveys or not known.issuperset(image.entries):
            surveys.append(compiler.survey(unit, image.architecture))
    return _merged(surveys)


def _merged(surveys: Iterable[Survey]) -> Survey:
    kernels: dict[str, SurveyedKernel] = {}
    symbols: dict[str, SurveyedSymbol] = {}
    for survey in surveys:
        kernels |= survey.kernels
        symbols |= survey.symbols
    return Survey(kernels, symbols)


def _assembled(unit: TranslationUnit, architecture: Architecture) -> CompiledImage:
    """An image from PTX or LTO-IR that arrived ready-made."""
    if unit.kind == architecture.kind:
        return _described(architecture, unit.source)
    if architecture.kind == "ltoir" or unit.kind not in ("ptx", "ltoir"):
        raise CompilationError(f"{unit.name}: PTX cannot become LTO-IR for {architecture}")
    try:
        data = link([LinkInput(unit.name, unit.kind, unit.source)], architecture)
    except CompilationError as error:
        raise CompilationError(f"{unit.name}: assembling for {architecture}: {error}") from None
    return _described(architecture, data)


def _described(architecture: Architecture, data: bytes) -> CompiledImage:
    match architecture.kind:
        case "cubin":
            entries, variables = cubin.kernels(data), cubin.variables(data)
        case "ptx":
            entries, variables = tuple(sorted(ptx.kernels(data))), ptx.variables(data)
        case "ltoir":
            entries, variables = (), {}
    return CompiledImage(architecture, data, {}, entries, tuple(sorted(variables)))


def _target_of_cubin(plan: UnitPlan) -> Architecture:
    if found := cubin.target(plan.unit.source):
        return found
    if len(plan.architectures) == 1:
        return plan.architectures[0]
    raise BuildError(
        f"{plan.unit.name}: the cubin does not say which architecture it is for; name it in an override: "
        f'sources = ["{plan.unit.name}"], architectures = ["sm_..."]'
    )


def _kernels(library: _Library, index: int) -> list[Kernel]:
    """The kernels of `library`, under the expressions that authors asked for or the compiler gave."""
    requested = {
        lowered: normalise(expression)
        for image in library.images
        for expression, lowered in image.names.items()
    }
    present = sorted({entry for image in library.images for entry in image.entries})
    surveyed = [library.survey.kernels.get(lowered) for lowered in present]
    known = [k for k in surveyed if k is not None]
    if library.images and all(i.architecture.kind == "ltoir" for i in library.images):
        known = sorted(library.survey.kernels.values(), key=lambda k: k.lowered)
    shared = Counter(k.name for k in known)
    kernels = []
    for kernel in known:
        expression = requested.get(kernel.lowered) or (
            kernel.name if shared[kernel.name] == 1 else _overload(kernel)
        )
        kernels.append(Kernel(expression, kernel.lowered, index, kernel.parameters))
    return sorted(kernels, key=lambda k: k.expression)


def _overload(kernel: SurveyedKernel) -> str:
    return f"{kernel.name}({', '.join(p.type for p in kernel.parameters)})"


def _symbols(library: _Library, index: int) -> list[Symbol]:
    present = {v for image in library.images for v in image.variables}
    return [
        Symbol(s.name, s.lowered, index, s.space, s.type, s.size)
        for s in sorted(library.survey.symbols.values(), key=lambda s: s.name)
        if s.lowered in present
    ]


def _names(kernels: Iterable[Kernel], image: CompiledImage) -> dict[str, str | None]:
    """The name map of `image`, as far as it differs from the kernels' own lowered names."""
    if image.architecture.kind == "ltoir":
        return {}
    by_expression = {normalise(e): lowered for e, lowered in image.names.items()}
    names: dict[str, str | None] = {}
    for kernel in kernels:
        lowered = by_expression.get(kernel.expression, kernel.lowered)
        if lowered not in image.entries:
            names[kernel.expression] = None
        elif lowered != kernel.lowered:
            names[kernel.expression] = lowered
    return names


def _place(library: _Library, plan: ModulePlan) -> dict[Architecture, tuple[str, bytes, CompiledImage]]:
    """Decide which file each image goes into."""
    if plan.emit != "fatbin":
        return {
            i.architecture: (f"{library.stem}.{i.architecture}.{plan.emit}", i.data, i)
            for i in library.images
        }
    fatbin = library.container or make_fatbin(
        [FatbinImage(i.architecture.kind, str(i.architecture), i.data) for i in library.images],
        plan.compress,
    )
    found = {entry.architecture for entry in read_fatbin(fatbin)}
    if missing := [str(i.architecture) for i in library.images if str(i.architecture) not in found]:
        raise BuildError(f"{library.stem}.fatbin: built for {', '.join(missing)}, but not found in it")
    return {i.architecture: (f"{library.stem}.fatbin", fatbin, i) for i in library.images}


def _check_instantiations(library: _Library) -> None:
    for image in library.images:
        if image.architecture.kind == "ltoir":
            continue
        for expression, lowered in image.names.items():
            if lowered not in image.entries and lowered not in image.variables:
                raise BuildError(
                    f"{library.units[0].name}: instantiation {expression!r} is missing from the image "
                    f"for {image.architecture}"
                )


def _check_unique(kernels: Sequence[Kernel], units: Sequence[Unit]) -> None:
    first: dict[str, Kernel] = {}
    for kernel in kernels:
        other = first.setdefault(kernel.expression, kernel)
        if other is not kernel:
            raise BuildError(
                f"kernel {kernel.expression!r} is defined twice, in {units[other.unit].sources[0]} and in "
                f"{units[kernel.unit].sources[0]}; rename one of them or put it into a namespace"
            )


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
