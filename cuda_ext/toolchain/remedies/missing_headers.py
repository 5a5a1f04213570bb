"""Remedies for missing headers: the package or directory with the header, and the place to name it."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from cuda_ext.compiler.compile_options import include_directories
from cuda_ext.compiler.spelled_settings import IN_PYTHON, spell_setting
from cuda_ext.compiler.translation_unit import NAMED, TranslationUnit
from cuda_ext.errors import closest_name
from cuda_ext.filesystem.inner_path import is_inner_path
from cuda_ext.text.includes import find_includes
from cuda_ext.toolchain.programs.header_dependencies import reachable_headers

# The messages of the CUDA front end, and of host compilers that preprocess.
_MISSING_HEADER = (
    r"(?m)^(?P<error>(?P<place>.+?(?:\(\d+\)|:\d+(?::\d+)?)): (?:catastrophic |fatal )?error: "
    r'(?:cannot open source file "(?P<name>[^"]+)"|(?P<name2>\S+): No such file or directory'
    r"|'(?P<name3>[^']+)' file not found).*\n?)"
    r"(?P<excerpt>(?: *\d+ \| .*\n *\| [ ^~]*\n?|  .*\n *\^ *\n*)?)"
)
_LIBCUXX = "cuda/std/"  # without one of its headers, all others are missing, too
_MOST_HEADERS = 8  # the number of headers that one error names

CUDA_H = (
    "<cuda.h> declares the driver API, for host code; leave it out, put it between #ifndef "
    "__CUDACC_RTC__ and #endif, or set {nvcc}; a kernel with a tensor map can declare "
    "struct alignas(64) CUtensorMap {{ unsigned long long opaque[16]; }};"
)
# Remedies by patterns of names. Before the name of a header that one of the tool chain includes come the name
# of that one and a colon.
_UNDER_NVRTC = {
    # nvcc includes these by itself.
    r"cuda_runtime\.h|cuda_runtime_api\.h|device_launch_parameters\.h": (
        "NVRTC has the device declarations of <{name}> built in; leave this line out, or put it between "
        "#ifndef __CUDACC_RTC__ and #endif"
    ),
    r"cuda\.h:.+": CUDA_H,
    r".+:cuda/std/.+": (
        "<{name}> is a header of libcu++, which is missing here or older; add {cccl} to requires in "
        "[build-system], and to dependencies for compilation on demand"
    ),
    r".+:(?!crt/).+": (
        "this header needs <{name}>, which NVRTC does not have; if it is for host code, leave it out or "
        "set {nvcc}; otherwise a package of the tool chain is missing"
    ),
    r"cstdio|stdio\.h": (
        "NVRTC has no host headers, and knows printf without <{name}>; leave this line out, or set {nvcc} "
        "for host code"
    ),
}
_HOST_LIBRARY = {
    r"[a-z_]+|(?:dirent|dlfcn|fcntl|getopt|io|malloc|omp|pthread|signal|unistd|windows)\.h|sys/.+": (
        "NVRTC has no host headers; set {skip}, which leaves <{name}> and host code out, put it between "
        "#ifndef __CUDACC_RTC__ and #endif, or set {nvcc}"
    ),
}
# Packages whose headers the compilers find, by the beginnings of the headers' names.
_FOR_DEVICE_CODE = {
    r"curand(?!dx)": "nvidia-curand",
    r"cub/|cuda/|thrust/": "nvidia-cuda-cccl",
    r"crt/": "nvidia-cuda-nvcc",
}
_OTHERS = {
    **{
        f"(?:{beginning}).*": (
            f'"{{name}}" is in another package; add "{package}" ("{package}-cu12" for CUDA 12) to requires '
            "in [build-system], and to dependencies for compilation on demand"
        )
        for beginning, package in _FOR_DEVICE_CODE.items()
    },
    r"(?:cublas|cufft|cusolver|cusparse|npp|nvjpeg|nvtx3)(?!dx).*"
    r"|Python\.h|(?:ATen|c10|torch|pybind11|nanobind)/.+": (
        '"{name}" is for host code; {without}add the package that '
        "has it to requires in [build-system], and its directory to {options}, as in "
        '"-I/path/to/include"'
    ),
    r"cuda_tile\.h": (
        '"{name}" comes with the assembler of tile kernels; require "cuda-ext[tile]" for builds'
    ),
    r"(?s:.*)": (
        '"{name}" is neither in the include directories nor among the headers of {compiler}; correct its '
        "name, or add its directory: to {include_dirs}, or, outside of the project, to {options}, as in "
        '"-I/opt/include"'
    ),
}


def explain_missing_headers(
    log: str,
    unit: TranslationUnit,
    nvrtc_headers: Callable[[], Sequence[Path]] | None,
    compile_again: Callable[[TranslationUnit], str],
) -> tuple[str, list[str]]:
    """Return `log` and a remedy for each header that is missing; `nvrtc_headers` is ``None`` for nvcc.

    A compiler ends at the first of them: `compile_again` returns its text about `unit` with empty headers in
    their place. The excerpts of these errors are left out: they spell an #include as the compiler reads it,
    not as the file does.
    """
    notes = []
    logs = _collect(log, unit, compile_again)
    for match in [found for text in logs for found in re.finditer(_MISSING_HEADER, text)]:
        if match[0] not in log:
            log = f"{log.rstrip()}\n{match[0]}"
        log = log.replace(match[0], match["error"])
        place, name = match["place"], _missing_name(match)
        if nvrtc_headers is None:
            notes.append(f"{place}: {_look_up(name, _OTHERS, 'nvcc and its host compiler')}")
        else:
            directories = nvrtc_headers()
            includer = _includer(re.split(r"\(\d+\)$", place)[0], unit, directories)
            through = f" (which {includer} includes)" if includer else ""
            notes.append(f"{place}{through}: {_about_nvrtc(place, name, directories)}")
    return log, notes


def _missing_name(match: re.Match[str]) -> str:
    name: str = match["name"] or match["name2"] or match["name3"]
    return name.removeprefix("./")


def _collect(
    log: str, unit: TranslationUnit, compile_again: Callable[[TranslationUnit], str]
) -> Sequence[str]:
    """Return `log`, and the texts about further headers that are missing."""
    logs, stubs = [log], dict[str, bytes]()
    while len(stubs) < _MOST_HEADERS and (match := re.search(_MISSING_HEADER, logs[-1])):
        name = _missing_name(match)
        is_known = f"{NAMED}{name}" in stubs or name in unit.headers
        if is_known or not is_inner_path(name) or name.startswith(_LIBCUXX):
            break
        stubs[f"{NAMED}{name}"] = b""
        logs.append(compile_again(unit.replace(headers={**unit.headers, **stubs}, instantiate=())))
    return logs


def _includer(file: str, unit: TranslationUnit, directories: Sequence[Path]) -> str:
    """Return the project's line that leads to `file`, which is outside of the project; or nothing."""
    search = [*include_directories(unit.options), *directories]
    for name, content in {unit.name: unit.source, **unit.headers}.items():
        text = content.decode(errors="surrogateescape")
        for include in find_includes(content).named:
            line = TranslationUnit(name, f"#include <{include.name}>".encode(errors="surrogateescape"))
            if os.path.normpath(file) in reachable_headers(line, search):
                return f"{name}({text.count(chr(10), 0, include.start) + 1})"
    return ""


