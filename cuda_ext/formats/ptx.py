"""What PTX says of itself: its target, kernels, variables, parameters, and debug sections."""

from __future__ import annotations

import json
import math
import re
from dataclasses import dataclass
from typing import Literal

from cuda_ext.formats.architecture import Architecture

__all__ = [
    "PtxParameter",
    "PtxVariable",
    "addresses",
    "debug_section",
    "files",
    "kernels",
    "target",
    "undefined",
    "variables",
]

# Lines begin with blanks, not with "\s", which spans lines: that takes forever where many are empty.
_TARGET = re.compile(rb"^[ \t]*\.target\s+sm_(\d+)([af]?)", re.MULTILINE)
_ENTRY = re.compile(rb"\.entry\s+([\w$.]+)\s*(?:\(([^)]*)\))?")
_PARAMETER = re.compile(
    rb"\.param\s+(?:\.align\s+(?P<align>\d+)\s+)?\.(?P<type>[a-z]+\d+|pred)\s*"
    rb"(?P<pointer>\.ptr\b[^,\n]*?)?\s*(?P<name>[\w$]+)\s*(?:\[(?P<count>\d+)\])?\s*(?:,|$)"
)
_VARIABLE = re.compile(
    rb"^[ \t]*(?:\.(?:visible|weak|common)\s+)*\.(?P<space>global|const)\s+"
    rb"(?:\.align\s+\d+\s+|\.attribute\([^)]*\)\s+|\.v(?P<vector>[24])\s+)*"
    rb"\.(?P<type>[a-z]+\d+)\s+(?P<name>[\w$]+)(?P<counts>(?:\[\d+\])*)",
    re.MULTILINE,
)
_UNDEFINED = re.compile(rb"\.extern\s+\.func\s+(?:\([^)]*\)\s*)?([\w$]+)")
# What the driver brings when it compiles PTX.
_BROUGHT_BY_THE_DRIVER = {"__assertfail", "free", "malloc", "vprintf"}
_COMMENT = re.compile(rb"//[^\n]*|/\*.*?\*/", re.DOTALL)
_DATA = re.compile(rb"\.b(8|16|32|64)\s+([^\n]*)")
_FILE = re.compile(rb'^[ \t]*\.file\s+(\d+)\s+"([^"]*)"', re.MULTILINE)


@dataclass(frozen=True, slots=True)
class PtxParameter:
    """One ``.param`` of an entry: ``size`` and ``align`` count bytes, ``type`` is PTX's (``u64``, ``b8``).

    ``count`` is that of an array.
    """

    name: str
    type: str
    count: int | None
    size: int
    align: int
    pointer: bool


@dataclass(frozen=True, slots=True)
class PtxVariable:
    """One module-scope variable; ``size`` counts bytes."""

    name: str
    space: Literal["constant", "device"]
    size: int


def target(ptx: bytes) -> Architecture | None:
    """The architecture that `ptx` was written for."""
    match = _TARGET.search(ptx)
    return Architecture("ptx", int(match[1]), match[2].decode()) if match else None


def kernels(ptx: bytes) -> dict[str, tuple[PtxParameter, ...]]:
    """The entries by lowered name, each with its parameters in order."""
    return {
        name.decode(): tuple(map(_parameter, _PARAMETER.finditer(parameters.strip())))
        for name, parameters in _ENTRY.findall(_COMMENT.sub(b"", ptx))
    }


def variables(ptx: bytes) -> dict[str, PtxVariable]:
    """The ``.global`` and ``.const`` variables at module scope, by lowered name."""
    found = {}
    for match in _VARIABLE.finditer(_COMMENT.sub(b"", ptx)):
        name = match["name"].decode()
        found[name] = PtxVariable(
            name,
            "constant" if match["space"] == b"const" else "device",
            _width(match["type"])
            * int(match["vector"] or 1)
            * math.prod(map(int, re.findall(rb"\d+", match["counts"]))),
        )
    return found


def undefined(ptx: bytes) -> tuple[str, ...]:
    """The functions that `ptx` calls and neither it nor the driver defines."""
    declared = {name.decode() for name in _UNDEFINED.findall(_COMMENT.sub(b"", ptx))}
    return tuple(sorted(declared - _BROUGHT_BY_THE_DRIVER))


def addresses(ptx: bytes, table: str) -> tuple[str, ...]:
    """The lowered names whose addresses the array `table` holds, in order."""
    match = re.search(rb"%s\[\d+\] = \{([^}]*)\}" % table.encode(), ptx)
    return tuple(name.strip().decode() for name in match[1].split(b",")) if match else ()


def debug_section(ptx: bytes, name: str) -> bytes:
    """The DWARF section `name`, turned from data directives into bytes. Addresses of symbols become zero."""
    body = re.search(rb"\.section\s+%s\s*\{(.*?)\n\s*\}" % re.escape(name.encode()), ptx, re.DOTALL)
    return _assemble(body[1]) if body else b""


def files(ptx: bytes) -> dict[int, str]:
    """The source files by the number that debug information knows them by."""
    return {int(number): _unescaped(name).decode(errors="replace") for number, name in _FILE.findall(ptx)}


def _unescaped(text: bytes) -> bytes:
    """PTX spells bytes beyond ASCII in octal."""
    return re.sub(rb"\\([0-7]{3})", lambda match: bytes([int(match[1], 8)]), text)


def _parameter(match: re.Match[bytes]) -> PtxParameter:
    width = _width(match["type"])
    return PtxParameter(
        name=match["name"].decode(),
        type=match["type"].decode(),
        count=int(match["count"]) if match["count"] else None,
        size=width * int(match["count"] or 1),
        align=int(match["align"] or width),
        pointer=match["pointer"] is not None,
    )


def _width(type_: bytes) -> int:
    """Bytes of a PTX type: ``u64`` → 8."""
    return int(re.sub(rb"\D", b"", type_) or 8) // 8


def _assemble(directives: bytes) -> bytes:
    out = bytearray()
    for width, operands in _DATA.findall(directives):
        size = int(width) // 8
        if size == 1:  # most of them, decimal numbers all, which JSON reads fastest
            out += bytes(json.loads(b"[%b]" % operands))
            continue
        for operand in operands.split(b","):
            operand = operand.strip()
            value = int(operand, 0) if operand[:1].isdigit() or operand[:1] == b"-" else 0
            out += (value % (1 << (8 * size))).to_bytes(size, "little")
    return bytes(out)
