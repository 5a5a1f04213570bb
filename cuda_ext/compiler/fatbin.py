"""Fatbins: nvFatbin makes them, and this module reads them back without any CUDA library.

A fatbin is a container of entries, one per image. :func:`read_fatbin` trusts no byte of it: damage
is a :class:`~cuda_ext.errors.FatbinError` that says what is wrong and at which offset.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Literal

from cuda_ext.compiler.architectures import Architecture
from cuda_ext.errors import BuildError, FatbinError, ToolchainError
from cuda_ext.manifest import ImageKind

__all__ = ["Compress", "Compression", "FatbinEntry", "FatbinImage", "make_fatbin", "read_fatbin"]

Compress = Literal["none", "speed", "balance", "size"]
Compression = Literal["none", "lz4", "zstd"]


@dataclass(frozen=True, slots=True)
class FatbinImage:
    """An image on its way into a fatbin; ``architecture`` is spelled as nvcc spells it."""

    kind: ImageKind
    architecture: str
    data: bytes


def make_fatbin(images: Iterable[FatbinImage], compress: Compress) -> bytes:
    """Put `images` into one fatbin, in their order. The same images give the same bytes everywhere.

    ``"speed"`` compresses with LZ4, which every driver reads; ``"balance"`` and ``"size"`` with zstd,
    which takes a driver of CUDA 12.4 or newer. nvFatbin keeps cubins and LTO-IR as they are, and
    drops comments and indentation from PTX.
    """
    # Flags name the host: without -host, a build on Windows would differ. Without -compress-all,
    # the modes but "size" leave cubins alone. No identifiers: they would only store file names.
    options = ["-host=linux", "-compress-all", f"-compress-mode={compress}"]
    try:
        from cuda.bindings import nvfatbin

        handle = nvfatbin.create(options, len(options))
    except (ImportError, RuntimeError) as error:
        raise ToolchainError(
            f"nvFatbin is not installed: {error}; install cuda-ext[cu13] or cuda-ext[cu12]"
        ) from None
    try:
        for image in images:
            target = image.architecture.partition("_")[2]
            code = (image.data, len(image.data), target, "")
            try:
                match image.kind:
                    case "cubin":
                        nvfatbin.add_cubin(handle, *code)
                    case "ptx":
                        nvfatbin.add_ptx(handle, *code, "")
                    case "ltoir":
                        nvfatbin.add_ltoir(handle, *code, "")
            except nvfatbin.nvFatbinError as error:
                reason = nvfatbin.get_error_string(error.status)
                raise BuildError(f"nvFatbin refused the image for {image.architecture}: {reason}") from None
        fatbin = bytearray(nvfatbin.size(handle))
        nvfatbin.get(handle, fatbin)
        return bytes(fatbin)
    finally:
        nvfatbin.destroy(handle)


@dataclass(frozen=True, slots=True)
class FatbinEntry:
    """An image as it lies in a fatbin, ``offset`` bytes from the start.

    ``stored`` is the payload as it lies there, ``size`` counts its bytes when uncompressed.
    ``identifier`` and ``options`` (those of compilation by the driver) are empty unless whoever made
    the fatbin gave them. ``scrambled`` marks LTO-IR in the form that only NVIDIA's libraries read.
    """

    offset: int
    kind: ImageKind
    architecture: str
    compression: Compression
    scrambled: bool
    size: int
    identifier: str
    options: str
    stored: bytes = field(repr=False)

    def payload(self) -> bytes:
        """The image, uncompressed; PTX ends with a zero byte.

        An entry that is not compressed has no exact size: up to seven zero bytes pad its payload.
        """
        if self.scrambled:
            raise self._error("is scrambled; only NVIDIA's libraries read it")
        if self.compression == "none":
            return self.stored
        try:
            payload = self._lz4() if self.compression == "lz4" else self._zstd()
        except ImportError as error:
            raise self._error(f"needs the package {error.name} to be uncompressed") from None
        if len(payload) != self.size:
            raise self._error(f"uncompresses to {len(payload)} bytes instead of {self.size}")
        return payload

    def _lz4(self) -> bytes:
        from lz4.block import LZ4BlockError, decompress

        try:
            return bytes(decompress(self.stored, uncompressed_size=self.size))
        except LZ4BlockError as error:
            raise self._error(f"is damaged: {error}") from None

    def _zstd(self) -> bytes:
        from zstandard import ZstdDecompressor, ZstdError, frame_content_size

        try:
            # zstandard allocates what the frame claims, so the claims of frame and entry must agree.
            if frame_content_size(self.stored) != self.size:
                raise self._error("is damaged: its frame and its entry claim different sizes")
            return ZstdDecompressor().decompress(self.stored, allow_extra_data=False)
        except ZstdError as error:
            raise self._error(f"is damaged: {error}") from None

    def _error(self, problem: str) -> FatbinError:
        return FatbinError(f"fatbin: the {self.architecture} image at offset {self.offset} {problem}")


def read_fatbin(data: bytes) -> tuple[FatbinEntry, ...]:
    """List the entries of a fatbin, or of several that follow each other, in their order.

    Raises :class:`FatbinError` unless every byte of `data` belongs to a well-formed container.
    """
    if not data:
        raise FatbinError("fatbin: there are no bytes")
    entries = []
    offset = 0
    while offset < len(data):
        header = _take(data, offset, _CONTAINER.size, len(data), "a container's header")
        magic, version, header_size, size = _CONTAINER.unpack(header)
        if (magic, version, header_size) != (_MAGIC, 1, _CONTAINER.size):
            raise FatbinError(f"fatbin: no container begins at offset {offset}")
        offset += header_size
        end = offset + size
        if end > len(data):
            raise FatbinError(f"fatbin: {size} bytes should follow offset {offset}, {len(data) - offset} do")
        while offset < end:
            entry, offset = _read_entry(data, offset, end)
            entries.append(entry)
    return tuple(entries)


_MAGIC = 0xBA55ED50
_CONTAINER = struct.Struct("<IHHQ")  # magic, version, size of this header, size of the entries
_ENTRY = struct.Struct("<HHIQIIHHIIIQQQ")
_SPAN = struct.Struct("<II")  # offset, length


class _EntryHeader(NamedTuple):
    """What precedes a payload. Offsets count from the entry's start, ``header_size`` includes texts."""

    kind: int
    version: int
    header_size: int
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


