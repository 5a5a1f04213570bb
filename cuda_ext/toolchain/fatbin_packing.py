"""A library as it ships: its images in one fatbin, and what the manifest tells of them.

What was asked for is what comes out: every requested architecture and instantiation is checked in the
finished fatbin.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from cuda_ext.compiler.library import Library
from cuda_ext.compiler.name_expressions import normalise
from cuda_ext.compiler.translation_unit import SurveyedKernel
from cuda_ext.errors import BuildError, ManifestError
from cuda_ext.formats.fatbin import read_fatbin
from cuda_ext.formats.resources import Usage
from cuda_ext.manifest import Compression, Image, Kernel, Parameter, Symbol, Unit, plain, unit_from
from cuda_ext.toolchain.nvfatbin import write_fatbin

__all__ = ["Emit", "PackedLibrary", "pack"]

Emit = Literal["fatbin", "cubin", "ptx", "ltoir"]


@dataclass(frozen=True, slots=True)
class PackedLibrary:
    """The part of a manifest that is about one library, and the files that it names.

    Kernels and symbols are as if it were the module's first library. ``log`` is what the compiler said;
    ``usage`` tells for each image what its kernels take, by expression.
    """

    unit: Unit
    kernels: tuple[Kernel, ...]
    symbols: tuple[Symbol, ...]
    files: Mapping[str, bytes]
    log: tuple[str, ...] = ()
    usage: tuple[Mapping[str, Usage], ...] = ()

    def encode(self) -> bytes:
        """All of it as bytes: a line of JSON, then the files."""
        unit = self.unit
        head = {
            "unit": plain(unit),
            "kernels": [dataclasses.astuple(kernel) for kernel in self.kernels],
            "symbols": [dataclasses.astuple(symbol) for symbol in self.symbols],
            "files": {name: len(content) for name, content in self.files.items()},
            "log": self.log,
            "usage": [{e: dataclasses.astuple(u) for e, u in used.items()} for used in self.usage],
        }
        return b"".join([json.dumps(head).encode(), b"\n", *self.files.values()])

    @classmethod
    def decode(cls, content: bytes) -> PackedLibrary:
        """What :meth:`encode` wrote. Raises :class:`BuildError` for anything else."""
        line, _, data = content.partition(b"\n")
        try:
            head = json.loads(line)
            files, position = {}, 0
            for name, size in head["files"].items():
                files[name] = data[position : position + size]
                position += size
            return cls(
                unit_from(head["unit"]),
                tuple(
                    Kernel(expression, lowered, unit, tuple(Parameter(*p) for p in parameters))
                    for expression, lowered, unit, parameters in head["kernels"]
                ),
                tuple(Symbol(*symbol) for symbol in head["symbols"]),
                files,
                tuple(head["log"]),
                tuple({e: Usage(*counts) for e, counts in used.items()} for used in head["usage"]),
            )
        except (KeyError, ManifestError, TypeError, ValueError) as error:
            raise BuildError(f"not the record of a library: {error}; build again") from None


# For each image, the lowered names by name expression: they differ where the compiler mangles differently.
_NameMaps = list[dict[str, str]]


def pack(library: Library, compress: Compression, emit: Emit) -> PackedLibrary:
    """Put the images of `library` into a fatbin, or each into a file.

    Raises :class:`~cuda_ext.errors.BuildError` if anything that was asked for is not in it.
    """
    _check_instantiations(library)
    kernels, kernel_names = _kernels(library)
    symbols, symbol_names, ambiguous = _symbols(library)
    files, placed = _place(library, compress, emit)
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
    unit = Unit(tuple(unit.described for unit in library.units), tuple(images))
    usage = tuple(
        {e: image.usage[lowered] for e, lowered in names.items() if lowered in image.usage}
        for image, names in zip(library.images, kernel_names, strict=True)
    )
    log = (
        f"{library.stem}: several units have a {name!r} of their own, and it cannot be told by name"
        for name in ambiguous
    )
    return PackedLibrary(unit, kernels, symbols, files, (*library.log, *log), usage)


def _kernels(library: Library) -> tuple[tuple[Kernel, ...], _NameMaps]:
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
    for image, requested, lowered_names in zip(library.images, library.names, entries, strict=True):
        names = {normalise(e): lowered for e, lowered in requested.items() if lowered in lowered_names}
        for lowered in set(lowered_names).difference(names.values()):
            names[_expression(survey[lowered], overloaded)] = lowered
        for expression, lowered in names.items():
            kernel = Kernel(expression, lowered, 0, survey[lowered].parameters)
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


def _symbols(library: Library) -> tuple[tuple[Symbol, ...], _NameMaps, list[str]]:
    """The variables of `library` that can be told apart by name, and the names that tell nothing."""
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
            symbol = Symbol(found.name, lowered, 0, found.space, found.type, found.size)
            if symbols.setdefault(found.name, symbol).size != symbol.size:
                raise BuildError(
                    f"{library.units[0].name}: variable {found.name!r} has another size for "
                    f"{image.architecture}; give it another name there"
                )
        name_maps.append(names)
    told = sorted((s for name, s in symbols.items() if name not in ambiguous), key=lambda s: s.name)
    return tuple(told), name_maps, sorted(ambiguous)


def _found(library: Library, lowered_names: Sequence[str], survey: Mapping[str, object]) -> Sequence[str]:
    """Which of `lowered_names` are in `survey`. LTO-IR does not tell its own: all, where it stands alone."""
    if all(i.architecture.kind == "ltoir" for i in library.images):
        return tuple(survey)
    return tuple(lowered for lowered in lowered_names if lowered in survey)


def _place(library: Library, compress: Compression, emit: Emit) -> tuple[dict[str, bytes], list[str]]:
    """The files of `library`, and for each of its images which one it is in."""
    if emit != "fatbin":
        names = [f"{library.stem}.{i.architecture}.{i.architecture.kind}" for i in library.images]
        return {name: image.data for name, image in zip(names, library.images, strict=True)}, names
    name = f"{library.stem}.fatbin"
    fatbin = library.container or write_fatbin(
        [(image.architecture, image.data) for image in library.images], compress
    )
    found = {entry.architecture for entry in read_fatbin(fatbin)}
    if missing := [str(i.architecture) for i in library.images if str(i.architecture) not in found]:
        raise BuildError(
            f"{name}: built for {', '.join(missing)}, but not found in it; leave these architectures out, or "
            "set emit to another form than fatbin"
        )
    return {name: fatbin}, [name] * len(library.images)


def _check_instantiations(library: Library) -> None:
    for image, names in zip(library.images, library.names, strict=True):
        if image.architecture.kind == "ltoir":
            continue
        for expression, lowered in names.items():
            if lowered not in image.entries and lowered not in image.variables:
                raise BuildError(
                    f"{library.units[0].name}: instantiation {expression!r} is missing from the image "
                    f"for {image.architecture}; define it for all architectures, or take it "
                    "out of `instantiate`"
                )
