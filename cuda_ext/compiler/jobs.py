"""Jobs as data. Any process on any machine can do one, and sends its product as bytes.

A job is one pass of one tool. :mod:`cuda_ext.toolchain.compile_library` does jobs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Literal, NamedTuple

from cuda_ext.compiler.products import NO_TRACE, CompiledImage
from cuda_ext.compiler.translation_unit import TranslationUnit
from cuda_ext.errors import CompilationError
from cuda_ext.facts import codec
from cuda_ext.facts.architecture import Architecture, ImageKind

# An image for each architecture of a job.
Product = tuple[CompiledImage, ...]
Outcome = Product | CompilationError


class CompileJob(NamedTuple):
    """Compile `unit` for one architecture, or for a cubin and the PTX of the same target."""

    unit: TranslationUnit
    architectures: tuple[Architecture, ...]
    action: Literal["compile"] = "compile"

    @property
    def name(self) -> str:
        return self.unit.name

    @property
    def units(self) -> tuple[TranslationUnit, ...]:
        """The units whose headers the job reads."""
        return (self.unit,)

    def __str__(self) -> str:
        return f"{self.unit.name} {', '.join(map(str, self.architectures))}"


class LinkInput(NamedTuple):
    """An object to link; ``name`` appears in errors. If there is ``text``, it is linked instead."""

    name: str
    kind: ImageKind
    data: bytes
    text: bytes = b""


class LinkJob(NamedTuple):
    """Link `inputs`, or assemble a single one, for the one architecture; ``name`` is for messages."""

    name: str
    inputs: tuple[LinkInput, ...]
    architectures: tuple[Architecture]
    action: Literal["link"] = "link"

    @property
    def units(self) -> tuple[TranslationUnit, ...]:
        """Nothing: a link reads no headers."""
        return ()

    def __str__(self) -> str:
        return f"{self.name} {self.architectures[0]}"


Job = CompileJob | LinkJob


def encode_product(product: Product) -> tuple[bytes, ...]:
    """Encode each image, without its trace."""
    return tuple(codec.encode(replace(image, trace=NO_TRACE)) for image in product)


def decode_product(job: Job, contents: Sequence[bytes]) -> Product:
    """Decode the product of `job`. Raises :class:`~cuda_ext.facts.codec.DecodingError`."""
    images = tuple(codec.decode(CompiledImage, content) for content in contents)
    if tuple(image.architecture for image in images) != job.architectures:
        raise codec.DecodingError(f"not the images of {job}")
    return images
