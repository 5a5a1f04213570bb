"""Read fatbins without any CUDA library. :mod:`cuda_ext.toolchain.nvfatbin` writes them.

A fatbin is a container of entries, one per image. :func:`read_fatbin` checks every byte of it: damage
is a :class:`~cuda_ext.errors.FatbinError` that says what is wrong and at which offset.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from cuda_ext.errors import FatbinError
from cuda_ext.formats.architecture import Architecture
from cuda_ext.manifest import ImageKind

__all__ = ["Codec", "FatbinEntry", "read_fatbin"]

Codec = Literal["none", "lz4", "zstd"]


@dataclass(frozen=True, slots=True)
class FatbinEntry:
    """An image as it lies in a fatbin, ``offset`` bytes from the start.

    ``stored`` is the payload as it lies there; ``size`` counts its bytes when uncompressed.
    ``identifier`` and ``options`` (for compilation by the driver) are empty unless the maker of the
    fatbin gave them. ``scrambled`` marks LTO-IR in a form that only NVIDIA's libraries read.
    """

    offset: int
    kind: ImageKind
    architecture: str
    codec: Codec
    scrambled: bool
    size: int
    identifier: str
    options: str
    stored: bytes = field(repr=False)

    def payload(self) -> bytes:
        """The uncompressed image; PTX comes without the zero byte that ends it.

        A fatbin does not tell the exact size of what it stores uncompressed: up to seven zero bytes
        follow such a cubin or LTO-IR.
        """
        if self.scrambled:
            raise self._error("is scrambled, and only NVIDIA's libraries read it")
        try:
            payload = self._uncompressed()
        except ImportError as error:
            raise self._error(
                f"takes the Python package {error.name}; install it, for a build in [build-system] requires"
            ) from None
        if len(payload) != self.size:
            raise self._error(f"is damaged: {len(payload)} bytes instead of {self.size}")
        return payload.rstrip(b"\0") if self.kind == "ptx" else payload

    def _uncompressed(self) -> bytes:
        if self.codec == "lz4":
            from lz4.block import LZ4BlockError, decompress

            try:
                return bytes(decompress(self.stored, uncompressed_size=self.size))
            except LZ4BlockError as error:
                raise self._error(f"is damaged: {error}") from None
        if self.codec == "zstd":
            from zstandard import ZstdDecompressor, ZstdError, frame_content_size

            try:
                # zstandard allocates whatever size the frame claims.
                if frame_content_size(self.stored) != self.size:
                    raise self._error(f"is damaged: not a zstd frame of {self.size} bytes")
                return ZstdDecompressor().decompress(self.stored, allow_extra_data=False)
            except ZstdError as error:
                raise self._error(f"is damaged: {error}") from None
        return self.stored

    def _error(self, problem: str) -> FatbinError:
        return FatbinError(f"fatbin, offset {self.offset}: {self.architecture} {problem}")


def read_fatbin(data: bytes) -> tuple[FatbinEntry, ...]:
    """List the entries of a fatbin, or of several that follow each other, in their order.

    Raises :class:`FatbinError` unless every byte of `data` belongs to a well-formed container.
    """
    if not data:
        raise FatbinError("fatbin: empty; make it again")
    entries = []
    offset = 0
    while offset < len(data):
        header = _take(data, offset, _CONTAINER.size, len(data), "container")
        magic, version, header_size, size = _CONTAINER.unpack(header)
        if (magic, version, header_size) != (0xBA55ED50, 1, _CONTAINER.size):
            raise FatbinError(f"fatbin, offset {offset}: no container begins here")
        end = offset + header_size + size
        if end > len(data):
            raise FatbinError(f"fatbin, offset {len(data)}: cut off {end - len(data)} bytes early")
        offset += header_size
        while offset < end:
            entry, offset = _read_entry(data, offset, end)
            entries.append(entry)
    return tuple(entries)


class _EntryHeader(NamedTuple):
    """How an entry begins. Its texts follow, then its payload; offsets count from its start."""

    kind: int
    version: int
    header_size: int  # with the texts
    padded_size: int
    compressed_size: int
    options_offset: int
    code_minor: int
    code_major: int
    architecture: int
    identifier_offset: int
    identifier_size: int
    flags: int
    scramble_key: int
    size: int


_CONTAINER = struct.Struct("<IHHQ")  # magic, version, size of this header, size of the entries
_ENTRY = struct.Struct("<HHIQIIHHIIIQQQ")
_OPTIONS = struct.Struct("<II")  # offset and size of the text

_KINDS: dict[int, ImageKind] = {1: "ptx", 2: "cubin", 8: "ltoir"}
_CODECS: dict[int, Codec] = {0: "none", 0x2000: "lz4", 0x8000: "zstd"}
_SUFFIXES = {0: "", 0x100000: "a", 0x200000: "f"}
_SCRAMBLED = 0x10000

# The most that one stored byte stands for: LZ4 adds up lengths from bytes of at most 255, and zstd
# fills a block of 128 KiB from four bytes.
_GROWTH: dict[Codec, int] = {"none": 1, "lz4": 255, "zstd": 1 << 15}
_LARGEST_IMAGE = 1 << 30


def _read_entry(data: bytes, start: int, end: int) -> tuple[FatbinEntry, int]:
    """Read the entry at `start` of a container that ends at `end`; also tell where it ends."""
    header = _EntryHeader(*_ENTRY.unpack(_take(data, start, _ENTRY.size, end, "entry")))
    kind = _KINDS.get(header.kind)
    codec = _CODECS.get(header.flags & sum(_CODECS))
    suffix = _SUFFIXES.get(header.flags & sum(_SUFFIXES))
    if header.version != 0x101 or kind is None or codec is None or suffix is None:
        raise FatbinError(
            f"fatbin, offset {start}: unknown sort of entry: kind {header.kind:#x}, "
            f"version {header.version:#x}, flags {header.flags:#x}"
        )
    payload = start + header.header_size
    if not start + _ENTRY.size <= payload <= end:
        raise FatbinError(f"fatbin, offset {start}: header of {header.header_size} bytes")

    stored = _take(data, payload, header.padded_size, end, "payload")
    size = len(stored)
    if codec != "none":
        stored = _take(data, payload, header.compressed_size, payload + size, "payload")
        size = header.size
    if size > min(len(stored) * _GROWTH[codec], _LARGEST_IMAGE):
        raise FatbinError(f"fatbin, offset {payload}: {size} bytes out of {len(stored)}")

    def text(offset: int, size: int) -> str:
        found = _take(data, start + offset, size, payload, "text")
        return found.decode(errors="backslashreplace")

    options = (0, 0)
    # Newer cubins have binary attributes in place of options.
    if header.options_offset and kind != "cubin":
        span = start + header.options_offset
        options = _OPTIONS.unpack(_take(data, span, _OPTIONS.size, payload, "options"))
    entry = FatbinEntry(
        offset=start,
        kind=kind,
        architecture=str(Architecture(kind, header.architecture, suffix)),
        codec=codec,
        scrambled=bool(header.flags & _SCRAMBLED),
        size=size,
        identifier=text(header.identifier_offset, header.identifier_size),
        options=text(*options),
        stored=stored,
    )
    return entry, payload + header.padded_size


def _take(data: bytes, offset: int, size: int, end: int, what: str) -> bytes:
    """The `size` bytes at `offset`, if they end before `end`."""
    if offset + size > end:
        raise FatbinError(f"fatbin, offset {offset}: {what} of {size} bytes ends behind {end}")
    return data[offset : offset + size]
