"""Reads images: their kernels and variables, and signatures from the compiler's debug information.

A translation unit compiled to PTX with ``-G`` carries DWARF: for every kernel its lowered name, its C++
name, its parameters with names and resolved types; for every variable its type. This includes templates,
``extern "C"``, ``static``, anonymous namespaces and kernels that macros define, under NVRTC and nvcc. It is a
separate pass of the compiler, of which only the signatures are kept.
"""

from __future__ import annotations

import io
import posixpath
import re
from collections.abc import Iterator, Mapping, Set
from typing import Any

from cuda_ext.compiler.products import CompiledImage, Signatures
from cuda_ext.formats import ptx as ptx_text
from cuda_ext.formats.architecture import Architecture
from cuda_ext.formats.cubin import read_cubin
from cuda_ext.formats.mangling import namespaces, nested_name
from cuda_ext.formats.resources import Resources
from cuda_ext.formats.spelling import normalise
from cuda_ext.manifest import ImageKind, Kernel, Parameter, ParameterKind, Symbol

__all__ = ["read_image", "reflect_debug_ptx", "reflect_image"]

# DW_AT_encoding, from section 7.8 of the DWARF 2 standard.
_ENCODINGS: dict[int, ParameterKind] = {
    0x02: "bool",
    0x04: "float",
    0x05: "integer",
    0x06: "integer",
    0x07: "unsigned",
    0x08: "unsigned",
}


def read_image(architecture: Architecture, data: bytes) -> CompiledImage:
    """List the kernels and variables in the image `data`; LTO-IR shows none.

    Raises :class:`~cuda_ext.errors.BuildError` for damaged data.
    """
    kernels, variables, code = _read_contents(architecture.kind, data)
    sizes = {name: tuple(p.size for p in parameters) for name, parameters in kernels.items()}
    sizes |= {name: (variable.size,) for name, variable in variables.items()}
    usage = {name: Resources(size) for name, size in code.items()}
    entries, names = tuple(sorted(kernels)), tuple(sorted(variables))
    return CompiledImage(architecture, data, entries, names, sizes, usage=usage)


def reflect_image(kind: ImageKind, data: bytes) -> Signatures:
    """Read the signatures in an image without debug information, where names are lowered names.

    PTX has plain types, a cubin sizes alone, and LTO-IR shows nothing.
    """
    kernels, variables, _ = _read_contents(kind, data)
    return Signatures({name: Kernel(name, name, 0, slots) for name, slots in kernels.items()}, variables)


_Contents = tuple[Mapping[str, tuple[Parameter, ...]], Mapping[str, Symbol], Mapping[str, int]]


def _read_contents(kind: ImageKind, data: bytes) -> _Contents:
    """The parameters of kernels, the variables, and the sizes of code in an image, by lowered name."""
    match kind:
        case "cubin":
            cubin = read_cubin(data)
            return cubin.kernels, cubin.variables, cubin.code
        case "ptx":
            return ptx_text.kernels(data), ptx_text.variables(data), {}
        case "ltoir":
            return {}, {}, {}


def reflect_debug_ptx(ptx: bytes, project_files: Set[str]) -> Signatures:
    """Read the signatures in `ptx`, which was compiled with debug information.

    All kernels are included, and the variables that a file of the project declares and that can be written:
    constants, and variables of the tool chain's headers, are excluded.
    """
    declared = ptx_text.kernels(ptx)
    variables = ptx_text.variables(ptx)
    files = ptx_text.files(ptx)
    kernels: dict[str, Kernel] = {}
    symbols: dict[str, Symbol] = {}
    for unit in _compilation_units(ptx):
        top = unit.get_top_DIE()
        here = _text(top, "DW_AT_comp_dir").rstrip("/") + "/"
        for die in top.iter_children():
            lowered = _text(die, "DW_AT_MIPS_linkage_name")
            if die.tag == "DW_TAG_subprogram" and lowered in declared:
                parameters = declared[lowered]
                described = [d for d in die.iter_children() if d.tag == "DW_TAG_formal_parameter"]
                if len(described) == len(parameters):
                    parameters = tuple(map(_describe, parameters, described))
                kernels[lowered] = Kernel(_qualified(die, lowered), lowered, 0, parameters)
            elif die.tag == "DW_TAG_variable" and lowered in variables:
                file = files.get(_number(die, "DW_AT_decl_file"), "").removeprefix(here)
                if posixpath.normpath(file) in project_files and not _is_const(_target(die)):
                    name, type_ = _qualified(die, lowered), _spelling(_target(die))
                    symbols[lowered] = variables[lowered]._replace(name=name, type=type_)
    return Signatures(kernels, symbols, frozenset(variables))


def _describe(declared: Parameter, die: Any) -> Parameter:
    """Give a parameter, as PTX declares it, the name and type that DWARF describes."""
    type_ = _resolved(_target(die))
    element, const = None, False
    match type_.tag if type_ is not None else None:
        case "DW_TAG_pointer_type" | "DW_TAG_reference_type":
            kind: ParameterKind = "pointer"
            element, const = _spelling(_resolved(_target(type_))), _is_const(_target(type_))
        case "DW_TAG_base_type":
            kind = _ENCODINGS.get(_number(type_, "DW_AT_encoding"), "opaque")
            if kind == "float" and declared.size > 8:
                kind = "opaque"  # Python has no __float128
        case "DW_TAG_enumeration_type":
            kind = "enum"
        case _:
            kind = "struct"
    name = _text(die, "DW_AT_name") or declared.name
    return Parameter(name, _spelling(type_), kind, declared.size, declared.offset, element, const)


