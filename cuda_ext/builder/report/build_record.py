"""One build as data: its compilations, images, kernels and files.

:mod:`~cuda_ext.builder.report.build_log` fills a :class:`BuildRecord`; the page and the trace show it. A page
carries its own record, so that the page of the next build can show the difference.
"""

from __future__ import annotations

import base64
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal

from cuda_ext.builder.report.difference import Build
from cuda_ext.compiler.products import Span
from cuda_ext.formats.codec import decode, encode
from cuda_ext.formats.resources import Usage

__all__ = [
    "Action",
    "BuildRecord",
    "ImageRecord",
    "JobRecord",
    "KernelRecord",
    "Outcome",
    "decode_record",
    "encode_record",
]

Action = Literal["compile", "reflect", "link"]
Outcome = Literal["compiled", "cached", "failed"]

# Bytes of a record before compression; a page that claims more is not one of ours.
_LARGEST = 1 << 30


@dataclass(frozen=True, slots=True)
class JobRecord:
    """One job: a translation unit for one architecture, or for several that are compiled together.

    A ``reflect`` job only determines names and types. ``worker`` is a number, and empty for a job that came
    from the cache or failed. ``start`` counts seconds since the build
    began.
    """

    module: str
    unit: str
    architecture: str
    action: Action
    outcome: Outcome
    worker: str
    start: float
    duration: float
    spans: tuple[Span, ...] = ()


@dataclass(frozen=True, slots=True)
class KernelRecord:
    """A kernel in one cubin."""

    module: str
    unit: str
    kernel: str
    architecture: str
    usage: Usage


@dataclass(frozen=True, slots=True)
class ImageRecord:
    """One image; ``size`` counts its bytes before compression."""

    module: str
    unit: str
    architecture: str
    size: int


@dataclass(frozen=True, slots=True)
class BuildRecord:
    """One build of a project.

    ``started`` is ISO 8601, local time with its offset; ``compilers`` are names with versions
    (``nvrtc 13.5``); ``fatbins`` maps paths to bytes as shipped.
    """

    project: str
    started: str
    duration: float
    workers: int
    compilers: tuple[str, ...]
    jobs: tuple[JobRecord, ...]
    images: tuple[ImageRecord, ...]
    kernels: tuple[KernelRecord, ...]
    fatbins: Mapping[str, int]

    @property
    def build(self) -> Build[int]:
        """What is compared with another build."""
        return Build(
            images={(image.module, image.unit, image.architecture): image.size for image in self.images},
            kernels={
                (kernel.module, kernel.unit, kernel.kernel, kernel.architecture): kernel.usage
                for kernel in self.kernels
            },
            files={(path,): size for path, size in self.fatbins.items()},
        )


def encode_record(record: BuildRecord) -> str:
    """Encode `record` as text without markup. Spans are left out: they are many, and are not compared."""
    jobs = tuple(replace(job, spans=()) for job in record.jobs)
    return base64.b64encode(zlib.compress(encode(replace(record, jobs=jobs)), 9)).decode()


def decode_record(text: str) -> BuildRecord:
    """Decode what :func:`encode_record` returned. Raises :class:`ValueError` for anything else."""
    decompressor = zlib.decompressobj()
    try:
        data = decompressor.decompress(base64.b64decode(text, validate=True), _LARGEST)
    except zlib.error as error:
        raise ValueError(str(error)) from None
    if not decompressor.eof:
        raise ValueError("the record is cut off")
    return decode(BuildRecord, data)
