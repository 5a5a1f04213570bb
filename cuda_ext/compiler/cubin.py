"""What a cubin says of itself, read with pyelftools: its target, kernels, parameters and variables."""

from __future__ import annotations

import io
import re
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from cuda_ext.compiler.architectures import Architecture
from cuda_ext.compiler.ptx import PtxVariable
from cuda_ext.compiler.translation_unit import Survey, SurveyedKernel, SurveyedSymbol
from cuda_ext.errors import BuildError
from cuda_ext.manifest import Parameter

__all__ = ["Binding", "Cubin", "read_cubin", "survey_of_cubin"]

Binding = Literal["local", "global", "weak"]

_PARAMETER_BANK = ".nv.constant0."
_KERNEL_INFO = ".nv.info."
_CODE = ".text."
# An attribute of .nv.info is a format byte, an attribute byte and 16 bits; this format is followed by as
# many bytes as those 16 bits say.
_SIZED = 0x04
_KPARAM_INFO = 0x17
# Before version 8 of CUDA's ABI, the ELF flags hold the compute capability and this flag for the suffix "a".
_ABI_WITH_NOTES = 8
_FLAG_A = 0x800
# The types of symbols for variables; the second is CUDA's own, in relocatable code.
_VARIABLE_TYPES = ("STT_OBJECT", "STT_LOPROC")


@dataclass(frozen=True, slots=True)
class Cubin:
    """What is in a cubin, by lowered name.

    ``kernels`` have their parameters, of which only place and size are known, and ``code`` the bytes of their
    instructions. ``defined`` are all
    functions and variables with their visibility, ``undefined`` those that a link has to bring.
    """

    target: Architecture | None
    kernels: Mapping[str, tuple[Parameter, ...]]
    code: Mapping[str, int]
    variables: Mapping[str, PtxVariable]
    defined: Mapping[str, Binding]
    undefined: frozenset[str]

    @property
    def calls_device_runtime(self) -> bool:
        """Whether device code asks for what ``cudadevrt`` brings, such as launches from kernels."""
        return any(name.startswith(("cuda", "__cuda")) for name in self.undefined)


def read_cubin(data: bytes) -> Cubin:
    """Read all that is there to know; raise :class:`BuildError` unless `data` is a whole cubin."""
    from cuda_ext.compiler.elf import ELFError, ELFFile

    try:
        elf = ELFFile(io.BytesIO(data))
        _check_whole(elf, len(data))
        return _read(elf)
    # Damage shows itself anywhere in pyelftools.
    except (ELFError, AttributeError, OverflowError, TypeError, ValueError, struct.error) as error:
        raise BuildError(f"is not a cubin, or a damaged one: {error}") from None


def survey_of_cubin(cubin: bytes) -> Survey:
    """Describe a cubin that arrived without a source: names are lowered names, types are unknown."""
    found = read_cubin(cubin)
    return Survey(
        {name: SurveyedKernel(name, name, parameters) for name, parameters in found.kernels.items()},
        {
            name: SurveyedSymbol(name, name, variable.space, "char", variable.size)
            for name, variable in found.variables.items()
        },
    )


def _check_whole(elf: Any, size: int) -> None:
    header = elf.header
    ends = [
        header["e_shoff"] + header["e_shnum"] * header["e_shentsize"],
        header["e_phoff"] + header["e_phnum"] * header["e_phentsize"],
        *(s["sh_offset"] + s["sh_size"] for s in elf.iter_sections() if s["sh_type"] != "SHT_NOBITS"),
        *(s["p_offset"] + s["p_filesz"] for s in elf.iter_segments()),
    ]
    if max(ends) > size:
        raise ValueError(f"it ends after {size} of {max(ends)} bytes")


def _read(elf: Any) -> Cubin:
    # Kernels are what has a bank of parameters.
    names = sorted(
        section.name.removeprefix(_PARAMETER_BANK)
        for section in elf.iter_sections()
        if section.name.startswith(_PARAMETER_BANK)
    )
    variables: dict[str, PtxVariable] = {}
    defined: dict[str, Binding] = {}
    undefined: set[str] = set()
    for symbol in elf.get_section_by_name(".symtab").iter_symbols():
        if symbol["st_shndx"] == "SHN_UNDEF":
            undefined.add(symbol.name)
        elif symbol["st_info"]["type"] in ("STT_FUNC", *_VARIABLE_TYPES):
            defined[symbol.name] = _binding(symbol)
            if variable := _variable(elf, symbol):
                variables[symbol.name] = variable
    return Cubin(
        target=_target(elf),
        kernels={name: _parameters(elf, name) for name in names},
        code={name: _size(elf, _CODE + name) for name in names},
        variables=variables,
        defined=defined,
        undefined=frozenset(undefined),
    )


def _size(elf: Any, section: str) -> int:
    found = elf.get_section_by_name(section)
    return int(found["sh_size"]) if found else 0


def _binding(symbol: Any) -> Binding:
    match symbol["st_info"]["bind"]:
        case "STB_LOCAL":
            return "local"
        case "STB_WEAK":
            return "weak"
        case _:
            return "global"


def _variable(elf: Any, symbol: Any) -> PtxVariable | None:
    if symbol["st_info"]["type"] not in _VARIABLE_TYPES or not isinstance(symbol["st_shndx"], int):
        return None
    section = elf.get_section(symbol["st_shndx"]).name
    if section == ".nv.constant3":
        return PtxVariable(symbol.name, "constant", symbol["st_size"])
    if section.startswith(".nv.global"):
        return PtxVariable(symbol.name, "device", symbol["st_size"])
    return None


def _target(elf: Any) -> Architecture | None:
    """From the note that ptxas leaves, or from the ELF flags, where there is none."""
    if note := elf.get_section_by_name(".note.nv.tkinfo"):
        match = re.search(rb"-arch[= ]+sm_(\d+)([af]?)", note.data())
        return Architecture("cubin", int(match[1]), match[2].decode()) if match else None
    if elf.header["e_ident"]["EI_ABIVERSION"] < _ABI_WITH_NOTES:
        flags = elf.header["e_flags"]
        return Architecture("cubin", flags & 0xFF, "a" if flags & _FLAG_A else "")
    return None


def _parameters(elf: Any, kernel: str) -> tuple[Parameter, ...]:
    section = elf.get_section_by_name(_KERNEL_INFO + kernel)
    slots = []
    for attribute, payload in _attributes(section.data() if section else b""):
        if attribute == _KPARAM_INFO:
            _, ordinal, offset, packed = struct.unpack_from("<IHHI", payload)
            slots.append((ordinal, offset, packed >> 18))
    return tuple(
        Parameter(f"arg{ordinal}", f"unsigned char[{size}]", "opaque", size, offset)
        for ordinal, offset, size in sorted(slots)
    )


def _attributes(info: bytes) -> Iterator[tuple[int, bytes]]:
    position = 0
    while position + 4 <= len(info):
        form, attribute, size = struct.unpack_from("<BBH", info, position)
        position += 4
        if form == _SIZED:
            yield attribute, info[position : position + size]
            position += size
