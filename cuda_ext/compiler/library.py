"""What the driver loads as one: the images of a translation unit, or of several that are linked together.

Nothing is compiled here: each computation yields the jobs that it needs done.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import PurePosixPath
from typing import TypeVar, cast

from cuda_ext.compiler.image import read_image
from cuda_ext.compiler.jobs import Job, LinkJob, Outcome, Product, Steps, UnitJob
from cuda_ext.compiler.signatures import survey_of_assembly, survey_of_cubin
from cuda_ext.compiler.translation_unit import (
    CompiledImage,
    Survey,
    SurveyedKernel,
    SurveyedSymbol,
    TranslationUnit,
)
from cuda_ext.errors import BuildError, CompilationError, FatbinError, ToolchainError
from cuda_ext.formats import ptx
from cuda_ext.formats.architecture import Architecture
from cuda_ext.formats.cubin import Cubin, read_cubin
from cuda_ext.formats.fatbin import read_fatbin
from cuda_ext.manifest import ImageKind
from cuda_ext.toolchain.nvjitlink import LinkInput

__all__ = ["Library", "compile_object", "compile_unit", "gather", "link_units"]

_T = TypeVar("_T")

# In the names of what the device runtime library brings along.
_OF_DEVICE_RUNTIME = "_cuda_device_runtime_cu_"


@dataclass(frozen=True, slots=True)
class Library:
    """The images of one or more units, with a survey of all that is in them.

    ``names`` has the name map of each image, ``log`` what the compiler said. ``container`` is set where the
    images arrived in a fatbin that ships as it is.
    """

    stem: str
    units: tuple[TranslationUnit, ...]
    images: tuple[CompiledImage, ...]
    survey: Survey
    names: tuple[Mapping[str, str], ...]
    log: tuple[str, ...] = ()
    container: bytes | None = None


def gather(computations: Sequence[Steps[_T]]) -> Steps[list[_T]]:
    """Take all `computations` through their steps at once. Their failures are told together, once each."""
    results: dict[int, _T] = {}
    failures: dict[int, str] = {}
    outcomes: dict[int, Sequence[Outcome] | None] = dict.fromkeys(range(len(computations)))
    while outcomes:
        wanted: dict[int, Sequence[Job]] = {}
        for index, outcome in outcomes.items():
            try:
                # A computation begins with nothing.
                wanted[index] = computations[index].send(cast("Sequence[Outcome]", outcome))
            except StopIteration as stop:
                results[index] = stop.value
            except ToolchainError:
                raise
            except BuildError as error:
                failures[index] = str(error)
        if not wanted:
            break
        done = iter((yield [job for jobs in wanted.values() for job in jobs]))
        outcomes = {index: [next(done) for _ in jobs] for index, jobs in wanted.items()}
    if failures:
        raise CompilationError("\n\n".join(dict.fromkeys(failures[i] for i in sorted(failures))))
    return [results[index] for index in sorted(results)]


def compile_unit(
    unit: TranslationUnit, architectures: Sequence[Architecture], part: int | None = None
) -> Steps[Library]:
    """Compile `unit`, or take it in as it is, for all `architectures`.

    `part` is the number of its instantiation, where each of them has a library of its own.
    """
    container = None
    names: list[Mapping[str, str]] | None = None
    match unit.kind:
        case "cu":
            images, survey, names = yield from _compiled(unit, architectures)
        case "ptx":
            images = yield from _assembled(unit, architectures)
            survey = survey_of_assembly(unit.source)
        case "ltoir":
            images = yield from _assembled(unit, architectures)
            survey = _survey_of_images(images)
        case "cubin":
            images = [read_image(_target_of_cubin(unit, architectures), unit.source)]
            survey = survey_of_cubin(unit.source)
        case "fatbin":
            container = unit.source
            images = _images_of_fatbin(unit)
            survey = _survey_of_images(images)
    if not any(i.entries or i.architecture.kind == "ltoir" for i in images):
        raise CompilationError(
            f"{unit.name}: defines no kernel; a source needs at least one __global__ function (templates "
            "only count when instantiated: list them under instantiate), or set link = true if other sources "
            "call it"
        )
    library = Library(
        PurePosixPath(unit.name).stem,
        (unit,),
        tuple(images),
        survey,
        tuple(names or [{}] * len(images)),
        _log(images),
        container,
    )
    return library if part is None else _part(library, part)


def _part(library: Library, number: int) -> Library:
    """`library`, named by its number, with one instantiation; what needs none is in the first part alone.

    Raises :class:`CompilationError` for variables, of which each part would have its own.
    """
    unit = library.units[0]
    if library.survey.symbols:
        name = min(symbol.name for symbol in library.survey.symbols.values())
        raise CompilationError(
            f"{unit.name}: its kernels share the variable {name!r}, and with split-instantiations each "
            "would have its own; take split-instantiations away, or the variable"
        )
    images = library.images
    if number:
        images = tuple(
            replace(image, entries=tuple(e for e in image.entries if e in names.values()))
            for image, names in zip(images, library.names, strict=True)
        )
    return replace(library, stem=f"{library.stem}-{number}", images=images)


def link_units(
    name: str,
    units: Sequence[TranslationUnit],
    architectures: Sequence[Architecture],
) -> Steps[Library]:
    """Compile `units` as relocatable device code and link them for each of `architectures`.

    `name` is the module's.
    """
    if unlinkable := [str(a) for a in architectures if a.kind == "ltoir"]:
        raise BuildError(f"{name}: link = true makes cubins and PTX; leave out {', '.join(unlinkable)}")
    found = yield from gather([_objects(unit, units, architectures) for unit in units])
    log = _log(image for objects, _ in found for image in objects)
    jobs = [
        LinkJob(
            name,
            tuple(
                LinkInput(unit.name, objects[index].architecture.kind, objects[index].data)
                for unit, (objects, _) in zip(units, found, strict=True)
            ),
            architecture,
        )
        for index, architecture in enumerate(architectures)
    ]
    names = dict(item for _, survey in found for item in survey.names.items())
    images = []
    for linked in _images(jobs, (yield jobs)):
        _check_linked(name, linked)
        entries = tuple(e for e in linked.entries if _OF_DEVICE_RUNTIME not in e)
        images.append(replace(linked, entries=entries))
    if not any(i.entries for i in images):
        raise CompilationError(
            f"{name}: none of its sources defines a kernel; templates only count when instantiated: list "
            "them under instantiate"
        )
    survey = _merged(survey for _, survey in found)
    if new := [image for image in images if not survey.kernels.keys() >= set(image.entries)]:
        # Kernels out of LTO-IR show only now. The variables are the tool chain's too, and nobody can tell.
        survey = _merged([Survey(_survey_of_images(new).kernels, {}), survey])
    return Library(name.rpartition(".")[2], tuple(units), tuple(images), survey, (names,) * len(images), log)


def compile_object(
    unit: TranslationUnit, units: Sequence[TranslationUnit], architectures: Sequence[Architecture]
) -> Steps[tuple[str, ...]]:
    """Do for `unit` alone what :func:`link_units` does before it links `units`; what the compiler said."""
    images, _ = yield from _objects(unit, units, architectures)
    return _log(images)


def _compiled(
    unit: TranslationUnit, architectures: Sequence[Architecture]
) -> Steps[tuple[list[CompiledImage], Survey, list[Mapping[str, str]]]]:
    """The images of a source, what the compiler tells of them, and the name map of each.

    CUDA forbids signatures and instantiations that depend on the architecture, so one survey serves all
    images; for code that does so all the same, each image has its own.
    """
    compilations = [UnitJob("compile", unit, a) for a in architectures]
    # For newer GPUs, the tool chain's headers have variables that they do not have for older ones.
    newest = max(architectures, key=lambda architecture: (architecture.number, architecture.suffix))
    surveys = [UnitJob("survey", unit, newest)]
    *compiled, surveyed = yield [*compilations, *surveys]
    images = _images(compilations, compiled)
    found = _surveys(surveys, [surveyed])
    unknown = [i for i in images if i.architecture != newest and not _describes(found[0], i)]
    if unknown:
        surveys = [UnitJob("survey", unit, image.architecture) for image in unknown]
        found += _surveys(surveys, (yield surveys))
    merged = _merged(found)
    for image in images:
        _check_sizes(unit, image, merged)
    own = {image.architecture: survey for image, survey in zip(unknown, found[1:], strict=True)}
    return images, merged, [own.get(image.architecture, found[0]).names for image in images]


def _describes(survey: Survey, image: CompiledImage) -> bool:
    """Whether all that is in `image` is known, under the names that it has there. LTO-IR does not tell."""
    if image.architecture.kind == "ltoir":
        return True
    symbols = survey.symbols.keys()
    theirs = {_anywhere(name) for name in survey.variables - symbols}
    return (
        survey.kernels.keys() >= set(image.entries)
        and all(_anywhere(name) in theirs for name in set(image.variables) - symbols)
        and {*image.entries, *image.variables}.issuperset(survey.names.values())
    )


def _anywhere(lowered: str) -> str:
    """A name without the architecture that CUB and Thrust put into theirs, by all their fashions.

    As in ``16_V_300500_SM_900``, ``17CUB_300001_SM_900`` and ``17CUB_200200_900_NS``.
    """
    return re.sub(r"\d+((?:CUB|THRUST|_V)_\d+_)(?:SM_)?\d+(?:_\d+)*", r"\1", lowered)


def _images(jobs: Sequence[Job], outcomes: Sequence[Outcome]) -> list[CompiledImage]:
    return [cast("CompiledImage", product) for product in _products(jobs, outcomes)]


def _surveys(jobs: Sequence[Job], outcomes: Sequence[Outcome]) -> list[Survey]:
    return [cast("Survey", product) for product in _products(jobs, outcomes)]


def _products(jobs: Sequence[Job], outcomes: Sequence[Outcome]) -> list[Product]:
    """The products of `jobs`; or one error, which tells what went wrong for which architectures."""
    products: list[Product] = []
    failed: dict[str, list[Job]] = {}
    for job, outcome in zip(jobs, outcomes, strict=True):
        if isinstance(outcome, CompilationError):
            failed.setdefault(str(outcome), []).append(job)
        else:
            products.append(outcome)
    if failed:
        raise CompilationError("\n\n".join(_told(text, jobs) for text, jobs in failed.items()))
    return products


def _told(text: str, jobs: Sequence[Job]) -> str:
    """The `text` of a compiler names its files; that of the linker does not."""
    targets = ", ".join(str(job.architecture) for job in jobs)
    if isinstance(jobs[0], LinkJob):
        # What is assembled has its own name.
        doing = "assembling" if jobs[0].name == jobs[0].inputs[0].name else "linking"
        return f"{jobs[0].name}: {doing} for {targets}: {text}"
    return f"{text}\n(compiling {jobs[0].name} for {targets})"


def _objects(
    unit: TranslationUnit, units: Sequence[TranslationUnit], architectures: Sequence[Architecture]
) -> Steps[tuple[list[CompiledImage], Survey]]:
    """`unit` as objects to be linked with all `units`: one for each of `architectures`."""
    match unit.kind:
        case "cu":
            through_lto = any(other.kind == "ltoir" for other in units)
            # PTX comes out of a link only when LTO-IR goes in, and LTO-IR does not see into cubins.
            targets = [a.as_kind("ltoir") if through_lto or a.kind == "ptx" else a for a in architectures]
            images, survey, names = yield from _compiled(unit, targets)
            return images, replace(survey, names={k: v for found in names for k, v in found.items()})
        case "fatbin":
            raise BuildError(f"{unit.name}: a fatbin cannot be device-linked; give its cubins instead")
        case kind:
            images = [_ready_made(unit, kind, a) for a in architectures]
            return images, _survey_of_images(images[:1])


def _log(images: Iterable[CompiledImage]) -> tuple[str, ...]:
    """What the compiler said about `images`, once."""
    return tuple(dict.fromkeys(image.log for image in images if image.log))


def _check_sizes(unit: TranslationUnit, image: CompiledImage, survey: Survey) -> None:
    """Compare the description with what is in `image`: one name may not stand for different things."""
    for lowered in image.entries:
        known = survey.kernels[lowered]
        if image.sizes[lowered] != tuple(p.size for p in known.parameters):
            raise CompilationError(
                f"{unit.name}: kernel {known.name!r} has other parameters for {image.architecture}; give it "
                "another name there"
            )
    for lowered, symbol in survey.symbols.items():
        if image.sizes.get(lowered, (symbol.size,)) != (symbol.size,):
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


def _assembled(unit: TranslationUnit, architectures: Sequence[Architecture]) -> Steps[list[CompiledImage]]:
    """The images of PTX or LTO-IR that arrived ready-made."""
    target = ptx.target(unit.source) if unit.kind == "ptx" else None
    for architecture in architectures:
        if unit.kind == "ptx":
            _check_assembles(unit, target, architecture)
    source = LinkInput(unit.name, cast("ImageKind", unit.kind), unit.source)
    jobs = [LinkJob(unit.name, (source,), a) for a in architectures if a.kind != unit.kind]
    made = _images(jobs, (yield jobs)) if jobs else []
    made += [read_image(a, unit.source) for a in architectures if a.kind == unit.kind]
    return sorted(made, key=lambda image: image.architecture)


def _check_assembles(unit: TranslationUnit, target: Architecture | None, architecture: Architecture) -> None:
    if target is None:
        raise CompilationError(
            f"{unit.name}: is not PTX, as it has no .target; take it out of sources, or make it again"
        )
    if not target.serves(architecture):
        raise CompilationError(
            f"{unit.name}: is PTX for sm_{target.target}, which cannot be compiled for {architecture}; "
            "list only architectures that it serves, in an override if other sources serve more"
        )
    if architecture.kind == "ltoir":
        raise CompilationError(
            f"{unit.name}: PTX cannot become LTO-IR for {architecture}; leave that out, or give the source"
        )


def _ready_made(unit: TranslationUnit, kind: ImageKind, architecture: Architecture) -> CompiledImage:
    """A unit that is no source, as an object to be linked for `architecture`."""
    if kind == "cubin":
        target = _cubin(unit).target
        if target is not None and target.number != architecture.number:
            raise CompilationError(
                f"{unit.name}: is a cubin for {target}, not for {architecture}; give one for that, or leave "
                f"{architecture} out"
            )
    return read_image(architecture.as_kind(kind), unit.source)


def _cubin(unit: TranslationUnit) -> Cubin:
    try:
        return read_cubin(unit.source)
    except BuildError as error:
        raise CompilationError(f"{unit.name}: {error}; make it anew") from None


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
        raise CompilationError(
            f"{unit.name}: cannot be read as a fatbin ({error}); take it out of sources, or make it again"
        ) from None


def _survey_of_images(images: Iterable[CompiledImage]) -> Survey:
    """What images without a source tell: cubins only sizes, PTX plain types, LTO-IR nothing."""
    by_kind: dict[ImageKind, list[bytes]] = {"cubin": [], "ptx": [], "ltoir": []}
    for image in images:
        by_kind[image.architecture.kind].append(image.data)
    return _merged([*map(survey_of_cubin, by_kind["cubin"]), *map(survey_of_assembly, by_kind["ptx"])])


def _check_linked(name: str, image: CompiledImage) -> None:
    where = f"{name}: linking for {image.architecture}"
    if image.architecture.kind == "ptx" and (missing := ptx.undefined(image.data)):
        if missing[0].startswith("__cuda"):
            raise CompilationError(
                f"{where}: PTX cannot hold the device runtime library, which launches kernels from the "
                f"device; leave {image.architecture} out of the architectures"
            )
        raise CompilationError(
            f"{where}: no source defines {', '.join(missing)}; name the source that does in sources"
        )
    # The linker renames a kernel that would hide another.
    for entry in image.entries:
        hidden, _, number = entry.rpartition("$")
        if number.isdigit() and hidden in image.entries:
            raise CompilationError(
                f"{where}: two sources define {hidden}; rename one of them or put it into a namespace"
            )
