"""Spell the options of a translation unit for NVRTC and nvcc."""

from __future__ import annotations

import itertools
import re
from typing import TYPE_CHECKING

from cuda_ext.facts.sources import Options

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

# With these options, probes would remain in nvcc's output, in debug information.
KEEPS_PROBES = frozenset(("-G", "--device-debug"))

# Options that repeat a setting; the compiler would silently use one of the two.
SETTING_OF_OPTION = {
    f"{dashes}{name}": setting
    for setting, names in {
        "architectures": ("arch", "gpu-architecture", "gencode", "generate-code", "code", "gpu-code"),
        "std": ("std",),
        "link": (
            *("rdc", "relocatable-device-code", "dc", "device-c", "dw", "device-w"),
            *("dlto", "dlink-time-opt", "lto"),
        ),
        "emit": ("fatbin", "cubin", "ptx", "optix-ir", "ltoir"),
    }.items()
    for name in names
    for dashes in ("-", "--")
}

# Options whose argument is a file or a directory.
_WITH_PATH = "-I|-isystem|-include|-optf|--(system-)?include|--options-file|--(pre|use|create)-|-pch"
_WRITES_FILES = "--?pch($|=|-(?!messages|verbose))|--?(create|use)-pch|--?time($|=)|--?f?device-time-trace"
_INCLUDE_DIRECTORY = r"(?s)(?:-I|--include-path|-isystem|--system-include)=?(.*)"

# The limit of unrolling in CCCL's lists of types: 10 under nvcc, 16 elsewhere, where one header takes as long
# as all others together (CCCL 3.5, cuda/std/__type_traits/type_list.h). The images are the same.
_UNROLL_LIMIT = "_CCCL_META_UNROLL_LIMIT"


def definitions(options: Options) -> tuple[str, ...]:
    """Spell the macro definitions."""
    macros = sorted(options.define.items())
    return tuple(f"-D{name}={value}" if value else f"-D{name}" for name, value in macros)


def common_options(options: Options) -> tuple[str, ...]:
    """Spell the options that NVRTC and nvcc share, sorted where order has no meaning."""
    fast_math = ["--use_fast_math"] if options.fast_math else []
    return (
        f"--std={options.std}",
        *definitions(options),
        *fast_math,
        *(f"--pre-include={name}" for name in options.pre_include),
        *options.raw,
    )


def nvrtc_options(name: str, options: Options) -> list[str]:
    """Spell the options of NVRTC for the source `name`, except for target and include directories."""
    # Without a seed, internal names contain the time and the process id.
    spelled = [f"--frandom-seed={name}"]
    if options.relaxed_constexpr:
        # NVRTC lacks --expt-relaxed-constexpr. This does more: functions without annotation are device code.
        spelled.append("--device-as-default-execution-space")
    if options.relocatable:
        spelled.append("--relocatable-device-code=true")
    spelled += common_options(options)
    if not any(_UNROLL_LIMIT in option for option in spelled):
        spelled.append(f"-D{_UNROLL_LIMIT}=10")
    return spelled


# Options of NVRTC that concern only its front end, besides those that begin with one of these letters.
_FRONT_END = frozenset(
    [
        *("isystem", "include", "std", "include-path", "system-include", "pre-include"),
        *("define-macro", "undefine-macro", "w", "disable-warnings", "Werror"),
        *("diag-error", "diag-warn", "diag-suppress", "brief-diagnostics"),
        *("display-error-number", "no-display-error-number", "restrict", "device-int128", "device-float128"),
        *("default-device", "device-as-default-execution-space"),
        *("builtin-move-forward", "builtin-initializer-list", "enable-tile"),
    ]
)
_FRONT_END_LETTERS = ("-I", "-D", "-U")
# The options that affect code, as nvJitLink spells them.
_CODE = {
    "ftz": "-ftz",
    "prec-sqrt": "-prec-sqrt",
    "prec-div": "-prec-div",
    "fmad": "-fma",
    "maxrregcount": "-maxrregcount",
    "Xptxas": "-Xptxas",
    "ptxas-options": "-Xptxas",
}
_WITHOUT_VALUE = {
    "use_fast_math": ("-ftz=1", "-prec-div=0", "-prec-sqrt=0", "-fma=1"),
    "lineinfo": ("-lineinfo",),
    "generate-line-info": ("-lineinfo",),
}
_SEPARATE = {"isystem", "include", "std", *_CODE}
_TRUTH = {"true": "1", "false": "0"}


def link_options(options: Options) -> list[str] | None:
    """Spell the options that affect code for nvJitLink; ``None`` if it has no equivalent of one of them."""
    spelled: list[str] = [*_WITHOUT_VALUE["use_fast_math"]] if options.fast_math else []
    raw = iter(options.raw)
    for option in raw:
        if option.startswith(_FRONT_END_LETTERS):
            if option in _FRONT_END_LETTERS:
                next(raw, "")
            continue
        name, has_value, value = option.lstrip("-").partition("=")
        if name in _SEPARATE and not has_value:
            value = next(raw, "")
        if name in _CODE:
            spelled += (f"{_CODE[name]}={_TRUTH.get(each, each)}" for each in value.split(","))
        elif name in _WITHOUT_VALUE:
            spelled += _WITHOUT_VALUE[name]
        elif name not in _FRONT_END:
            return None
    return spelled


