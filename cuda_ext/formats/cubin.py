"""Read the target, kernels, parameters, variables and resources of a cubin."""

from __future__ import annotations

import math
import re
import struct
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal, NamedTuple

from cuda_ext.errors import BuildError
from cuda_ext.facts.architecture import Architecture
from cuda_ext.facts.kernels import Parameter
from cuda_ext.facts.symbols import Symbol
from cuda_ext.formats.elf import Elf, ElfSymbol, Section, read_elf
from cuda_ext.formats.tile_ir import STAND_IN

# The prefixes of a kernel's sections. The kernel's name follows.
_KERNEL_INFO = ".nv.info."
_CODE = ".text."
_PARAMETER_BANK = ".nv.constant0."
_CODE_OR_CONSTANTS = r"\.(?:text|nv\.constant[1-9]\d*)\.(.+)"
_SHARED = ".nv.shared."
# An attribute of .nv.info is a format byte, an attribute byte and 16 bits. The 16 bits are its value; with
# this format, they are the size of the value that follows.
_SIZED = 0x04
# Attributes of functions, which are indices of symbols,
_REGISTERS, _FRAME, _DEEPEST = 0x2F, 0x11, 0x12
# and of a kernel. A required block is its only size.
_PARAMETER, _MAX_THREADS, _REQUIRED_BLOCK, _ANNOTATIONS, _TOOLKIT = 0x17, 0x05, 0x10, 0x55, 0x37
# A parameter of a kernel with more than about 4 KiB of parameters, or with tensor maps. Its size is in the
# last 32 bits without the highest eight, which describe the target of a pointer.
_LARGE_PARAMETER, _LARGE_SIZE = 0x45, 0xFFFFFF
_UNBOUNDED = 0xFFFFFFFF
# Since CUDA 13.0, ptxas annotates each instruction that spills, with this number and its offset.
_SPILLS, _ANNOTATING = 1, 130
# Fields of such a 128-bit instruction: its opcode, and the width of its access.
_OPCODE, _STORE, _LOAD = 0xFFF, 0x387, 0x983
_WIDTH_SHIFT, _WIDTHS = 73, (1, 1, 2, 2, 4, 8, 16, 16)
# If the system reserves the start of a block's shared memory, each kernel's section includes it. The compiler
# marks it by a section, and the linker by a symbol.
_RESERVED, _RESERVED_SIZE = {".nv.shared.reserved.0", ".nv.reservedSmem.offset0"}, 1024
# Before version 8 of CUDA's ABI, the ELF flags hold the compute capability and this flag for the suffix "a".
_ABI_WITH_NOTES = 8
_FLAG_A = 0x800
# The assembler of Tile IR leaves these for the driver. They are not variables of a program.
_FOR_DRIVER = "___NV_TILE_LAUNCH_META_DATA___"
# Types and bindings of symbols in the ELF standard. The second type of variables is CUDA's, for relocatable
# code.
_FUNCTION = 2
_VARIABLE_TYPES = (1, 13)
# The bits of a symbol's memory space.
_DEVICE, _CONSTANT = 0x20, 0x80
_BINDINGS = {0: "local", 2: "weak"}


class Cubin(NamedTuple):
    """The contents of a cubin by lowered name. The types of variables are unknown.

    ``kernels`` maps to parameters, of which only offset and size are known, ``usage`` to the resources of
    kernels, and ``defined`` all functions and variables to their binding: local, global or weak. If several
    local variables have one name, the later ones are numbered, ``name$2``, as the linker does in PTX.
    ``external`` are the variables of other units that it declares; an array may have the size 0.
    """

    target: Architecture | None
    kernels: Mapping[str, tuple[Parameter, ...]]
    usage: Mapping[str, Resources]
    variables: Mapping[str, Symbol]
    defined: Mapping[str, str]
    external: Mapping[str, Symbol]


@dataclass(frozen=True, slots=True)
class Resources:
    """The resources that a kernel takes of a multiprocessor; ``None`` if unknown.

    Registers are per thread, everything else is in bytes. ``code`` is its machine code. The counts are those
    of ``ptxas -v``, which excludes functions that are called and not inlined. ``deepest_stack`` includes
    these and is ``None`` for unbounded recursion, and ``max_threads`` is the launch bound. Spills are unknown
    where ptxas before 13.0 gave the kernel a stack. ``constant`` is the bank with the parameters.
    """

    code: int
    registers: int | None = None
    stack: int | None = None
    spill_stores: int | None = None
    spill_loads: int | None = None
    shared: int | None = None
    constant: int | None = None
    deepest_stack: int | None = None
    max_threads: int | None = None

    @property
    def spilled(self) -> int | None:
        """The bytes that a thread spills: stores and loads together."""
        if self.spill_stores is None or self.spill_loads is None:
            return None
        return self.spill_stores + self.spill_loads


