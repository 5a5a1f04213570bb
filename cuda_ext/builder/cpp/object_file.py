"""Write a relocatable object file of ELF with the contents of files, without a compiler."""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cuda_ext.builder.cpp.embedding import Embedded

# Numbers of ELF, by the names of processors in CMake.
MACHINES = {"x86_64": 62, "amd64": 62, "aarch64": 183, "arm64": 183}

# The names and types of the sections behind the first one, their flags, and their alignments. Without the
# last one, the program's stack would be executable.
_SECTIONS = (
    (".rodata.cuda_ext", 1, 2, 64),
    (".symtab", 2, 0, 8),
    (".strtab", 3, 0, 1),
    (".note.GNU-stack", 1, 0, 1),
)


def object_file(files: Iterable[Embedded], machine: str) -> bytes:
    """Write an object for `machine`. Each name of `files` is a hidden symbol, aligned to 64.

    A zero byte follows each content. The same arguments give the same bytes.
    """
    data, symbols = bytearray(), bytearray(24)
    texts = bytearray("\0".join(["", *(name for name, *_ in _SECTIONS), ""]).encode())
    for each in files:
        data += bytes(-len(data) % 64)
        symbols += struct.pack("<IBBHQQ", len(texts), 0x11, 2, 1, len(data), len(each.content) + 1)
        texts += each.name.encode() + b"\0"
        data += each.content + b"\0"
    image, headers = bytearray(64), bytearray(64)
    contents = (data, symbols, texts, bytearray())
    for content, (name, type_, flags, alignment) in zip(contents, _SECTIONS, strict=True):
        image += bytes(-len(image) % alignment)
        # Symbols have their names in section 3, and all but the first are global.
        linked, entry = ((3, 1), 24) if content is symbols else ((0, 0), 0)
        place = (texts.index(f"{name}\0".encode()), type_, flags, 0, len(image), len(content))
        headers += struct.pack("<IIQQQQIIQQ", *place, *linked, alignment, entry)
        image += content
    image += bytes(-len(image) % 8)
    ident = b"\x7fELF\2\1\1".ljust(16, b"\0")
    sizes = (64, 0, 0, 64, len(_SECTIONS) + 1, 3)
    image[:64] = ident + struct.pack("<HHIQQQIHHHHHH", 1, MACHINES[machine], 1, 0, 0, len(image), 0, *sizes)
    return bytes(image + headers)
