"""Read and join fatbins without any CUDA library. :mod:`cuda_ext.toolchain.nvfatbin` writes them.

A fatbin is a container of entries, one per image. :func:`read_fatbin` checks every byte of it: damage
raises a :class:`~cuda_ext.errors.FatbinError` with the reason and the offset.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from cuda_ext.errors import FatbinError
from cuda_ext.facts.architecture import Architecture, ImageKind

Codec = Literal["none", "lz4", "zstd"]


@dataclass(frozen=True, slots=True)
class FatbinEntry:
    """An image in a fatbin, ``offset`` bytes from the start.

    ``stored`` is the payload, perhaps compressed; ``size`` is that of the uncompressed image.
    ``scrambled`` marks LTO-IR in a form that only NVIDIA's libraries read.
    """

    offset: int
    kind: ImageKind
    architecture: str
    codec: Codec
    scrambled: bool
    size: int
    stored: bytes = field(repr=False)

    def payload(self) -> bytes:
        """Return the uncompressed image; PTX without its terminating zero byte.

        Uncompressed cubins and LTO-IR are padded by up to seven zero bytes, as a fatbin does not contain
        their exact size.
        """
        if self.scrambled:
            raise self._error("is scrambled, and only NVIDIA's libraries read it")
        try:
            payload = self._uncompressed()
        except ImportError as error:
            raise self._error(
                f"requires the Python package {error.name}",
                "install it, for a build in [build-system] requires",
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
                # zstandard allocates the size that the frame claims.
                if frame_content_size(self.stored) != self.size:
                    raise self._error(f"is damaged: not a zstd frame of {self.size} bytes")
                return ZstdDecompressor().decompress(self.stored, allow_extra_data=False)
            except ZstdError as error:
                raise self._error(f"is damaged: {error}") from None
        return self.stored

    def _error(self, problem: str, remedy: str = "") -> FatbinError:
        return _error(self.offset, f"{self.architecture} {problem}", remedy)


def read_fatbin(data: bytes) -> tuple[FatbinEntry, ...]:
    """List the entries of a fatbin, or of several concatenated ones, in their order.

    Raises :class:`FatbinError` unless every byte of `data` belongs to a valid container.
    """
    if not data:
        raise FatbinError("empty", where="fatbin", remedy="build it again")
    entries = []
    offset = 0
    while offset < len(data):
        header = _take(data, offset, _CONTAINER.size, len(data), "container")
        magic, version, header_size, size = _CONTAINER.unpack(header)
        if (magic, version, header_size) != (_MAGIC, _VERSION, _CONTAINER.size):
            raise _error(offset, "no container begins here")
        end = offset + header_size + size
        if end > len(data):
            raise _error(len(data), f"cut off {end - len(data)} bytes early")
        offset += header_size
        while offset < end:
            entry, offset = _read_entry(data, offset, end)
            entries.append(entry)
    return tuple(entries)


def join_fatbins(fatbins: Sequence[bytes]) -> bytes:
    """Join the entries of `fatbins`, each of one container: the result is as if written as one fatbin."""
    entries = b"".join(fatbin[_CONTAINER.size :] for fatbin in fatbins)
    return _CONTAINER.pack(_MAGIC, _VERSION, _CONTAINER.size, len(entries)) + entries


class _EntryHeader(NamedTuple):
    """The header of an entry. An identifier and options may follow, which are not read, then the payload."""

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


_MAGIC, _VERSION = 0xBA55ED50, 1
_CONTAINER = struct.Struct("<IHHQ")  # magic, version, size of this header, size of the entries
_ENTRY = struct.Struct("<HHIQIIHHIIIQQQ")

_KINDS: dict[int, ImageKind] = {1: "ptx", 2: "cubin", 8: "ltoir", 0x80: "tileir"}
_CODECS: dict[int, Codec] = {0: "none", 0x2000: "lz4", 0x8000: "zstd"}
_SUFFIXES = {0: "", 0x100000: "a", 0x200000: "f"}
_SCRAMBLED = 0x10000

# The largest expansion of one stored byte: LZ4 sums lengths from bytes of at most 255, and zstd
# fills a block of 128 KiB from four bytes.
_GROWTH: dict[Codec, int] = {"none": 1, "lz4": 255, "zstd": 1 << 15}
_LARGEST_IMAGE = 1 << 30


def _read_entry(data: bytes, start: int, end: int) -> tuple[FatbinEntry, int]:
    """Read the entry at `start` of a container that ends at `end`; return it and the offset of its end."""
    header = _EntryHeader(*_ENTRY.unpack(_take(data, start, _ENTRY.size, end, "entry")))
    kind = _KINDS.get(header.kind)
    codec = _CODECS.get(header.flags & sum(_CODECS))
    suffix = _SUFFIXES.get(header.flags & sum(_SUFFIXES))
    if header.version != 0x101 or kind is None or codec is None or suffix is None:
        raise _error(
            start,
            f"unknown sort of entry: kind {header.kind:#x}, version {header.version:#x}, "
            f"flags {header.flags:#x}",
        )
    architecture = str(Architecture(kind, header.architecture, suffix))
    try:
        Architecture.parse(architecture)
    except ValueError:
        raise _error(start, f"{architecture} is not an architecture") from None
    payload = start + header.header_size
    if not start + _ENTRY.size <= payload <= end:
        raise _error(start, f"header of {header.header_size} bytes")

    stored = _take(data, payload, header.padded_size, end, "payload")
    size = len(stored)
    if codec != "none":
        stored = _take(data, payload, header.compressed_size, payload + size, "payload")
        size = header.size
    if size > min(len(stored) * _GROWTH[codec], _LARGEST_IMAGE):
        raise _error(payload, f"{size} bytes out of {len(stored)}")

    entry = FatbinEntry(
        offset=start,
        kind=kind,
        architecture=architecture,
        codec=codec,
        scrambled=bool(header.flags & _SCRAMBLED),
        size=size,
        stored=stored,
    )
    return entry, payload + header.padded_size


def _take(data: bytes, offset: int, size: int, end: int, what: str) -> bytes:
    """Return the `size` bytes at `offset`, which must not exceed `end`."""
    if offset + size > end:
        raise _error(offset, f"{what} of {size} bytes ends behind {end}")
    return data[offset : offset + size]


def _error(offset: int, problem: str, remedy: str = "") -> FatbinError:
    return FatbinError(problem, where=f"fatbin, offset {offset}", remedy=remedy)
