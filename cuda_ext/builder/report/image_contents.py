"""Count the bytes of each image by purpose, such as code and constants, and the bytes that ship."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import reduce

from cuda_ext.compiler.products import Library
from cuda_ext.errors import CudaExtError
from cuda_ext.facts.architecture import ImageKind
from cuda_ext.formats.cubin import read_sizes
from cuda_ext.formats.fatbin import read_fatbin

_TEXTS: dict[ImageKind, str] = {"ptx": "PTX", "ltoir": "LTO-IR", "tileir": "Tile IR"}


@dataclass(frozen=True, slots=True)
class ImageContents:
    """The bytes of an image or of several: ``stored`` in files, and ``parts`` before compression."""

    stored: int
    parts: Mapping[str, int]

    @property
    def size(self) -> int:
        return sum(self.parts.values())


def read_contents_of(library: Library) -> list[ImageContents]:
    """Read the contents of the images of `library`, in their order."""
    stored: dict[tuple[str, str], tuple[int, bytes]] = {}
    images = library.unit.images
    for file in {image.file for image in images}:
        data = library.files[file]
        if file.endswith(".fatbin"):
            for entry in read_fatbin(data):
                stored[file, entry.architecture] = len(entry.stored), entry.payload()
        else:
            stored |= {(file, i.architecture): (len(data), data) for i in images if i.file == file}
    contents = []
    for image in images:
        size, data = stored.get((image.file, image.architecture), (0, b""))
        contents.append(ImageContents(size, _parts(image.kind, data, image.size)))
    return contents


def _parts(kind: ImageKind, data: bytes, size: int) -> Mapping[str, int]:
    if kind != "cubin":
        return {_TEXTS[kind]: size}
    try:
        return read_sizes(data)
    except CudaExtError:
        return {"other": size}


def sum_contents(several: Iterable[ImageContents]) -> ImageContents:
    """Return the contents of all images together."""

    def add(one: ImageContents, other: ImageContents) -> ImageContents:
        return ImageContents(one.stored + other.stored, Counter(one.parts) + Counter(other.parts))

    return reduce(add, several, ImageContents(0, {}))