def _about_nvrtc(place: str, name: str, directories: Sequence[Path]) -> str:
    is_of_tool_chain = any(Path(place).is_relative_to(directory) for directory in directories)
    includer = f"{Path(place.partition('(')[0]).name}:" if is_of_tool_chain else ""
    return (
        _look_up(f"{includer}{name}", _UNDER_NVRTC, name=name)
        or _equivalent(name, directories)
        or _misspelt(name, directories)
        or _look_up(name, _HOST_LIBRARY)
        or _look_up(name, _OTHERS)
    )


def _equivalent(name: str, directories: Sequence[Path]) -> str:
    """Return the remedy for the host's header `name` if libcu++ has one in its place; or nothing."""
    plain = name.removesuffix(".h")
    candidates = [f"cuda/std/{name}", f"cuda/std/{plain}"]
    if name != plain:
        candidates.insert(0, f"cuda/std/c{plain}")
    for directory in directories:
        for candidate in candidates:
            if os.path.isfile(directory / candidate):  # noqa: PTH113 - a long name is an OSError there
                instead = f"include <{candidate}> instead of <{name}> (its names are in cuda::std)"
                return f"NVRTC has no host headers; {fill_in('set {std_headers}')}, or {instead}"
    return ""


def _misspelt(name: str, directories: Sequence[Path]) -> str:
    """Return the remedy for a header `name` that is missing in an existing directory; or nothing."""
    folder, _, file = name.rpartition("/")
    if not re.match(r"\w", folder):
        return ""  # a path of the project's, not a name among the CUDA headers
    for directory in directories:
        if os.path.isdir(directory / folder):  # noqa: PTH112 - a long name is an OSError there
            close = closest_name(file, os.listdir(directory / folder))  # noqa: PTH208
            meant = f"did you mean <{folder}/{close}>?" if close else "correct its name"
            return f"<{folder}/> of the CUDA headers has no {file!r}; {meant}"
    return ""


def _look_up(subject: str, table: Mapping[str, str], compiler: str = "NVRTC", name: str = "") -> str:
    """Return the remedy of the first pattern in `table` that is `subject`, about the header `name`."""
    sentence = next((s for pattern, s in table.items() if re.fullmatch(pattern, subject)), "")
    return fill_in(sentence, name or subject, compiler)


def leave_out_host_code() -> str:
    """Return the part of a remedy about the setting for sources with host code."""
    return f"set {spell_setting('host-code', 'skip')}, which leaves host code out, "


def fill_in(sentence: str, name: str = "", compiler: str = "NVRTC") -> str:
    """Fill a remedy's sentence with the `name` that it is about, the `compiler`, and settings."""
    nvcc = spell_setting("compiler", "nvcc")
    skip = spell_setting("host-code", "skip")
    keys = ("options", "include-dirs", "std", "define", "pre-include")
    if IN_PYTHON.get():
        for requirement in (
            " to requires in [build-system], and to dependencies for compilation on demand",
            " to requires in [build-system]",
        ):
            sentence = sentence.replace(requirement, " to this environment")
    cccl = '"nvidia-cuda-cccl" ("nvidia-cuda-cccl-cu12" for CUDA 12)'
    return sentence.format(
        name=name,
        compiler=compiler,
        nvcc=nvcc,
        without=f"set {skip}, which leaves it out, or set {nvcc}, and "
        if compiler == "NVRTC"
        else "keep kernels in a source without it, or ",
        skip=skip,
        move=f"{leave_out_host_code()}move it to another file, or set {nvcc}",
        link=spell_setting("link", True),
        cccl=cccl,
        std_headers=spell_setting("std-headers", True),
        relaxed=spell_setting("relaxed-constexpr", True),
        **{key.replace("-", "_"): spell_setting(key) for key in keys},
    )
