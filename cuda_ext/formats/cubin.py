"""Read the target, kernels, parameters and variables of a cubin."""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from cuda_ext.errors import BuildError
from cuda_ext.formats.architecture import Architecture
from cuda_ext.formats.elf import Elf, Section, read_elf
from cuda_ext.formats.ptx import PtxVariable
from cuda_ext.manifest import Parameter

__all__ = [
    "CODE",
    "FUNCTION",
    "KERNEL_INFO",
    "PARAMETER_BANK",
    "Binding",
    "Cubin",
    "attributes",
    "read_cubin",
]

Binding = Literal["local", "global", "weak"]

# Sections of a kernel, whose name follows.
KERNEL_INFO = ".nv.info."
CODE = ".text."
PARAMETER_BANK = ".nv.constant0."
# An attribute of .nv.info is a format byte, an attribute byte and 16 bits. These are its value; with this
# format they are the number of bytes of the value, which follows.
_SIZED = 0x04
_KPARAM_INFO = 0x17
# Before version 8 of CUDA's ABI, the ELF flags hold the compute capability and this flag for the suffix "a".
_ABI_WITH_NOTES = 8
_FLAG_A = 0x800
# Types and bindings of symbols of the ELF standard; the second type of variables is CUDA's, in relocatable
# code.
FUNCTION = 2
_VARIABLE_TYPES = (1, 13)
_BINDINGS: dict[int, Binding] = {0: "local", 2: "weak"}


@dataclass(frozen=True, slots=True)
class Cubin:
    """The contents of a cubin by lowered name.

    ``kernels`` maps to parameters, of which only offset and size are known, ``code`` to the size of the
    instructions, and ``defined`` all functions and variables to their binding. ``undefined`` are those that a
    link must provide.
    """

    target: Architecture | None
    kernels: Mapping[str, tuple[Parameter, ...]]
    code: Mapping[str, int]
    variables: Mapping[str, PtxVariable]
    defined: Mapping[str, Binding]
    undefined: frozenset[str]


def read_cubin(data: bytes) -> Cubin:
    """Read a cubin. Raises :class:`BuildError` unless `data` is a complete one."""
    try:
        return _read(read_elf(data))
    except (ValueError, struct.error) as error:
        raise BuildError(f"is not a cubin, or a damaged one: {error}") from None


def attributes(info: Section | None) -> Iterator[tuple[int, bytes]]:
    """List numbers and values of the attributes in a section ``.nv.info``, of a kernel or of the cubin."""
    data = bytes(info.data) if info else b""
    position = 0
    while position + 4 <= len(data):
        form, attribute, size = struct.unpack_from("<BBH", data, position)
        end = position + 4 + size * (form == _SIZED)
        yield attribute, data[position + 4 : end] if form == _SIZED else data[position + 2 : end]
        position = end


def _read(elf: Elf) -> Cubin:
    by_name = {section.name: section for section in elf.sections}
    # A kernel has a bank of parameters.
    names = sorted(n.removeprefix(PARAMETER_BANK) for n in by_name if n.startswith(PARAMETER_BANK))
    variables: dict[str, PtxVariable] = {}
    defined: dict[str, Binding] = {}
    undefined: set[str] = set()
    for symbol in elf.symbols():
        if symbol.section == 0:
            undefined.add(symbol.name)
        elif symbol.type in (FUNCTION, *_VARIABLE_TYPES):
            defined[symbol.name] = _BINDINGS.get(symbol.binding, "global")
            section = elf.sections[symbol.section].name if symbol.section < len(elf.sections) else ""
            if symbol.type in _VARIABLE_TYPES and (space := _space(section)):
                variables[symbol.name] = PtxVariable(symbol.name, space, symbol.size)
    return Cubin(
        target=_target(elf),
        kernels={name: _parameters(by_name.get(KERNEL_INFO + name)) for name in names},
        code={name: by_name[CODE + name].size for name in names if CODE + name in by_name},
        variables=variables,
        defined=defined,
        undefined=frozenset(undefined),
    )


def _space(section: str) -> Literal["constant", "device"] | None:
    if section == ".nv.constant3":
        return "constant"
    return "device" if section.startswith(".nv.global") else None


def _target(elf: Elf) -> Architecture | None:
    """The target in ptxas's note or, without a note, in the ELF flags."""
    if note := elf.section(".note.nv.tkinfo"):
        match = re.search(rb"-arch[= ]+sm_(\d+)([af]?)", note.data)
        return Architecture("cubin", int(match[1]), match[2].decode()) if match else None
    if elf.abi < _ABI_WITH_NOTES:
        return Architecture("cubin", elf.flags & 0xFF, "a" if elf.flags & _FLAG_A else "")
    return None


def _parameters(info: Section | None) -> tuple[Parameter, ...]:
    """The parameters of the kernel that the section `info` describes."""
    slots = []
    for attribute, payload in attributes(info):
        if attribute == _KPARAM_INFO:
            _, ordinal, offset, packed = struct.unpack_from("<IHHI", payload)
            slots.append((ordinal, offset, packed >> 18))
    return tuple(
        Parameter(f"arg{ordinal}", f"unsigned char[{size}]", "opaque", size, offset)
        for ordinal, offset, size in sorted(slots)
    )
