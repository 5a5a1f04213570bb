"""Images, read from the bytes in which they arrive: fatbins, cubins, PTX, and LTO-IR, which does not tell."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec

from cuda_ext.cli.inspect.contents import Image
from cuda_ext.cli.terminal import Failure
from cuda_ext.errors import BuildError, FatbinError
from cuda_ext.formats import ptx
from cuda_ext.formats.cubin import read_cubin
from cuda_ext.formats.fatbin import FatbinEntry, read_fatbin
from cuda_ext.formats.ptx import PtxVariable
from cuda_ext.formats.resources import Resources, read_resources
from cuda_ext.manifest import ImageKind

__all__ = ["ReadImage", "format_of", "read_images"]

# What begins a fatbin and an ELF file, and what such a file says of cubins only.
_FATBIN, _ELF = (0xBA55ED50).to_bytes(4, "little"), b"\x7fELF"
_MACHINE, _CUDA = slice(18, 20), (190).to_bytes(2, "little")
# The Python packages that read what is compressed.
_READERS = {"lz4": "lz4", "zstd": "zstandard"}


@dataclass(frozen=True, slots=True)
class ReadImage:
    """An image, with what it tells of its kernels and variables, by lowered name."""

    image: Image
    kernels: Mapping[str, Resources | None] = field(default_factory=dict)
    variables: Mapping[str, PtxVariable] = field(default_factory=dict)


def format_of(data: bytes) -> str | None:
    """``fatbin``, or the kind of an image; ``None`` if `data` is neither, or LTO-IR."""
    if data.startswith(_FATBIN):
        return "fatbin"
    if data.startswith(_ELF):
        return "cubin" if data[_MACHINE] == _CUDA else None
    return "ptx" if ptx.target(data) else None


def read_images(data: bytes, file: str, where: str, architecture: str = "") -> Sequence[ReadImage]:
    """What is in `data`, the bytes of `file`; `where` names it in errors.

    `architecture` is taken for that of an image which does not tell. Raises :class:`Failure` for what is
    damaged.
    """
    try:
        match format_of(data):
            case "fatbin":
                return [_from_fatbin(entry, file) for entry in read_fatbin(data)]
            case "cubin":
                return [
                    _read(_alone("cubin", str(read_cubin(data).target or architecture), data, file), data)
                ]
            case "ptx":
                return [_read(_alone("ptx", str(ptx.target(data)), data, file), data)]
            case _:
                return [ReadImage(_alone("ltoir", architecture, data, file))]
    except (BuildError, FatbinError) as error:
        raise Failure(f"{where}: {error}; build, install or download it again") from None


def _alone(kind: ImageKind, architecture: str, data: bytes, file: str) -> Image:
    return Image(architecture, kind, file, "none", len(data), len(data))


def _from_fatbin(entry: FatbinEntry, file: str) -> ReadImage:
    reader = _READERS.get(entry.codec)
    missing = reader if reader and find_spec(reader) is None else None
    image = Image(entry.architecture, entry.kind, file, entry.codec, len(entry.stored), entry.size, missing)
    if missing or entry.kind == "ltoir":
        return ReadImage(image)
    try:
        return _read(image, entry.payload())
    except BuildError as error:
        raise BuildError(f"{entry.architecture}: {error}") from None


def _read(image: Image, data: bytes) -> ReadImage:
    if image.kind == "ptx":
        return ReadImage(image, dict.fromkeys(ptx.kernels(data)), ptx.variables(data))
    return ReadImage(image, read_resources(data), read_cubin(data).variables)