def is_assembled_by_link(options: Options) -> bool:
    """Return True if linking a unit's PTX gives the compiler's code: the PTX contains all of its options."""
    in_ptx = ("-ftz", "-prec-", "-fma")
    linking = link_options(options) if options.relocatable else None
    return linking is not None and all(option.startswith(in_ptx) for option in linking)


def include_directories(options: Options) -> tuple[Path, ...]:
    """List the include directories outside the project, which are among the raw options."""
    from pathlib import Path  # slow to import

    return tuple(
        Path(match[1] or following)
        for option, following in itertools.pairwise((*options.raw, ""))
        if (match := re.fullmatch(_INCLUDE_DIRECTORY, option))
    )


def setting_of(option: str) -> str | None:
    """Return the setting that `option` repeats, with a value or without.

    >>> setting_of("--gpu-architecture=sm_90"), setting_of("-architecture")
    ('architectures', None)
    """
    return SETTING_OF_OPTION.get(option.partition("=")[0].partition(" ")[0])


def enables_tile(options: Options) -> bool:
    """Return True if compilers accept kernels of CUDA Tile with these options."""
    return any(option in ("--enable-tile", "-enable-tile") for option in options.raw)


def option_for_files(options: Options) -> str:
    """Return the first raw option that makes NVRTC write files of its own."""
    return next((option for option in options.raw if re.match(_WRITES_FILES, option)), "")


def option_with_path(options: Options) -> str:
    """Return the first raw option that names a file or a directory, which may differ on other machines."""
    return next((option for option in options.raw if re.match(_WITH_PATH, option)), "")


def on_demand_obstacle(options: Options) -> str:
    """Return why a source with these options cannot be compiled on demand; an empty string if it can."""
    if enables_tile(options):
        return "has kernels of CUDA Tile, which are not compiled on demand"
    if option := option_with_path(options):
        return f"was compiled with {option}, and other machines may have other files there"
    if found := nvcc_only(options.raw):
        return f"was compiled with {options.raw[found[0]]}, which NVRTC does not take"
    return ""


# Options of nvcc that NVRTC does not have, without their values, and the remedies.
_NVCC_ONLY = {
    r"-Xcompiler|--compiler-options|-ccbin|--compiler-bindir|--?forward-.*|--?allow-unsupported-compiler|"
    r"-f(?:PIC|pic|openmp)|-W(?:all|extra)|-m64|-march": "it is for the host compiler: take it out",
    r"-O[0-3]?|--?optimize": 'NVRTC optimises without it: take it out, or write "-Xptxas=-O3"',
    r"--?(?:expt-)?extended-lambda": "NVRTC compiles lambdas in kernels without it: take it out",
    r"-t\d*|--threads": "a build compiles in parallel without it: take it out",
    r"-g|--debug|-pg|--profile": 'write "-G" for debug information, or "-lineinfo" for line numbers',
    r"--?res-usage|--?resource-usage": "`cuda-ext inspect` shows the resources of each kernel: take it out",
    r"--?keep|--?keep-dir|-v|--verbose|--?dryrun|--?save-temps|-M[A-Z]*|--generate-\w*-?dependencies.*|"
    r"-Wno-deprecated-gpu-targets": "it changes no image: take it out",
    r"-l(?!ineinfo|to).+|-L.*|--library.*|--?cudart|-cudadevrt|--?shared|-c|--compile|-o|--?x|--?lib|--?link|"
    r"--?default-stream": "it is for host code: take it out",
    r"-Xnvlink|--nvlink-options": "images are linked without nvlink: take it out",
}


# Options that a setting replaces.
_SETTING_FOR = {
    r"--?expt-relaxed-constexpr": ("relaxed-constexpr", True),
    r"-Xfatbin|--fatbin-options|--?no-compress": ("compress", None),
}


def nvcc_only(options: Sequence[str]) -> tuple[int, str] | None:
    """Find the first of `options` that only nvcc has; return its index and the remedy."""
    passing_on = ("-Xptxas", "--ptxas-options", "-Xcudafe")
    for index, option in enumerate(options):
        if index and options[index - 1] in passing_on:
            continue
        name, _, value = option.partition("=")
        following = options[index + 1] if option == name and index + 1 < len(options) else ""
        if name in passing_on and "," in (value or following):
            single = ", ".join(f'"-Xptxas={each}"' for each in (value or following).split(","))
            return index, f"NVRTC passes its value on as one option: write {single}"
        for pattern, remedy in _NVCC_ONLY.items():
            if re.fullmatch(pattern, name):
                return index, remedy
        for pattern, setting in _SETTING_FOR.items():
            if re.fullmatch(pattern, name):
                from cuda_ext.compiler.spelled_settings import spell_setting  # not at a first launch

                return index, f"set {spell_setting(*setting)}"
    return None
