"""Jobs as data: what any process on any machine can do, with products that travel as bytes.

:mod:`cuda_ext.toolchain.compile_library` does them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Literal

from cuda_ext.compiler.products import NO_TRACE, CompiledImage, Signatures
from cuda_ext.compiler.translation_unit import TranslationUnit
from cuda_ext.errors import CompilationError
from cuda_ext.formats import codec
from cuda_ext.formats.architecture import Architecture
from cuda_ext.manifest import ImageKind

__all__ = [
    "CompileJob",
    "Job",
    "LinkInput",
    "LinkJob",
    "Outcome",
    "Product",
    "SignatureJob",
    "decode_product",
    "encode_product",
    "group_jobs",
]

Product = CompiledImage | Signatures
Outcome = Product | CompilationError


@dataclass(frozen=True, slots=True)
class _UnitJob:
    unit: TranslationUnit
    architecture: Architecture

    @property
    def name(self) -> str:
        return self.unit.name

    @property
    def units(self) -> tuple[TranslationUnit, ...]:
        """The units whose headers the job reads."""
        return (self.unit,)


@dataclass(frozen=True, slots=True)
class CompileJob(_UnitJob):
    """Compile `unit` for `architecture`."""

    action: Literal["compile"] = "compile"

    def __str__(self) -> str:
        return f"{self.name} {self.architecture}"


@dataclass(frozen=True, slots=True)
class SignatureJob(_UnitJob):
    """Read the signatures of `unit` as compiled for `architecture`."""

    action: Literal["reflect"] = "reflect"

    def __str__(self) -> str:
        return f"{self.name} names"


@dataclass(frozen=True, slots=True)
class LinkInput:
    """One object to link; ``name`` appears in errors."""

    name: str
    kind: ImageKind
    data: bytes


@dataclass(frozen=True, slots=True)
class LinkJob:
    """Link `inputs`, or assemble a single one, for `architecture`; ``name`` is for messages."""

    name: str
    inputs: tuple[LinkInput, ...]
    architecture: Architecture
    action: Literal["link"] = "link"

    @property
    def units(self) -> tuple[TranslationUnit, ...]:
        """None: a link reads no headers."""
        return ()

    def __str__(self) -> str:
        return f"{self.name} {self.architecture}"


Job = CompileJob | SignatureJob | LinkJob


def group_jobs(jobs: Iterable[Job]) -> list[tuple[Job, ...]]:
    """Group `jobs` that one pass of a compiler does: the cubin and the PTX of one target."""
    groups: dict[object, list[Job]] = {}
    for job in jobs:
        key: object = job
        if isinstance(job, CompileJob) and job.architecture.kind != "ltoir":
            key = job.unit, job.architecture.target
        groups.setdefault(key, []).append(job)
    return [tuple(group) for group in groups.values()]


def encode_product(product: Product) -> bytes:
    """Encode `product` without its trace."""
    return codec.encode(replace(product, trace=NO_TRACE))


def decode_product(job: Job, content: bytes) -> Product:
    """Decode the product of `job`. Raises :class:`~cuda_ext.formats.codec.DecodingError`."""
    if isinstance(job, SignatureJob):
        return codec.decode(Signatures, content)
    return codec.decode(CompiledImage, content)
