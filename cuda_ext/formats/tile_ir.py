"""Read the version, the kernels and their parameters from the bytecode of Tile IR.

Tile IR is the portable form of tile kernels: the driver compiles it for the GPU, as it does PTX.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

from cuda_ext.errors import BuildError
from cuda_ext.facts.kernels import Parameter
from cuda_ext.facts.symbols import Symbol

MAGIC = b"\x7fTileIR\0"
# NVRTC writes this kernel if a source has none.
STAND_IN = "__$dummy_kernel"
_HEADER_SIZE = len(MAGIC) + 4  # major and minor version, and two bytes of a tag
# Sections. The last one has no content.
_STRINGS, _FUNCTIONS, _TYPES, _GLOBALS, _END = 1, 2, 5, 6, 0
_IS_ALIGNED = 0x80
# Flags of a function. Since 13.5, every kernel has hints, and every function attributes of its arguments.
_IS_KERNEL, _HAS_HINTS = 2, 4
_WITH_ATTRIBUTES = (13, 5)
# Tags of types, and the sizes of values in bytes.
_POINTER, _TILE, _FUNCTION = 12, 13, 16
_SIZES = {0: 1, 1: 1, 2: 2, 3: 4, 4: 8, 5: 2, 6: 2, 7: 4, 8: 4, 9: 8, 10: 1, 11: 1, 18: 1, _POINTER: 8}


class TileIr(NamedTuple):
    """The contents of Tile IR. ``version`` is the version of its format, ``13.3``, which follows CUDA's.

    ``kernels`` maps lowered names to parameters, of which only offset and size are known. ``variables`` are
    the globals that are not constants, from format 13.5 on.
    """

    version: str
    kernels: Mapping[str, tuple[Parameter, ...]]
    variables: Mapping[str, Symbol]


def read_tile_ir(data: bytes) -> TileIr:
    """Read Tile IR. Raises :class:`BuildError` unless `data` is a complete bytecode."""
    try:
        if not data.startswith(MAGIC):
            raise ValueError("it begins in another way")
        version = data[len(MAGIC)], data[len(MAGIC) + 1]
        sections = _sections(data)
        names = [text.decode() for text in _table(sections[_STRINGS], 4)]
        types = _table(sections[_TYPES], 4)
        kernels = {
            names[name]: _parameters(types, signature)
            for name, signature in _kernels(_Reader(sections[_FUNCTIONS]), version)
            if names[name] != STAND_IN
        }
        globals_ = sections.get(_GLOBALS) if version >= _WITH_ATTRIBUTES else None
        variables = {
            names[name]: Symbol(names[name], names[name], 0, "device", "char", _size(types, type_))
            for name, type_ in (_variables(_Reader(globals_)) if globals_ else ())
        }
    except (ValueError, LookupError, RecursionError) as error:
        raise BuildError(f"is not Tile IR, or is damaged: {error}") from None
    return TileIr(f"{version[0]}.{version[1]}", kernels, variables)


class _Reader:
    """Reads `data` from `position` on. Raises :class:`IndexError` beyond its end."""

    def __init__(self, data: bytes, position: int = 0) -> None:
        self.data = data
        self.position = position

    def byte(self) -> int:
        self.position += 1
        return self.data[self.position - 1]

    def number(self) -> int:
        """Read a number of up to 64 bits, in groups of seven."""
        value, shift = 0, 0
        while shift < 64:
            group = self.byte()
            value |= (group & 0x7F) << shift
            if group < 0x80:
                return value
            shift += 7
        raise ValueError("a number of more than 64 bits")

    def take(self, size: int) -> bytes:
        if size > len(self.data) - self.position:
            raise IndexError("it is cut off")
        self.position += size
        return self.data[self.position - size : self.position]

    def align(self, alignment: int) -> None:
        self.take(-self.position % alignment)


def _sections(data: bytes) -> dict[int, bytes]:
    reader = _Reader(data, _HEADER_SIZE)
    sections: dict[int, bytes] = {}
    while (section := reader.byte()) != _END:
        size = reader.number()
        if section & _IS_ALIGNED:
            reader.align(max(1, reader.number()))
        sections[section & ~_IS_ALIGNED] = reader.take(size)
    return sections


def _table(section: bytes, width: int) -> Sequence[bytes]:
    """Return the items of a table, which begins with their count and offsets of `width` bytes."""
    reader = _Reader(section)
    count = reader.number()
    reader.align(width)
    offsets = [int.from_bytes(reader.take(width), "little") for _ in range(min(count, len(section)))]
    items = section[reader.position :]
    return [items[start:end] for start, end in zip(offsets, [*offsets[1:], len(items)], strict=True)]


def _kernels(reader: _Reader, version: tuple[int, int]) -> Iterator[tuple[int, int]]:
    """Yield the indices of the name and of the type of each kernel."""
    for _ in range(reader.number()):
        name, type_, flags, _ = reader.number(), reader.number(), reader.byte(), reader.number()
        if flags & _HAS_HINTS or (flags & _IS_KERNEL and version >= _WITH_ATTRIBUTES):
            _skip_attribute(reader)
        if version >= _WITH_ATTRIBUTES:
            _skip_attribute(reader)
        reader.take(reader.number())
        if flags & _IS_KERNEL:
            yield name, type_


def _variables(reader: _Reader) -> Iterator[tuple[int, int]]:
    """Yield the indices of the name and of the type of each global that is not a constant."""
    for _ in range(reader.number()):
        name, type_, _, _, _, is_constant = (reader.number() for _ in range(6))
        if not is_constant:
            yield name, type_


def _skip_attribute(reader: _Reader) -> None:
    tag = reader.byte()
    if tag not in _ATTRIBUTES:
        raise ValueError(f"an attribute of the unknown kind {tag}")
    _ATTRIBUTES[tag](reader)


def _skip_numbers(count: int) -> Callable[[_Reader], None]:
    def skip(reader: _Reader) -> None:
        for _ in range(count):
            reader.number()

    return skip


def _skip_items(reader: _Reader) -> None:
    for _ in range(reader.number()):
        _skip_attribute(reader)


def _skip_entries(reader: _Reader) -> None:
    for _ in range(reader.number()):
        reader.number()
        _skip_attribute(reader)


def _skip_bounds(reader: _Reader) -> None:
    _skip_numbers(reader.byte().bit_count())(reader)


def _skip_divisor(reader: _Reader) -> None:
    reader.number()
    _skip_bounds(reader)


# By tag: integer, boolean, type, text, array, divisor, dictionary, hints by architecture, bounds.
_ATTRIBUTES: Mapping[int, Callable[[_Reader], None]] = {
    1: _skip_numbers(2),
    3: _skip_numbers(1),
    4: _skip_numbers(1),
    5: _skip_numbers(1),
    6: _skip_items,
    8: _skip_divisor,
    10: _skip_entries,
    11: _skip_entries,
    12: _skip_bounds,
}


def _parameters(types: Sequence[bytes], signature: int) -> tuple[Parameter, ...]:
    """Return the parameters of a kernel of the type `signature`, each at a multiple of its size."""
    reader = _Reader(types[signature])
    if reader.byte() != _FUNCTION:
        raise ValueError("a kernel has a type that is no function's")
    parameters: list[Parameter] = []
    end = 0
    for number in range(reader.number()):
        size = _size(types, reader.number())
        offset = end + -end % size
        parameters.append(Parameter(f"arg{number}", f"unsigned char[{size}]", "opaque", size, offset))
        end = offset + size
    return tuple(parameters)


def _size(types: Sequence[bytes], number: int) -> int:
    """Return the size of a value in bytes. A tile without axes is its element."""
    reader = _Reader(types[number])
    tag = reader.number()
    if tag == _TILE:
        size = _size(types, reader.number())
        for _ in range(reader.number()):
            size *= int.from_bytes(reader.take(8), "little")
        return size
    if tag not in _SIZES:
        raise ValueError(f"a value of the unknown type {tag}")
    return _SIZES[tag]
