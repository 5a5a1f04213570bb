"""Units that are images already: cubins, PTX, LTO-IR and fatbins among the sources."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import cast

from cuda_ext.compiler.jobs import LinkInput, LinkJob
from cuda_ext.compiler.products import CompiledImage, Signatures, merge_signatures
from cuda_ext.compiler.signatures.reflection import read_image
from cuda_ext.compiler.spelled_settings import spell_override
from cuda_ext.compiler.translation_unit import TranslationUnit
from cuda_ext.errors import BuildError, CompilationError, FatbinError
from cuda_ext.facts.architecture import Architecture, ImageKind
from cuda_ext.formats import ptx
from cuda_ext.formats.cubin import Cubin, read_cubin
from cuda_ext.formats.fatbin import read_fatbin


def assembly_jobs(unit: TranslationUnit, architectures: Sequence[Architecture]) -> list[LinkJob]:
    """Plan how to assemble PTX or LTO-IR to images of other kinds. Raises :class:`CompilationError`."""
    if unit.kind == "ptx":
        target = ptx.target(unit.source)
        for architecture in architectures:
            _check_assembles(unit, target, architecture)
    source = LinkInput(unit.name, cast("ImageKind", unit.kind), unit.source)
    return [LinkJob(unit.name, (source,), (a,)) for a in architectures if a.kind != unit.kind]


def images_of(unit: TranslationUnit, architectures: Sequence[Architecture]) -> list[CompiledImage]:
    """Return the images that `unit` consists of. Raises :class:`BuildError`."""
    match unit.kind:
        case "cubin":
            return [read_image(_target_of_cubin(unit, architectures), unit.source)]
        case "fatbin":
            return _images_of_fatbin(unit)
        case kind:
            return [read_image(a, unit.source) for a in architectures if a.kind == kind]


def object_of(unit: TranslationUnit, architecture: Architecture) -> CompiledImage:
    """Return `unit` as an object to be linked for `architecture`. Raises :class:`BuildError`."""
    if unit.kind == "fatbin":
        raise BuildError(
            "a fatbin cannot be device-linked", where=unit.name, remedy="give its cubins instead"
        )
    if unit.kind == "cubin":
        target = _cubin(unit).target
        if target is not None and target.number != architecture.number:
            raise CompilationError(
                f"is a cubin for {target}, not for {architecture}",
                where=unit.name,
                remedy=f"add a cubin for {architecture}, or leave {architecture} out of the architectures",
            )
    return read_image(architecture.as_kind(cast("ImageKind", unit.kind)), unit.source)


def signatures_of(images: Iterable[CompiledImage]) -> Signatures:
    """Read signatures from images.

    If PTX and a cubin describe one kernel, PTX's signature counts, since it has types.
    """
    in_order = sorted(images, key=lambda image: image.architecture.kind == "ptx")
    return merge_signatures(image.signatures for image in in_order)


def _check_assembles(unit: TranslationUnit, target: Architecture | None, architecture: Architecture) -> None:
    if target is None:
        raise CompilationError(
            "is not PTX, as it has no .target",
            where=unit.name,
            remedy="take it out of sources, or make it again",
        )
    if not target.serves(architecture):
        raise CompilationError(
            f"is PTX for sm_{target.target}, which cannot be compiled for {architecture}",
            where=unit.name,
            remedy="list only architectures that it serves, "
            f"in {spell_override()} if other sources serve more",
        )
    if architecture.kind == "ltoir":
        raise CompilationError(
            f"PTX cannot become LTO-IR for {architecture}",
            where=unit.name,
            remedy="leave LTO-IR out, or add the source instead",
        )


def _cubin(unit: TranslationUnit) -> Cubin:
    try:
        return read_cubin(unit.source)
    except BuildError as error:
        raise CompilationError(str(error), where=unit.name, remedy="make it again") from None


def _target_of_cubin(unit: TranslationUnit, architectures: Sequence[Architecture]) -> Architecture:
    if target := _cubin(unit).target:
        return target
    if len(architectures) == 1 and architectures[0].kind == "cubin":
        return architectures[0]
    raise BuildError(
        "the cubin does not say which architecture it is for",
        where=unit.name,
        remedy=f'name it in an override: sources = ["{unit.name}"], architectures = ["sm_..."]',
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
            f"cannot be read as a fatbin ({error})",
            where=unit.name,
            remedy="take it out of sources, or make it again",
        ) from None