_KINDS: dict[int, ImageKind] = {1: "ptx", 2: "cubin", 8: "ltoir"}
_COMPRESSIONS: dict[int, Compression] = {0: "none", 0x2000: "lz4", 0x8000: "zstd"}
_SUFFIXES = {0: "", 0x100000: "a", 0x200000: "f"}
_SCRAMBLED = 0x10000

# What one stored byte can grow to: LZ4 counts in bytes of 255, zstd makes 128 KiB out of four bytes.
_GROWTH: dict[Compression, int] = {"none": 1, "lz4": 255, "zstd": 1 << 15}
_LARGEST_IMAGE = 1 << 30


def _read_entry(data: bytes, start: int, end: int) -> tuple[FatbinEntry, int]:
    """Read the entry at `start` of a container that ends at `end`; return it with the next one's start."""
    header = _EntryHeader._make(_ENTRY.unpack(_take(data, start, _ENTRY.size, end, "an entry's header")))
    if header.version != 0x101 or header.header_size < _ENTRY.size:
        raise FatbinError(f"fatbin: no entry begins at offset {start}")
    extended = _take(data, start, header.header_size, end, "an entry's header")
    payload = start + header.header_size
    stored = _take(data, payload, header.padded_size, end, "a payload")

    kind = _KINDS.get(header.kind)
    compression = _COMPRESSIONS.get(header.flags & sum(_COMPRESSIONS))
    suffix = _SUFFIXES.get(header.flags & sum(_SUFFIXES))
    if kind is None or compression is None or suffix is None:
        raise FatbinError(
            f"fatbin: the entry at offset {start} is of unknown kind {header.kind:#x}"
            f" or has contradictory flags {header.flags:#x}"
        )
    if compression != "none":
        stored = _take(data, payload, header.compressed_size, payload + len(stored), "a compressed payload")

    def text(offset: int, size: int) -> str:
        raw = _take(extended, offset, size, len(extended), f"a text of the entry at offset {start}")
        return raw.decode(errors="backslashreplace")

    ...
