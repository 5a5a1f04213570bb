r"""Write C++ source that embeds the contents of files in an object file.

There are two forms. Both define a name that points at the bytes, which are aligned to 64 and followed by a
zero byte. With gcc and clang, the assembler reads the file (:func:`assembled`), which is fast. For other
compilers, the bytes are string literals (:func:`literal`), the fastest form in standard C++.

Literals respect the limits of MSVC: 16,380 bytes in one, 65,535 in adjacent ones. C++ appends a zero byte to
each literal, so a literal ends where the bytes have a zero. If the next zero byte is too far away, the bytes
are written as a list of characters, which takes a compiler about a hundred times as long.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Literal

from cuda_ext.facts.codec import sha256


@dataclass(frozen=True)
class Embedded:
    """A file to embed, with its `content`. In C++, `name` is a pointer to ``element``s with this content."""

    name: str
    file: Path
    content: bytes
    element: Literal["char", "unsigned char"] = "unsigned char"

    @cached_property
    def sha256(self) -> str:
        return sha256(self.content).hex()


def quoted(text: str) -> str:
    """Write `text` as a C++ literal in UTF-8, independent of the source and execution character sets.

    >>> print(quoted('größer "1"'))
    "gr\\303\\266\\303\\237er \\"1\\""
    """
    return f'"{_escaped(text.encode())}"'


def assembled(embedded: Embedded) -> str:
    r"""Write the arguments of ``CUDA_EXT_EMBED`` in ``module.cpp.j2``: the name, the digest, and the file.

    Octal escapes, which the assembler reads, keep the source ASCII for every path.

    >>> print(assembled(Embedded("data_0", Path('/a b/"ä"'), b"")))  # doctest: +ELLIPSIS
    data_0, "e3b0c4...", "/a b/\\042\\303\\244\\042"
    """
    path = "".join(
        chr(byte) if 32 <= byte < 127 and byte not in b'"\\' else rf"\\{byte:03o}"
        for byte in os.fsencode(embedded.file)
    )
    return f'{embedded.name}, "{embedded.sha256}", "{path}"'


# The most bytes in one line of a literal, in a whole literal, and in one line of a list.
_LINE, _LITERAL, _LISTED = 800, 60_000, 24


def literal(embedded: Embedded) -> bytes:
    """Write C++ declarations that contain the bytes of `embedded` and define its name.

    The parts are members of one struct: arrays of characters have no padding between them.
    """
    members: list[str] = []
    values: list[str] = []
    for content, is_terminated in _parts(embedded.content):
        size = len(content) + is_terminated
        members.append(f"  {embedded.element} part_{len(members)}[{size}];\n")
        values.append(_string(content) if is_terminated else _list(content, embedded.element))
    storage = f"{embedded.name}_storage"
    return "".join(
        [
            f"alignas(64) const struct {{\n{''.join(members)}}} {storage} = {{\n",
            *values,
            "};\n",
            f"static_assert(sizeof({storage}) == {len(embedded.content) + 1}, "
            '"the parts lie without gaps");\n',
            f"constexpr const {embedded.element}* {embedded.name} = {storage}.part_0;\n",
        ]
    ).encode("ascii")


def _string(content: bytes) -> str:
    lines = [content[i : i + _LINE] for i in range(0, len(content), _LINE)] or [b""]
    return "\n".join(f'"{_escaped(line)}"' for line in lines) + ",\n"


def _list(content: bytes, element: str) -> str:
    # Plain char may be signed, and then a number above 127 does not fit.
    items = [str(b) for b in content] if element != "char" else [rf"'\{b:o}'" for b in content]
    lines = (items[i : i + _LISTED] for i in range(0, len(items), _LISTED))
    return "{" + ",\n".join(map(",".join, lines)) + "},\n"


def _parts(content: bytes) -> Iterator[tuple[bytes, bool]]:
    """Divide `content` and its final zero byte into parts: literals, which end with a zero byte, and lists.

    As much as possible goes into literals. The flag of each part is True for a literal.
    """
    start = 0
    while start <= len(content):
        if len(content) - start < _LITERAL:
            zero = len(content)
        elif (zero := content.rfind(0, start, start + _LITERAL)) < 0:
            zero = content.find(0, start)
            zero = zero if zero >= 0 else len(content)
            listed = zero - _LITERAL + 1
            yield content[start:listed], False
            start = listed
        yield content[start:zero], True
        start = zero + 1


# An octal escape has up to three digits: before a digit, all three are written. Two question marks may begin
# a trigraph, so the second is escaped.
_SPELLED = tuple(
    f"\\{byte:o}" if not 32 <= byte < 127 else f"\\{byte:c}" if byte in b'"\\' else chr(byte)
    for byte in range(256)
)
_BEFORE_DIGIT = re.compile(rb"[\0-\37](?=[0-9])")


def _escaped(content: bytes) -> str:
    """Escape `content` for a C++ string literal."""
    spelled = list(map(_SPELLED.__getitem__, content))
    for match in _BEFORE_DIGIT.finditer(content):
        spelled[match.start()] = f"\\{content[match.start()]:03o}"
    return "".join(spelled).replace("??", r"?\077")