@contextmanager
def _naming_damage() -> Iterator[None]:
    try:
        yield
    except (ValueError, LookupError, ArithmeticError, struct.error) as error:
        raise BuildError(f"is not a cubin, or is damaged: {error}") from None


def read_cubin(data: bytes) -> Cubin:
    """Read a cubin. Raises :class:`BuildError` unless `data` is a complete cubin."""
    with _naming_damage():
        return _read_contents(read_elf(data))


def read_code(data: bytes) -> dict[str, bytes]:
    """Read the instructions of each function, and its own constants, by lowered name."""
    code: defaultdict[str, bytes] = defaultdict(bytes)
    for section in read_elf(data).sections:
        if match := re.fullmatch(_CODE_OR_CONSTANTS, section.name):
            code[match[1]] += section.data
    return dict(code)


def read_sizes(data: bytes) -> dict[str, int]:
    """Count the bytes of a cubin by purpose. Raises :class:`BuildError` for a damaged one.

    ``constants`` include the banks of parameters, and ``variables`` those with initial values.
    """
    with _naming_damage():
        sections = read_elf(data).sections
    sizes = dict.fromkeys(_CONTENT, 0)
    for section in sections:
        kind = next((kind for kind, names in _CONTENT.items() if section.name.startswith(names)), "other")
        sizes[kind] += len(section.data)
    sizes["other"] += len(data) - sum(sizes.values())
    return sizes


# Prefixes of the names of sections.
_CONTENT = {
    "code": (_CODE,),
    "constants": (".nv.constant",),
    "variables": (".nv.global",),
    "symbols": (".symtab", ".strtab", ".shstrtab", ".nv.callgraph", ".nv.prototype"),
    "debug": (".debug_", ".nv_debug", ".nv.debug", ".rel.debug", ".rela.debug", ".rel.nv_debug"),
    "other": (".",),
}


def _read_contents(elf: Elf) -> Cubin:
    by_name = {section.name: section for section in elf.sections}
    names = _kernel_names(elf)
    variables: dict[str, Symbol] = {}
    counts: defaultdict[str, int] = defaultdict(lambda: 1)
    defined: dict[str, str] = {}
    external: dict[str, Symbol] = {}
    for symbol in elf.symbols():
        if not symbol.section and symbol.other & (_DEVICE | _CONSTANT):
            space: Literal["constant", "device"] = "constant" if symbol.other & _CONSTANT else "device"
            external[symbol.name] = Symbol(symbol.name, symbol.name, 0, space, "char", symbol.size)
        if symbol.name == _FOR_DRIVER:
            continue
        if symbol.section and symbol.type in (_FUNCTION, *_VARIABLE_TYPES):
            defined[symbol.name] = _BINDINGS.get(symbol.binding, "global")
            section = elf.sections[symbol.section].name if symbol.section < len(elf.sections) else ""
            if symbol.type in _VARIABLE_TYPES and (own := _space(section)):
                name = symbol.name
                while name in variables:
                    counts[symbol.name] += 1
                    name = f"{symbol.name}${counts[symbol.name]}"
                variables[name] = Symbol(name, name, 0, own, "char", symbol.size)
    return Cubin(
        target=_target(elf),
        kernels={name: _parameters(by_name.get(_KERNEL_INFO + name)) for name in names},
        usage=_read_resources(elf),
        variables=variables,
        defined=defined,
        external=external,
    )


def _kernel_names(elf: Elf) -> list[str]:
    """List the kernels; each has a bank of parameters."""
    banks = [section.name for section in elf.sections if section.name.startswith(_PARAMETER_BANK)]
    return sorted({bank.removeprefix(_PARAMETER_BANK) for bank in banks} - {STAND_IN})


def _space(section: str) -> Literal["constant", "device"] | None:
    if section == ".nv.constant3":
        return "constant"
    return "device" if section.startswith(".nv.global") else None


def _target(elf: Elf) -> Architecture | None:
    """Read the target from ptxas's note or, without a note, from the ELF flags."""
    if note := elf.section(".note.nv.tkinfo"):
        match = re.search(rb"-arch[= ]+sm_([1-9]\d{1,3})([af]?)", note.data)
        return Architecture("cubin", int(match[1]), match[2].decode()) if match else None
    number = elf.flags & 0xFF
    if elf.abi < _ABI_WITH_NOTES and number >= 10:
        return Architecture("cubin", number, "a" if elf.flags & _FLAG_A else "")
    return None


