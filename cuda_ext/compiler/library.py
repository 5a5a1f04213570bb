"""What the driver loads as one: the images of a translation unit, or of several that are linked together."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import TypeVar

from cuda_ext.compiler import ptx, toolkit
from cuda_ext.compiler.architectures import Architecture
from cuda_ext.compiler.cubin import Cubin, read_cubin, survey_of_cubin
from cuda_ext.compiler.fatbin import read_fatbin
from cuda_ext.compiler.image import read_image
from cuda_ext.compiler.linker import LinkInput, link
from cuda_ext.compiler.survey import survey_of_assembly
from cuda_ext.compiler.translation_unit import (
    CompiledImage,
    Compiler,
    Survey,
    SurveyedKernel,
    SurveyedSymbol,
    TranslationUnit,
)
from cuda_ext.errors import BuildError, CompilationError, FatbinError, ToolchainError
from cuda_ext.manifest import ImageKind

__all__ = ["Library", "Report", "collect", "compile_unit", "link_units"]

Report = Callable[[str], None]

_T = TypeVar("_T")
_U = TypeVar("_U")

# In the names of what the device runtime library brings along.
_OF_DEVICE_RUNTIME = "_cuda_device_runtime_cu_"


@dataclass(frozen=True, slots=True)
class Library:
    """The images of one or more units, with a survey of all that is in them.

    ``container`` is set where the images arrived in a fatbin that ships as it is.
    """

    stem: str
    units: tuple[TranslationUnit, ...]
    images: tuple[CompiledImage, ...]
    survey: Survey
    container: bytes | None = None


def collect(function: Callable[[_T], _U], items: Iterable[_T]) -> list[_U]:
    """Map `function` over all `items`, so that all failures are told together, once each."""
    results, failures = [], []
    for item in items:
        try:
            results.append(function(item))
        except ToolchainError:
            raise
        except BuildError as error:
            failures.append(str(error))
    if failures:
        raise CompilationError("\n\n".join(dict.fromkeys(failures)))
    return results


def compile_unit(
    unit: TranslationUnit, architectures: Sequence[Architecture], compiler: Compiler, report: Report
) -> Library:
    """Compile `unit`, or take it in as it is, for all `architectures`."""
    report(f"{unit.name}: {', '.join(map(str, architectures))}")
    container = None
    match unit.kind:
        case "cu":
            images = [_compiled(unit, a, compiler) for a in architectures]
            survey = _surveyed(unit, images, compiler)
        case "ptx":
            images = [_assembled(unit, a) for a in architectures]
            survey = survey_of_assembly(unit.source)
        case "ltoir":
            images = [_assembled(unit, a) for a in architectures]
            survey = _survey_of_images(images)
        case "cubin":
            images = [read_image(_target_of_cubin(unit, architectures), unit.source)]
            survey = survey_of_cubin(unit.source)
        case "fatbin":
            container = unit.source
            images = _images_of_fatbin(unit)
            survey = _survey_of_images(images)
    for log in dict.fromkeys(i.log for i in images if i.log):
        report(log)
    if not any(i.entries or i.architecture.kind == "ltoir" for i in images):
        raise CompilationError(
            f"{unit.name}: defines no kernel; a unit needs at least one __global__ function (templates only "
            "count when instantiated: list them under instantiate), or set link = true if other units call it"
        )
    return Library(PurePosixPath(unit.name).stem, (unit,), tuple(images), survey, container)


def link_units(
    name: str,
    units: Sequence[TranslationUnit],
    architectures: Sequence[Architecture],
    compiler: Compiler,
    report: Report,
) -> Library:
    """Compile `units` as relocatable device code and link them for each of `architectures`.

    `name` is the module's.
    """
    if unlinkable := [str(a) for a in architectures if a.kind == "ltoir"]:
        raise BuildError(f"{name}: link = true makes cubins and PTX; leave out {', '.join(unlinkable)}")
    through_lto = any(unit.kind == "ltoir" for unit in units)

    def objects_of(unit: TranslationUnit) -> tuple[list[CompiledImage], Survey]:
        report(f"{unit.name}: {', '.join(map(str, architectures))}")
        match unit.kind:
            case "cu":
                # PTX comes out of a link only when LTO-IR goes in, and LTO-IR does not see into cubins.
                targets = [a.as_kind("ltoir") if through_lto or a.kind == "ptx" else a for a in architectures]
                objects = [_compiled(unit, a, compiler) for a in targets]
                survey = _surveyed(unit, objects, compiler)
            case "fatbin":
                raise BuildError(f"{unit.name}: a fatbin cannot be device-linked; give its cubins instead")
            case kind:
                objects = [_ready_made(unit, kind, a) for a in architectures]
                survey = _survey_of_images(objects[:1])
        for log in dict.fromkeys(o.log for o in objects if o.log):
            report(log)
        return objects, survey

    found = collect(objects_of, units)
    images = []
    for index, architecture in enumerate(architectures):
        objects = [objects[index] for objects, _ in found]
        inputs = [LinkInput(u.name, o.architecture.kind, o.data) for u, o in zip(units, objects, strict=True)]
        try:
            linked = read_image(architecture, _link(inputs, architecture, compiler))
            _check_linked(linked)
        except CompilationError as error:
            raise CompilationError(f"{name}: linking for {architecture}: {error}") from None
        names = {expression: lowered for o in objects for expression, lowered in o.names.items()}
        entries = tuple(e for e in linked.entries if _OF_DEVICE_RUNTIME not in e)
        images.append(CompiledImage(architecture, linked.data, names, entries, linked.variables))
    if not any(i.entries for i in images):
        raise CompilationError(f"{name}: none of its units defines a kernel")
    # Kernels out of LTO-IR show only now. The variables are the tool chain's as well, and nobody can tell.
    linked_kernels = Survey(_survey_of_images(images).kernels, {}, frozenset())
    survey = _merged([linked_kernels, *(survey for _, survey in found)])
    return Library(name.rpartition(".")[2], tuple(units), tuple(images), survey)


def _compiled(unit: TranslationUnit, architecture: Architecture, compiler: Compiler) -> CompiledImage:
    try:
        return compiler.compile(unit, architecture)
    except CompilationError as error:
        raise CompilationError(f"{error}\n(compiling {unit.name} for {architecture})") from None


def _surveyed(unit: TranslationUnit, images: Sequence[CompiledImage], compiler: Compiler) -> Survey:
    """Ask the compiler about the unit until all that is in its images is known.

    One architecture suffices unless kernels or variables are compiled conditionally.
    """
    survey = compiler.survey(unit, images[0].architecture)
    for image in images[1:]:
        if not (survey.kernels.keys() >= set(image.entries) and survey.variables >= set(image.variables)):
            survey = _merged([survey, compiler.survey(unit, image.architecture)])
    for image in images:
        _check_sizes(unit, image, survey)
    return survey


def _check_sizes(unit: TranslationUnit, image: CompiledImage, survey: Survey) -> None:
    """Compare the description with what is in `image`: one name may not stand for different things."""
    found = _survey_of_images([image])
    for lowered, kernel in found.kernels.items():
        known = survey.kernels[lowered]
        if [p.size for p in kernel.parameters] != [p.size for p in known.parameters]:
            raise CompilationError(
                f"{unit.name}: kernel {known.name!r} has other parameters for {image.architecture}; give it "
                "another name there"
            )
    for lowered, symbol in survey.symbols.items():
        if lowered in found.symbols and found.symbols[lowered].size != symbol.size:
            raise CompilationError(
                f"{unit.name}: variable {symbol.name!r} has another size for {image.architecture}; give it "
                "another name there"
            )


def _merged(surveys: Iterable[Survey]) -> Survey:
    """All that `surveys` know; the later one where two know the same."""
    kernels: dict[str, SurveyedKernel] = {}
    symbols: dict[str, SurveyedSymbol] = {}
    variables: set[str] = set()
    for survey in surveys:
        kernels |= survey.kernels
        symbols |= survey.symbols
        variables |= survey.variables
    return Survey(kernels, symbols, frozenset(variables))


def _assembled(unit: TranslationUnit, architecture: Architecture) -> CompiledImage:
    """An image from PTX or LTO-IR that arrived ready-made."""
    target = ptx.target(unit.source) if unit.kind == "ptx" else None
    if unit.kind == "ptx":
        if target is None:
            raise CompilationError(f"{unit.name}: is not PTX, as it has no .target")
        if not target.serves(architecture):
            raise CompilationError(
                f"{unit.name}: is PTX for sm_{target.target}, which cannot be compiled for {architecture}; "
                "list only architectures that it serves, in an override if other sources serve more"
            )
    if unit.kind == architecture.kind:
        return read_image(architecture, unit.source)
    if architecture.kind == "ltoir":
        raise CompilationError(f"{unit.name}: PTX cannot become LTO-IR for {architecture}")
    try:
        data = link([LinkInput(unit.name, unit.kind, unit.source)], architecture)  # type: ignore[arg-type]
    except CompilationError as error:
        raise CompilationError(f"{unit.name}: assembling for {architecture}: {error}") from None
    return read_image(architecture, data)


def _ready_made(unit: TranslationUnit, kind: ImageKind, architecture: Architecture) -> CompiledImage:
    """A unit that is no source, as an object to be linked for `architecture`."""
    if kind == "cubin":
        target = _cubin(unit).target
        if target is not None and target.number != architecture.number:
            raise CompilationError(f"{unit.name}: is a cubin for {target}, not for {architecture}")
    return read_image(architecture.as_kind(kind), unit.source)


def _cubin(unit: TranslationUnit) -> Cubin:
    try:
        return read_cubin(unit.source)
    except BuildError as error:
        raise CompilationError(f"{unit.name}: {error}") from None


def _target_of_cubin(unit: TranslationUnit, architectures: Sequence[Architecture]) -> Architecture:
    if found := _cubin(unit).target:
        return found
    if len(architectures) == 1 and architectures[0].kind == "cubin":
        return architectures[0]
    raise BuildError(
        f"{unit.name}: the cubin does not say which architecture it is for; name it in an override: "
        f'sources = ["{unit.name}"], architectures = ["sm_..."]'
    )


def _images_of_fatbin(unit: TranslationUnit) -> list[CompiledImage]:
    try:
        return [
            read_image(
                Architecture.parse(entry.architecture), entry.stored if entry.scrambled else entry.payload()
            )
            for entry in read_fatbin(unit.source)
        ]
    except FatbinError as error:
        raise CompilationError(f"{unit.name}: {error}") from None


def _survey_of_images(images: Iterable[CompiledImage]) -> Survey:
    """What images without a source tell: cubins only sizes, PTX plain types, LTO-IR nothing."""
    by_kind: dict[ImageKind, list[bytes]] = {"cubin": [], "ptx": [], "ltoir": []}
    for image in images:
        by_kind[image.architecture.kind].append(image.data)
    return _merged([*map(survey_of_cubin, by_kind["cubin"]), *map(survey_of_assembly, by_kind["ptx"])])


def _link(inputs: Sequence[LinkInput], architecture: Architecture, compiler: Compiler) -> bytes:
    """Link `inputs`, with the device runtime library where they call for it."""
    try:
        return link(inputs, architecture)
    except CompilationError as error:
        if "__cuda" not in str(error):
            raise
    library = toolkit.cudadevrt(int(compiler.version.partition(".")[0]))
    if library is None:
        raise CompilationError(
            "the code launches kernels from the device, which needs the device runtime library (cudadevrt): "
            "install nvidia-cuda-runtime"
        )
    return link(inputs, architecture, [library])


def _check_linked(image: CompiledImage) -> None:
    if image.architecture.kind == "ptx" and (missing := ptx.undefined(image.data)):
        if missing[0].startswith("__cuda"):
            raise CompilationError(
                "PTX cannot hold the device runtime library, which launches kernels from the device; leave "
                f"{image.architecture} out of the architectures"
            )
        raise CompilationError(f"no unit defines {', '.join(missing)}")
    # The linker renames a kernel that would hide another.
    for entry in image.entries:
        name, _, number = entry.rpartition("$")
        if number.isdigit() and name in image.entries:
            raise CompilationError(f"two units define {name}; rename one of them or put it into a namespace")
