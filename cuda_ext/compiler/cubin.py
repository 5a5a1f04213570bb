"""What a cubin says of itself, read with pyelftools: kernels, variables, parameter sizes, target."""

from __future__ import annotations

import io
import re
import struct
from collections.abc import Iterator
from typing import Any

from cuda_ext.compiler.architectures import Architecture
from cuda_ext.compiler.ptx import PtxVariable
from cuda_ext.compiler.translation_unit import Survey, SurveyedKernel, SurveyedSymbol
from cuda_ext.errors import BuildError
from cuda_ext.manifest import Parameter

__all__ = ["calls_device_runtime", "kernels", "survey_of_cubin", "target", "variables"]

_PARAMETER_BANK = ".nv.constant0."
_KERNEL_INFO = ".nv.info."
# An attribute of .nv.info is a format byte, an attribute byte and 16 bits; this format is followed by as
# many bytes as those 16 bits say.
_SIZED = 0x04
_KPARAM_INFO = 0x17


def kernels(cubin: bytes) -> tuple[str, ...]:
    """The lowered names of the kernels in `cubin`, sorted: whatever has a bank of parameters."""
    return tuple(
        sorted(
            section.name.removeprefix(_PARAMETER_BANK)
            for section in _elf(cubin).iter_sections()
            if section.name.startswith(_PARAMETER_BANK)
        )
    )


def variables(cubin: bytes) -> dict[str, PtxVariable]:
    """The ``__device__`` and ``__constant__`` variables in `cubin`, by lowered name."""
    elf = _elf(cubin)
    table = elf.get_section_by_name(".symtab")
    found = {}
    for symbol in table.iter_symbols() if table else ():
        if symbol["st_info"]["type"] != "STT_OBJECT" or not isinstance(symbol["st_shndx"], int):
            continue
        section = elf.get_section(symbol["st_shndx"]).name
        if section == ".nv.constant3" or section.startswith(".nv.global"):
            found[symbol.name] = PtxVariable(
                symbol.name,
                "constant" if section == ".nv.constant3" else "device",
                symbol["st_size"],
            )
    return found


def target(cubin: bytes) -> Architecture | None:
    """The architecture that `cubin` was assembled for, from the note that ptxas leaves in it."""
    note = _elf(cubin).get_section_by_name(".note.nv.tkinfo")
    match = re.search(rb"-arch[= ]+sm_(\d+)([af]?)", note.data()) if note else None
    return Architecture("cubin", int(match[1]), match[2].decode()) if match else None


def calls_device_runtime(cubin: bytes) -> bool:
    """Whether the relocatable `cubin` leaves functions of the device runtime to be linked in."""
    table = _elf(cubin).get_section_by_name(".symtab")
    return any(
        symbol["st_shndx"] == "SHN_UNDEF" and symbol.name.startswith("cuda")
        for symbol in (table.iter_symbols() if table else ())
    )


def survey_of_cubin(cubin: bytes) -> Survey:
    """Describe a cubin that arrived without a source: names are lowered names, types are unknown."""
    elf = _elf(cubin)
    return Survey(
        {name: SurveyedKernel(name, name, _parameters(elf, name)) for name in kernels(cubin)},
        {
            name: SurveyedSymbol(name, name, variable.space, "char", variable.size)
            for name, variable in variables(cubin).items()
        },
    )


def _elf(cubin: bytes) -> Any:
    from elftools.common.exceptions import ELFError
    from elftools.elf.elffile import ELFFile

    try:
        return ELFFile(io.BytesIO(cubin))
    except ELFError as error:
        raise BuildError(f"not a cubin: {error}") from None


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
