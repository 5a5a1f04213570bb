"""The products of compilation as plain data: images, signatures, and libraries that consist of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from cuda_ext.errors import CompilationError
from cuda_ext.facts.architecture import Architecture
from cuda_ext.facts.constants import Constant
from cuda_ext.facts.kernels import Kernel
from cuda_ext.facts.launches import FixedLaunch
from cuda_ext.facts.manifest import Unit
from cuda_ext.facts.structures import Structure
from cuda_ext.facts.symbols import Symbol
from cuda_ext.formats.cubin import Resources
from cuda_ext.formats.lowered_names.meanings import merge_meanings
from cuda_ext.formats.variant_conditions import Condition

# The name of the spans in which NVRTC and nvcc read a header.
HEADER = "Processing Header File"


class Span(NamedTuple):
    """One phase of a compilation, in seconds since it began.

    ``detail`` is the header or function that the phase processed, if any.
    """

    name: str
    detail: str
    start: float
    duration: float


class Trace(NamedTuple):
    """A record of a compilation; it is not part of the product.

    ``reads`` are the headers that the compiler opened, and the names that it passed to ``__has_include``:
    canonical names of the project's headers, and search-path names of all others. ``spans`` are empty unless
    they were requested.
    """

    reads: frozenset[str] = frozenset()
    spans: tuple[Span, ...] = ()


NO_TRACE = Trace()


@dataclass(frozen=True, slots=True)
class Signatures:
    """The kernels of images, and the variables that sources declare, by lowered name.

    Expressions are C++ names. ``log`` lists what could not be determined. ``conditions`` has those under
    which each described kernel was compiled, by its expression. ``meanings`` maps names and instantiations as
    sources spell them. ``structures`` are those that kernels take by value, and ``constants`` those that were
    asked for, by name.
    """

    kernels: Mapping[str, Kernel]
    symbols: Mapping[str, Symbol]
    log: str = ""
    conditions: Mapping[str, tuple[Condition, ...]] = field(default_factory=dict)
    meanings: Mapping[str, str] = field(default_factory=dict)
    structures: Mapping[str, Structure] = field(default_factory=dict)
    constants: Mapping[str, Constant] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class CompiledImage:
    """A translation unit compiled for one architecture.

    ``entries`` are the lowered names of the kernels in the image, ``variables`` those of its ``__device__``
    and ``__constant__`` variables. ``signatures`` describe them as far as is known. ``usage`` has the
    resources of the kernels of a cubin. ``names`` is the name map: each requested name expression with its
    lowered name. ``text`` is PTX to link in place of a relocatable cubin: it has no unused variables.
    ``launches`` has the kernels whose configuration is fixed, by lowered name.
    """

    architecture: Architecture
    data: bytes
    entries: tuple[str, ...]
    variables: tuple[str, ...]
    log: str = ""
    usage: Mapping[str, Resources] = field(default_factory=dict)
    names: Mapping[str, str] = field(default_factory=dict)
    signatures: Signatures = Signatures({}, {})
    text: bytes = b""
    launches: Mapping[str, FixedLaunch] = field(default_factory=dict)
    trace: Trace = field(default=NO_TRACE, compare=False)


class Library(NamedTuple):
    """The part of a manifest that describes one library, and the files that it names.

    Kernels and symbols are numbered as if it were the module's first library. ``log`` has the compiler's
    warnings; ``code`` has, for each image, digests of the instructions of its kernels, by expression.
    ``conditions``, ``structures`` and ``constants`` are those of :class:`Signatures`. ``reads`` are the
    headers that its compilations read, as in :class:`Trace`.
    """

    unit: Unit
    kernels: tuple[Kernel, ...] = ()
    symbols: tuple[Symbol, ...] = ()
    files: Mapping[str, bytes] = {}
    log: tuple[str, ...] = ()
    code: tuple[Mapping[str, str], ...] = ()
    conditions: Mapping[str, tuple[Condition, ...]] = {}
    structures: tuple[Structure, ...] = ()
    constants: tuple[Constant, ...] = ()
    reads: frozenset[str] = frozenset()


def merge_signatures(several: Iterable[Signatures]) -> Signatures:
    """Unite signatures; if two describe the same name, the later one counts. Logs are left out."""
    kernels: dict[str, Kernel] = {}
    symbols: dict[str, Symbol] = {}
    conditions: dict[str, tuple[Condition, ...]] = {}
    structures: dict[str, Structure] = {}
    constants: dict[str, Constant] = {}
    meanings = []
    for signatures in several:
        for constant in signatures.constants.values():
            known = constants.setdefault(constant.name, constant)
            constants[constant.name] = known if known.type else constant
        for name, structure in signatures.structures.items():
            if structures.setdefault(name, structure) != structure:
                several_layouts = "it has several layouts"
                structures[name] = structure._replace(fields=(), obstacle=several_layouts)
        conditions |= signatures.conditions
        kernels |= signatures.kernels
        symbols |= signatures.symbols
        meanings.append(signatures.meanings)
    return Signatures(
        kernels,
        symbols,
        conditions=conditions,
        meanings=merge_meanings(meanings),
        structures=structures,
        constants=constants,
    )


def differs(entity: str, what: str, image: CompiledImage, where: str) -> CompilationError:
    """Return the error for a kernel or variable that differs between the images of a source."""
    other = "another" if what == "size" else "other"
    return CompilationError(
        f"{entity} has {other} {what} for {image.architecture}",
        where=where,
        remedy="give it another name there",
    )
