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

from cuda_ext.builder.report.difference import Build, Place
from cuda_ext.builder.scheduler.progress import Ending
from cuda_ext.compiler.products import Span
from cuda_ext.facts.codec import decode, encode
from cuda_ext.formats.cubin import Resources
from cuda_ext.formats.image_content import ImageContent

Action = Literal["compile", "link"]

# The largest size of a record before compression; a page that claims more is not one of ours.
_LARGEST = 1 << 30


@dataclass(frozen=True, slots=True)
class JobRecord:
    """One job: a translation unit for one architecture, or for several that are compiled together.

    ``worker`` is a number, and empty for a job that came from the cache or failed. ``start`` counts seconds
    since the build began.
    """

    module: str
    unit: str
    architecture: str
    action: Action
    ending: Ending
    worker: str
    start: float
    duration: float
    spans: tuple[Span, ...] = ()


@dataclass(frozen=True, slots=True)
class BuildRecord:
    """One build of a project.

    ``started`` is ISO 8601, local time with its offset; ``compilers`` are names with versions (``nvrtc
    13.5``). ``images`` are by module, unit and architecture, without definitions; ``kernels`` are those of
    cubins, by module, unit, name and architecture; ``fatbins`` are bytes as shipped, by path. A unit may have
    several images for an architecture, and some kernels have no cubin, so ``kernel_count`` and
    ``image_count`` may be larger.
    """

    project: str
    started: str
    duration: float
    workers: int
    compilers: tuple[str, ...]
    jobs: tuple[JobRecord, ...]
    images: Mapping[Place, ImageContent]
    kernels: Mapping[Place, Resources]
    fatbins: Mapping[Place, int]
    kernel_count: int = 0
    image_count: int = 0

    @property
    def build(self) -> Build:
        """The data that is compared with another build."""
        return {"images": self.sizes, "kernels": self.kernels, "files": self.fatbins}

    @property
    def sizes(self) -> dict[Place, int]:
        """The bytes of images before compression."""
        return {place: image.size for place, image in self.images.items()}


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
