"""The resources that each kernel of a cubin takes of a multiprocessor."""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from cuda_ext.errors import BuildError
from cuda_ext.formats.cubin import CODE, FUNCTION, KERNEL_INFO, PARAMETER_BANK, attributes, read_cubin
from cuda_ext.formats.elf import Section, Symbol, read_elf

__all__ = ["Resources", "Usage", "read_resources"]

# Attributes in .nv.info of functions, which are indices of symbols,
_REGISTERS, _FRAME, _DEEPEST = 0x2F, 0x11, 0x12
# and of a kernel. A required block is its only size.
_MAX_THREADS, _REQUIRED_BLOCK, _ANNOTATIONS, _TOOLKIT = 0x05, 0x10, 0x55, 0x37
_UNBOUNDED = 0xFFFFFFFF
# Since CUDA 13.0, ptxas annotates each instruction that spills, with this number and its offset.
_SPILLS, _ANNOTATING = 1, 130
# Bits of such an instruction, which has 128: its opcode, and the width of its access.
_OPCODE, _STORE, _LOAD = 0xFFF, 0x387, 0x983
_WIDTH_SHIFT, _WIDTHS = 73, (1, 1, 2, 2, 4, 8, 16, 16)
# Where the system reserves the start of a block's shared memory, it is part of the section of each kernel.
# The compiler marks it by a section, the linker by a symbol.
_RESERVED, _RESERVED_SIZE = {".nv.shared.reserved.0", ".nv.reservedSmem.offset0"}, 1024


@dataclass(frozen=True, slots=True)
class Usage:
    """The resources of a kernel: registers per thread, and bytes of everything else.

    ``code`` is its machine code. The others are what ptxas reports, and ``None`` where they are unknown.
    """

    code: int
    registers: int | None = None
    stack: int | None = None
    spill_stores: int | None = None
    spill_loads: int | None = None
    shared: int | None = None
    constant: int | None = None

    @property
    def spilled(self) -> int | None:
        """The bytes that a thread spills: stores and loads together."""
        known = self.spill_stores is not None and self.spill_loads is not None
        return (self.spill_stores or 0) + (self.spill_loads or 0) if known else None


@dataclass(frozen=True, slots=True)
class Resources(Usage):
    """The resources of a kernel that its cubin shows.

    The counts are those of ``ptxas -v``, which excludes functions that are called and not inlined.
    ``deepest_stack`` includes these, and is ``None`` for unbounded recursion. ``constant`` is the bank with
    the parameters, ``max_threads`` the launch bound. Spills are ``None`` where the cubin may lack them.
    """

    deepest_stack: int | None = None
    max_threads: int | None = None


def read_resources(cubin: bytes) -> dict[str, Resources]:
    """Read the resources of each kernel, by lowered name. Raises :class:`BuildError` for a damaged cubin."""
    names = read_cubin(cubin).code
    try:
        elf = read_elf(cubin)
        sections = {section.name: section for section in elf.sections}
        symbols = list(elf.symbols())
        functions = _function_attributes(sections.get(".nv.info"), symbols)
        within: dict[str, list[Symbol]] = {}
        for symbol in symbols:
            if symbol.type == FUNCTION and symbol.section < len(elf.sections):
                within.setdefault(elf.sections[symbol.section].name, []).append(symbol)
        is_reserved = not _RESERVED.isdisjoint([*sections, *(symbol.name for symbol in symbols)])
        reserved = _RESERVED_SIZE if is_reserved else 0
        return {
            name: _resources(
                name,
                sections,
                functions.get(name, {}),
                [function for function in within.get(CODE + name, ()) if function.name != name],
                reserved,
            )
            for name in names
        }
    except (ValueError, IndexError, struct.error) as error:
        raise BuildError(f"is not a cubin, or a damaged one: {error}") from None


def _function_attributes(info: Section | None, symbols: Sequence[Symbol]) -> dict[str, dict[int, int]]:
    functions: dict[str, dict[int, int]] = {}
    for attribute, value in attributes(info):
        if attribute in (_REGISTERS, _FRAME, _DEEPEST):
            symbol, count = struct.unpack("<II", value)
            functions.setdefault(symbols[symbol].name, {})[attribute] = count
    return functions


def _resources(
    name: str,
    sections: Mapping[str, Section],
    function: Mapping[int, int],
    others: Sequence[Symbol],
    reserved: int,
) -> Resources:
    """The resources of the kernel `name`, whose section of code also contains the functions `others`."""
    own = dict(attributes(sections.get(KERNEL_INFO + name)))
    code, shared = sections[CODE + name], sections.get(f".nv.shared.{name}")
    frame = function.get(_FRAME)
    stores = loads = None
    (toolkit,) = struct.unpack("<I", own[_TOOLKIT]) if _TOOLKIT in own else (0,)
    # Without a stack frame there are no spills.
    if _ANNOTATIONS in own or toolkit >= _ANNOTATING or frame == 0:
        spills = list(_spills(own.get(_ANNOTATIONS, b""), bytes(code.data), others))
        stores, loads = (sum(w for o, w in spills if o == opcode) for opcode in (_STORE, _LOAD))
    deepest = function.get(_DEEPEST)
    bound = own.get(_REQUIRED_BLOCK) or own.get(_MAX_THREADS)
    return Resources(
        code=code.size,
        registers=function.get(_REGISTERS),
        stack=frame,
        spill_stores=stores,
        spill_loads=loads,
        shared=max(0, shared.size - reserved) if shared else 0,
        constant=sections[PARAMETER_BANK + name].size,
        deepest_stack=None if deepest == _UNBOUNDED else deepest,
        max_threads=math.prod(struct.unpack("<3I", bound)) if bound else None,
    )


def _spills(annotations: bytes, code: bytes, others: Sequence[Symbol]) -> Iterator[tuple[int, int]]:
    """List opcode and width of each instruction that spills and is not part of the functions `others`."""
    for kind, place in struct.iter_unpack("<II", annotations):
        if kind == _SPILLS and not any(f.value <= place < f.value + f.size for f in others):
            instruction = int.from_bytes(code[place : place + 16], "little")
            yield instruction & _OPCODE, _WIDTHS[instruction >> _WIDTH_SHIFT & 7]
