"""Read what the bytes of images show, as ``cuda-ext inspect`` and the report of a build do."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from importlib.util import find_spec
from typing import Literal, NamedTuple

from cuda_ext.errors import BuildError
from cuda_ext.facts.architecture import TILE_IR, ImageKind
from cuda_ext.facts.kernels import Kernel
from cuda_ext.facts.manifest import Image
from cuda_ext.facts.symbols import Symbol
from cuda_ext.formats import ptx
from cuda_ext.formats.cubin import Resources, read_cubin, read_sizes
from cuda_ext.formats.definitions import Definitions, read_definitions
from cuda_ext.formats.fatbin import Codec, FatbinEntry, read_fatbin
from cuda_ext.formats.tile_ir import MAGIC

# How a fatbin and an ELF file begin, and the machine in the header of a cubin.
_FATBIN, _ELF = (0xBA55ED50).to_bytes(4, "little"), b"\x7fELF"
_MACHINE, _CUDA = slice(18, 20), (190).to_bytes(2, "little")
# The Python packages that decompress images.
_DECOMPRESSORS = {"lz4": "lz4", "zstd": "zstandard"}
_PURPOSES: Mapping[ImageKind, str] = {"ptx": "PTX", "ltoir": "LTO-IR", "tileir": "Tile IR"}


class ImageContent(NamedTuple):
    """The kernels, variables and sizes of an image.

    ``stored`` counts the bytes in the fatbin, where they may be compressed; ``parts`` counts those of the
    image by purpose. ``missing`` is the Python package that could decompress it, and is not installed.
    ``kernels`` have the resources that a cubin shows, by lowered name; in a module with a manifest, by name
    expression. Such an image has the title of its ``unit``.
    """

    architecture: str
    kind: ImageKind
    codec: Codec
    stored: int
    size: int
    parts: Mapping[str, int]
    kernels: Mapping[str, Resources | None] = {}
    variables: Mapping[str, Symbol] = {}
    missing: str | None = None
    unit: str = ""


def format_of(data: bytes) -> Literal["fatbin", "cubin", "ptx", "tileir"] | None:
    """Return the format of `data`; ``None`` for all others, of which LTO-IR is one."""
    if data.startswith(_FATBIN):
        return "fatbin"
    if data.startswith(_ELF):
        return "cubin" if data[_MACHINE] == _CUDA else None
    if data.startswith(MAGIC):
        return "tileir"
    return "ptx" if ptx.target(data) else None


def read_images(data: bytes, architecture: str = "") -> list[ImageContent]:
    """Read the images in `data`: those of a fatbin, or the only one.

    `architecture` is that of an image which does not contain its own. Raises
    :class:`~cuda_ext.errors.BuildError` or :class:`~cuda_ext.errors.FatbinError` for damaged data.
    """
    return [_read_image(entry) for entry in _list_images(data, architecture)]


def select_image(
    image: Image, contents: Sequence[ImageContent], kernels: Iterable[Kernel]
) -> ImageContent | None:
    """Find the `image` of a manifest among the `contents` of its file, with resources by name expression.

    Of the `kernels` of its unit, it has those that the manifest says it contains.
    """
    by_architecture = {content.architecture: content for content in contents}
    # The only image of a file need not contain its architecture.
    content = contents[0] if len(contents) == 1 else by_architecture.get(image.architecture)
    if content is None:
        return None
    names = {kernel.expression: image.names.get(kernel.expression, kernel.lowered) for kernel in kernels}
    resources = {name: content.kernels.get(lowered) for name, lowered in names.items() if lowered is not None}
    return content._replace(architecture=image.architecture, kernels=resources, variables={})


def join_images(images: Iterable[ImageContent]) -> ImageContent:
    """Return one record with the sizes of all `images`; whatever else it has is that of the first one."""
    listed = list(images)
    parts: Counter[str] = Counter()
    for image in listed:
        parts.update(image.parts)
    sizes = sum(image.size for image in listed), sum(image.stored for image in listed)
    first = listed[0] if listed else ImageContent("", "cubin", "none", 0, 0, {})
    return first._replace(size=sizes[0], stored=sizes[1], parts=parts)


def _list_images(data: bytes, architecture: str) -> list[FatbinEntry]:
    kind: ImageKind
    match format_of(data):
        case "fatbin":
            return [*read_fatbin(data)]
        case "cubin":
            kind, architecture = "cubin", str(read_cubin(data).target or architecture)
        case "ptx":
            kind, architecture = "ptx", str(ptx.target(data))
        case "tileir":
            kind, architecture = "tileir", str(TILE_IR)
        case None:
            kind = "ltoir"
    return [FatbinEntry(0, kind, architecture, "none", False, len(data), data)]


def _read_image(entry: FatbinEntry) -> ImageContent:
    decompressor = _DECOMPRESSORS.get(entry.codec)
    missing = decompressor if decompressor and find_spec(decompressor) is None else None
    parts = {_PURPOSES.get(entry.kind, "other"): entry.size}
    definitions = Definitions()
    if entry.kind != "ltoir" and not missing:
        try:
            data = entry.payload()
            definitions = read_definitions(entry.kind, data)
            if entry.kind == "cubin":
                parts = read_sizes(data)
        except BuildError as error:
            raise BuildError(str(error), where=entry.architecture) from None
    return ImageContent(
        architecture=entry.architecture,
        kind=entry.kind,
        codec=entry.codec,
        stored=len(entry.stored),
        size=entry.size,
        parts=parts,
        kernels={name: definitions.usage.get(name) for name in definitions.kernels},
        variables=definitions.variables,
        missing=missing,
    )
