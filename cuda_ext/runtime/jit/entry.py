"""Cache entries of compilation on demand: an image with its kernels and symbols, or a reference to one.

C++ programs write the same format, under other keys and without parameters
(``include/cuda_ext/on_demand/on_demand.cpp``): :data:`BEGINNING`, then the fields of the entry as
:mod:`~cuda_ext.facts.codec` writes them.
"""

from contextlib import suppress
from typing import Literal, NamedTuple

from cuda_ext.cache.store import KEY_PATTERN
from cuda_ext.facts import codec
from cuda_ext.facts.architecture import Architecture
from cuda_ext.facts.kernels import Kernel, Parameter, Symbol
from cuda_ext.formats.elf import read_elf

BEGINNING = codec.encode_fields(["cuda-ext on demand 1"])  # the first bytes of each entry


class EntryKernel(NamedTuple):
    """A kernel of an entry; ``expression`` is its normalised name expression."""

    expression: str
    lowered: str
    parameters: tuple[Parameter, ...]


class EntrySymbol(NamedTuple):
    """A variable of an entry. ``size`` is in bytes."""

    name: str
    lowered: str
    space: Literal["constant", "device"]
    type: str
    size: int


class Entry(NamedTuple):
    """An image for ``architecture``, ``sm_90a`` or ``compute_90``, with its kernels and symbols."""

    architecture: str
    image: bytes
    kernels: tuple[EntryKernel, ...]
    symbols: tuple[EntrySymbol, ...]

    def kernel(self, expression: str) -> EntryKernel | None:
        """Return the kernel with this normalised name expression, or ``None``."""
        return next((kernel for kernel in self.kernels if kernel.expression == expression), None)

    def lowered_name(self, entity: Kernel | Symbol) -> str | None:
        """Return the lowered name of a kernel or symbol in this image, or ``None`` if the image lacks it."""
        if isinstance(entity, Kernel):
            kernel = self.kernel(entity.expression)
            return kernel.lowered if kernel else None
        return next((s.lowered for s in self.symbols if s.name == entity.name), None)

    def encode(self) -> bytes:
        return BEGINNING + codec.encode(self)


class Reference(NamedTuple):
    """The ``key`` of another entry, which contains the requested kernel. ``architecture`` is ``None``."""

    architecture: str | None
    key: str

    def encode(self) -> bytes:
        return BEGINNING + codec.encode(self)


def decode_entry(content: bytes) -> Entry | Reference | None:
    """Decode an entry or a reference; ``None`` for damaged content."""
    if not content.startswith(BEGINNING):
        return None
    fields = content[len(BEGINNING) :]
    with suppress(ValueError):
        entry = codec.decode(Entry, fields)
        sizes = [symbol.size for symbol in entry.symbols]
        sizes += [n for kernel in entry.kernels for p in kernel.parameters for n in (p.size, p.offset)]
        # The driver cannot load LTO-IR.
        if Architecture.parse(entry.architecture).kind == "cubin":
            read_elf(entry.image)
        if not entry.architecture.startswith("lto") and entry.image and min(sizes, default=0) >= 0:
            return entry
    with suppress(ValueError):
        reference = codec.decode(Reference, fields)
        if reference.architecture is None and KEY_PATTERN.fullmatch(reference.key):
            return reference
    return None
