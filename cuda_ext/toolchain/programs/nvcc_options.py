"""The options of nvcc for a unit, a target, and the host compiler that preprocesses."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from cuda_ext.compiler.compile_options import common_options, definitions
from cuda_ext.compiler.translation_unit import TranslationUnit
from cuda_ext.facts.architecture import Architecture


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