def _compilation_units(ptx: bytes) -> Iterator[Any]:
    from cuda_ext.formats.dwarf import DebugSectionDescriptor, DwarfConfig, DWARFInfo, InlineText

    def section(name: str) -> Any:
        data = ptx_text.debug_section(ptx, name)
        return DebugSectionDescriptor(io.BytesIO(data), name, 0, len(data), 0)

    absent = (
        "aranges frame loc ranges line pubtypes pubnames addr str_offsets line_str loclists rnglists "
        "sup types"
    )
    dwarf = DWARFInfo(
        config=DwarfConfig(little_endian=True, machine_arch="CUDA", default_address_size=8),
        debug_info_sec=section(".debug_info"),
        debug_abbrev_sec=section(".debug_abbrev"),
        debug_str_sec=section(".debug_str"),
        eh_frame_sec=None,
        gnu_debugaltlink_sec=None,
        **{f"debug_{name}_sec": None for name in absent.split()},
    )
    for unit in dwarf.iter_CUs():
        unit.structs.Dwarf_dw_form["DW_FORM_string"] = InlineText("")  # type: ignore[assignment]
        yield unit


def _text(die: Any, attribute: str) -> str:
    value = die.attributes.get(attribute)
    return value.value.decode(errors="replace") if value is not None else ""


def _number(die: Any, attribute: str) -> int:
    value = die.attributes.get(attribute)
    return value.value if value is not None and isinstance(value.value, int) else 0


def _target(die: Any) -> Any:
    """Return the type that `die` refers to; ``None`` is void."""
    return die.get_DIE_from_attribute("DW_AT_type") if "DW_AT_type" in die.attributes else None


_TRANSPARENT = {
    "DW_TAG_typedef",
    "DW_TAG_const_type",
    "DW_TAG_volatile_type",
    "DW_TAG_restrict_type",
}


def _resolved(type_: Any) -> Any:
    """Return `type_` without typedefs and qualifiers."""
    while type_ is not None and type_.tag in _TRANSPARENT:
        type_ = _target(type_)
    return type_


def _is_const(type_: Any) -> bool:
    """Whether `type_`, or the element of the array that it is, is ``const``."""
    while type_ is not None and type_.tag in {*_TRANSPARENT, "DW_TAG_array_type"}:
        if type_.tag == "DW_TAG_const_type":
            return True
        type_ = _target(type_)
    return False


def _spelling(type_: Any) -> str:
    """Spell `type_` in C++ without typedefs: ``const float*``, ``float[9]``, ``void(*)(int)``."""
    if type_ is None:
        return "void"
    match type_.tag:
        case "DW_TAG_const_type" | "DW_TAG_volatile_type":
            inner = _spelling(_target(type_))
            word = "const" if type_.tag == "DW_TAG_const_type" else "volatile"
            return f"{inner} {word}" if inner.endswith("*") else f"{word} {inner}"
        case "DW_TAG_pointer_type" | "DW_TAG_reference_type":
            inner, sign = _target(type_), "*" if type_.tag == "DW_TAG_pointer_type" else "&"
            match _resolved(inner).tag if inner is not None else None:
                case "DW_TAG_array_type":
                    return _spelling(inner).replace("[", f"({sign})[", 1)
                case "DW_TAG_subroutine_type":
                    return _spelling(inner).replace("(", f"({sign})(", 1)
            return _spelling(inner) + sign
        case "DW_TAG_array_type":
            counts = "".join(
                f"[{_number(d, 'DW_AT_count') or _number(d, 'DW_AT_upper_bound') + 1}]"
                for d in type_.iter_children()
                if d.tag == "DW_TAG_subrange_type"
            )
            return _spelling(_target(type_)) + counts
        case "DW_TAG_subroutine_type":
            parameters = [d for d in type_.iter_children() if d.tag == "DW_TAG_formal_parameter"]
            return f"{_spelling(_target(type_))}({', '.join(_spelling(_target(p)) for p in parameters)})"
        case tag if tag in _TRANSPARENT:
            return _spelling(_target(type_))
        case _:
            name = _text(type_, "DW_AT_name")  # lowered, where it is an enumeration in a namespace
            return (nested_name(name) if name.startswith("_Z") else normalise(name)) or "struct"


def _qualified(die: Any, lowered: str) -> str:
    """Return the C++ name with its namespaces, which DWARF omits and the lowered name has."""
    if match := re.match(r"__nv_static_(\d+)_", lowered):
        # Relocatable code: an identifier of that length precedes a name of internal linkage.
        lowered = lowered[match.end() + int(match[1]) + 1 :]
    name = _text(die, "DW_AT_name")
    if name == lowered and lowered.startswith("_Z"):
        return nested_name(lowered)
    return normalise("::".join([*namespaces(lowered), name]))
