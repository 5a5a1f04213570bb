"""Tile IR is read: versions, kernels and parameters; damage is reported."""

from __future__ import annotations

import pytest

from cuda_ext.errors import BuildError
from cuda_ext.facts.architecture import TILE_IR
from cuda_ext.formats.fatbin import read_fatbin
from cuda_ext.formats.tile_ir import MAGIC, read_tile_ir
from cuda_ext.toolchain.nvfatbin import write_fatbin

# Types: i1, i32, f64, pointers to f64, tiles of these without axes, and the function of all but the first.
TYPES = (b"\0", b"\3", b"\x09", b"\x0c\0\2", *(b"\x0d%c\0" % i for i in (1, 2, 3)), b"\x10\3\4\5\6\0")
# Of an entry, with what others wrote: a dictionary of an integer, a boolean and a text.
HINTS = b"\x0b\1\0\x0a\3\0\1\1\x05\0\3\1\0\5\0"
ATTRIBUTES = b"\x06\2\x08\x10\1\4\x0c\3\0\2"


def bytecode(version: int, *functions: bytes) -> bytes:
    """Tile IR 13.`version` with these functions, whose names are in a table of two."""
    sections = [
        section(2, bytes([len(functions)]) + b"".join(functions), 8),
        section(5, table(TYPES), 4),
        section(1, table((b"one", b"two")), 4),
    ]
    data = MAGIC + bytes([13, version, 0, 0])
    for head, alignment, content in sections:
        data += head
        data += b"\xcb" * (-len(data) % alignment) + content
    return data + b"\0"


def section(kind: int, content: bytes, alignment: int) -> tuple[bytes, int, bytes]:
    size = bytes([len(content) & 127 | 128, len(content) >> 7])
    return bytes([kind | 0x80]) + size + bytes([alignment]), alignment, content


def table(items: tuple[bytes, ...]) -> bytes:
    offsets = [sum(map(len, items[:index])) for index in range(len(items))]
    return (
        bytes([len(items)])
        + b"\xcb" * 3
        + b"".join(o.to_bytes(4, "little") for o in offsets)
        + b"".join(items)
    )


BODY = b"\3abc"
PLAIN = b"\0\7\2\1" + BODY
LATER = b"\1\7\2\1" + HINTS + ATTRIBUTES + BODY
HELPER = b"\0\7\0\1" + ATTRIBUTES + BODY


@pytest.mark.parametrize(
    ("version", "functions", "names"),
    [(1, [PLAIN], ["one"]), (4, [b"\1\7\6\1" + HINTS + BODY], ["two"]), (5, [HELPER, LATER], ["two"])],
)
def test_kernels_have_parameters_at_multiples_of_their_size(
    version: int, functions: list[bytes], names: list[str]
) -> None:
    read = read_tile_ir(bytecode(version, *functions))
    assert read.version == f"13.{version}"
    assert list(read.kernels) == names
    for parameters in read.kernels.values():
        assert [(p.offset, p.size) for p in parameters] == [(0, 4), (8, 8), (16, 8)]


def test_damage_is_reported() -> None:
    data = bytecode(5, HELPER, LATER)
    for end in range(len(data)):
        with pytest.raises(BuildError, match="is not Tile IR, or is damaged"):
            read_tile_ir(data[:end])
    for position in range(len(data)):
        try:
            read_tile_ir(data[:position] + bytes([data[position] ^ 0x5F]) + data[position + 1 :])
        except BuildError as error:
            assert str(error).startswith("is not Tile IR, or is damaged")  # noqa: PT017
    cyclic = data.replace(b"\x0d\1\0", b"\x0d\4\0")
    with pytest.raises(BuildError, match="damaged"):
        read_tile_ir(cyclic)


def test_a_fatbin_has_it_for_all_gpus() -> None:
    data = bytecode(4, PLAIN)
    (entry,) = read_fatbin(write_fatbin([(TILE_IR, data)], "size"))
    assert (entry.kind, entry.architecture, entry.payload()) == ("tileir", "tile_80", data)