def _attributes(info: Section | None) -> Iterator[tuple[int, bytes]]:
    """List numbers and values of the attributes in a section ``.nv.info``, of a kernel or of the cubin."""
    data = bytes(info.data) if info else b""
    position = 0
    while position + 4 <= len(data):
        form, attribute, size = struct.unpack_from("<BBH", data, position)
        start, end = (position + 4, position + 4 + size) if form == _SIZED else (position + 2, position + 4)
        yield attribute, data[start:end]
        position = end


def _parameters(info: Section | None) -> tuple[Parameter, ...]:
    """Read the parameters of the kernel that the section `info` describes."""
    slots = []
    for attribute, payload in _attributes(info):
        if attribute in (_PARAMETER, _LARGE_PARAMETER):
            _, ordinal, offset, size = struct.unpack_from("<IHHI", payload)
            slots.append((ordinal, offset, size >> 18 if attribute == _PARAMETER else size & _LARGE_SIZE))
    return tuple(
        Parameter(f"arg{ordinal}", f"unsigned char[{size}]", "opaque", size, offset)
        for ordinal, offset, size in sorted(slots)
    )


def _read_resources(elf: Elf) -> dict[str, Resources]:
    sections = {section.name: section for section in elf.sections}
    symbols = list(elf.symbols())
    within: dict[str, list[ElfSymbol]] = {}
    for symbol in symbols:
        if symbol.type == _FUNCTION and symbol.section < len(elf.sections):
            within.setdefault(elf.sections[symbol.section].name, []).append(symbol)
    counts: dict[str, dict[int, int]] = {}
    for attribute, value in _attributes(sections.get(".nv.info")):
        if attribute in (_REGISTERS, _FRAME, _DEEPEST):
            index, count = struct.unpack("<II", value)
            counts.setdefault(symbols[index].name, {})[attribute] = count
    is_reserved = not _RESERVED.isdisjoint([*sections, *(symbol.name for symbol in symbols)])
    return {
        name: _resources(
            name,
            sections,
            counts.get(name, {}),
            [function for function in within.get(_CODE + name, ()) if function.name != name],
            _RESERVED_SIZE if is_reserved else 0,
        )
        for name in _kernel_names(elf)
        if _CODE + name in sections
    }


def _resources(
    name: str,
    sections: Mapping[str, Section],
    counts: Mapping[int, int],
    others: Sequence[ElfSymbol],
    reserved: int,
) -> Resources:
    """Read the resources of the kernel `name`, whose code section also contains the functions `others`."""
    own = dict(_attributes(sections.get(_KERNEL_INFO + name)))
    code, shared = sections[_CODE + name], sections.get(_SHARED + name)
    frame, deepest = counts.get(_FRAME), counts.get(_DEEPEST)
    stores = loads = None
    (toolkit,) = struct.unpack("<I", own[_TOOLKIT]) if _TOOLKIT in own else (0,)
    # Without a stack frame there are no spills.
    if _ANNOTATIONS in own or toolkit >= _ANNOTATING or frame == 0:
        spills = list(_spills(own.get(_ANNOTATIONS, b""), bytes(code.data), others))
        stores, loads = (sum(w for o, w in spills if o == opcode) for opcode in (_STORE, _LOAD))
    bound = own.get(_REQUIRED_BLOCK) or own.get(_MAX_THREADS)
    return Resources(
        code=code.size,
        registers=counts.get(_REGISTERS),
        stack=frame,
        spill_stores=stores,
        spill_loads=loads,
        shared=max(0, shared.size - reserved) if shared else 0,
        constant=sections[_PARAMETER_BANK + name].size,
        deepest_stack=None if deepest == _UNBOUNDED else deepest,
        max_threads=math.prod(struct.unpack("<3I", bound)) if bound else None,
    )


def _spills(annotations: bytes, code: bytes, others: Sequence[ElfSymbol]) -> Iterator[tuple[int, int]]:
    """List opcode and width of each instruction that spills and is not part of the functions `others`."""
    for kind, place in struct.iter_unpack("<II", annotations):
        if kind == _SPILLS and not any(f.value <= place < f.value + f.size for f in others):
            instruction = int.from_bytes(code[place : place + 16], "little")
            yield instruction & _OPCODE, _WIDTHS[instruction >> _WIDTH_SHIFT & 7]
