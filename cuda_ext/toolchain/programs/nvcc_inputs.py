"""Inputs of nvcc: options, sources with instantiations and probes, and headers as files.

The PTX has the lowered names of instantiations and probes.
"""

from __future__ import annotations

import os
import posixpath
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

from cuda_ext.compiler.compile_options import common_options, definitions
from cuda_ext.compiler.signatures.attempt import Attempt
from cuda_ext.compiler.signatures.probes import PROBES
from cuda_ext.compiler.translation_unit import TranslationUnit
from cuda_ext.facts.architecture import Architecture
from cuda_ext.formats import ptx
from cuda_ext.text.includes import Include, rewrite_includes

FIRST_LINE = 2  # the line of the first name expression in the file __nv_name_map, after a declaration
_TABLE, _LOWERED = "cuda_ext_name_map", "_Z17cuda_ext_name_mapILi0EEvPVPv"
# Probes with types of an anonymous namespace have internal linkage, which their names show.
_LOWERED_PROBES = r"_ZN(?:\d+_INTERNAL_\w+?)?14cuda_ext_probe\w+"
# Device code cannot refer to kernels that are not defined, nor to such functions if their types are of an
# anonymous namespace.
_DEFINED_PROBES = PROBES.replace("__global__ void probe();", "__device__ void probe() {}")


def with_instantiations(unit: TranslationUnit) -> bytes:
    """Append references to instantiations in host code: nvcc compiles them and changes nothing else."""
    addresses = [f"(void*)&{expression}," for expression in unit.instantiate]
    declaration = f"[[maybe_unused]] static void* const {_TABLE}_[] = {{"
    return _with_table(unit.source, declaration, addresses, "};")


def with_probes(unit: TranslationUnit, asked: Attempt) -> bytes:
    """Append a kernel with the addresses of instantiations and probes, which can be removed again."""
    source = with_instantiations(unit)
    addresses = [f"*cuda_ext_address++ = (void*)&{expression};" for expression in asked.expressions]
    # A template: names of internal linkage contain another name of the source, if it has any.
    declaration = f"template <int> __global__ void {_TABLE}(void* volatile* cuda_ext_address) {{"
    end = f"}} template __global__ void {_TABLE}<0>(void* volatile*);"
    before = asked.append_to(_DEFINED_PROBES.encode()).decode() if asked.probes else ""
    return _with_table(source, declaration, addresses, end, before)


def _with_table(source: bytes, declaration: str, lines: Sequence[str], end: str, before: str = "") -> bytes:
    if not lines:
        return source
    # An incomplete source causes an error at the semicolon, before the lines that have their own numbers.
    table = [";", before, '#line 1 "__nv_name_map"', declaration, *lines, end]
    return source + "\n".join(["", *table, ""]).encode()


def lowered_names(text: bytes) -> tuple[str, ...]:
    """List the lowered names of the instantiations and probes in the PTX `text`, in their order."""
    return ptx.stored_addresses(text, _LOWERED)


def without_probes(text: bytes) -> bytes:
    """Remove the table of names and probes from PTX, and the file of its line numbers."""
    text = ptx.without_functions(text, rf"{_LOWERED}|{_LOWERED_PROBES}".encode())
    return re.sub(rb'(?m)^[ \t]*\.file[ \t]+\d+ "[^"\n]*/__nv_name_map".*\n', b"", text)


def write_files(directory: Path, texts: Mapping[str, bytes]) -> None:
    """Write the `texts` of a unit by canonical name, so that a host compiler reads each where it is named."""
    copies: Counter[bytes] = Counter()
    for name, content in sorted(texts.items()):
        path = directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(_apart(name, content, texts))
        # Line information contains the time of modification. Host compilers take files with the same time
        # and text for one, which ``#pragma once`` reads once.
        os.utime(path, (copies[content], copies[content]))
        copies[content] += 1


def _apart(name: str, content: bytes, texts: Mapping[str, bytes]) -> bytes:
    """Return the text of a file so that no include leads to another file below its own directory."""
    above = posixpath.dirname(name)

    def spell(include: Include) -> tuple[str, str] | None:
        if include.is_quoted and f"{above}/{include.name}" in texts and include.name in texts:
            return include.word, f'"{posixpath.relpath(include.name, above)}"'
        return None

    return rewrite_includes(content, spell) if above else content


def target_options(architecture: Architecture) -> list[str]:
    """Return the options for the form of the output, and the GPU."""
    if architecture.kind == "ltoir":
        return ["-ltoir", "-dlto", f"-arch=sm_{architecture.target}"]
    return [f"-{architecture.kind}", f"-arch={architecture}"]


def options_of(unit: TranslationUnit, architecture: Architecture) -> list[str]:
    """Return the options of `unit`, without its macros, which go to the host compiler."""
    # LTO-IR is always relocatable, which changes names of internal linkage.
    relocatable = unit.options.relocatable or architecture.kind == "ltoir"
    options = ["--expt-relaxed-constexpr"] if unit.options.relaxed_constexpr else []
    if relocatable:
        options.append("-rdc=true")
    return [*options, *common_options(unit.options._replace(define={}))]


def host_options(unit: TranslationUnit, header_directories: Sequence[Path]) -> list[str]:
    """Return the options for the host compiler, which preprocesses."""
    options = [
        *definitions(unit.options),
        # Headers are found below ".", and must have the names that the project gives them.
        "-fmacro-prefix-map=./=",
        # After the headers of nvcc's own toolkit: they must be of its version.
        *(f"-idirafter{directory}" for directory in header_directories),
    ]
    # Launchers do not read response files. nvcc splits options at commas and removes one backslash of each
    # pair; the rest is passed to a shell, unquoted.
    return ["-Xcompiler=" + re.sub(r"([^\w@%+=:./-])", r"\\\\\\\1", option) for option in options]
