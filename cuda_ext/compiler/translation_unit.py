"""What goes into the compiler and what comes out: plain frozen data, free of paths and machines."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Literal, Protocol

from cuda_ext.formats.architecture import Architecture
from cuda_ext.formats.resources import Usage
from cuda_ext.manifest import Options, Parameter, Source
from cuda_ext.toolchain.time_trace import NO_TRACE, Trace

__all__ = [
    "CompiledImage",
    "Compiler",
    "Described",
    "SourceKind",
    "Survey",
    "SurveyedKernel",
    "SurveyedSymbol",
    "TranslationUnit",
]

SourceKind = Literal["cu", "ptx", "cubin", "fatbin", "ltoir"]


@dataclass(frozen=True, eq=False)
class TranslationUnit:
    """One device source with everything of the project that it includes.

    ``name`` is the source's path within the project, with forward slashes. ``headers`` maps canonical
    names to contents, and every include directive in them and in ``source`` that leads to one of them
    spells that canonical name (see :mod:`cuda_ext.compiler.headers`).
    """

    name: str
    source: bytes
    kind: SourceKind = "cu"
    headers: Mapping[str, bytes] = field(default_factory=dict)
    options: Options = field(default_factory=Options)
    instantiate: tuple[str, ...] = ()

    @cached_property
    def sha256(self) -> str:
        """The digest of the source and its headers, names included."""
        digest = hashlib.sha256()
        for name, content in [(self.name, self.source), *sorted(self.headers.items())]:
            for part in (name.encode(), content):
                digest.update(len(part).to_bytes(8, "little"))
                digest.update(part)
        return digest.hexdigest()

    @property
    def described(self) -> Source:
        """What the manifest says of it."""
        return Source(self.name, self.sha256, self.options, self.instantiate)

    @cached_property
    def header_digests(self) -> Mapping[str, str]:
        """The SHA-256 of each header."""
        return {name: _sha256(content) for name, content in self.headers.items()}


@lru_cache(maxsize=10_000)
def _sha256(content: bytes) -> str:
    """Units share their headers."""
    return hashlib.sha256(content).hexdigest()


@dataclass(frozen=True, slots=True)
class CompiledImage:
    """A translation unit compiled for one architecture.

    ``entries`` are the lowered names of the kernels that the image really holds, ``variables`` those of
    its ``__device__`` and ``__constant__`` variables. ``sizes`` counts the bytes of each kernel's parameters,
    and of each variable. ``usage`` is known of the kernels of a cubin.
    """

    architecture: Architecture
    data: bytes
    entries: tuple[str, ...]
    variables: tuple[str, ...]
    sizes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    log: str = ""
    usage: Mapping[str, Usage] = field(default_factory=dict)
    trace: Trace = field(default=NO_TRACE, compare=False)


@dataclass(frozen=True, slots=True)
class SurveyedKernel:
    """A kernel as the compiler describes it: C++ name with namespaces, lowered name, parameters."""

    name: str
    lowered: str
    parameters: tuple[Parameter, ...]


@dataclass(frozen=True, slots=True)
class SurveyedSymbol:
    """A variable in device memory as the compiler describes it; ``size`` counts bytes."""

    name: str
    lowered: str
    space: Literal["constant", "device"]
    type: str
    size: int


@dataclass(frozen=True, slots=True)
class Survey:
    """The kernels and variables of a translation unit, by lowered name.

    ``variables`` are the names of all variables that were seen: besides ``symbols``, those that are
    nobody's business. ``names`` is the name map: each requested name expression with its lowered name.
    """

    kernels: Mapping[str, SurveyedKernel]
    symbols: Mapping[str, SurveyedSymbol]
    variables: frozenset[str] = frozenset()
    names: Mapping[str, str] = field(default_factory=dict)
    trace: Trace = field(default=NO_TRACE, compare=False)


class Described(Protocol):
    """What planning asks of a compiler."""

    @property
    def name(self) -> str:
        """``nvrtc`` or ``nvcc``."""

    @property
    def version(self) -> str:
        """Its CUDA version, ``13.5``."""

    def capabilities(self) -> tuple[int, ...]:
        """The compute capabilities that it compiles for, ``(75, 80, ...)``."""

    def supports(self, architecture: Architecture) -> bool:
        """Whether it compiles for exactly this architecture, suffix included."""


class Compiler(Described, Protocol):
    """The pure function: the same unit and architecture give the same image, anywhere.

    ``compile`` and ``survey`` raise :class:`~cuda_ext.errors.CompilationError` with the compiler's own text.
    Making an instance is cheap; what it says or does first may load libraries and run programs.
    """

    def remember(self, version: str) -> None:
        """Take its version from whoever asked it before, so that it need not be loaded for that."""

    def files(self) -> Sequence[Path]:
        """The programs and libraries that it consists of: two compilers with the same files are the same.

        Empty where nobody knows; then ``version`` has to do.
        """

    def search_path(self, unit: TranslationUnit) -> Sequence[Path]:
        """The directories in which it looks up the headers of others, in order."""

    def compile(
        self, unit: TranslationUnit, architectures: Sequence[Architecture]
    ) -> tuple[CompiledImage, ...]:
        """Compile `unit` for each of `architectures`: one, or a cubin and the PTX on the way to it."""

    def survey(self, unit: TranslationUnit, architecture: Architecture) -> Survey:
        """Ask the compiler for names and types, in a pass of its own that ships nothing."""
