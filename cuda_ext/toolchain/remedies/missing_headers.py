"""Remedies for missing headers: the package or directory with the header, and the place to name it."""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Callable, Sequence
from pathlib import Path

from cuda_ext.compiler.compile_options import include_directories
from cuda_ext.compiler.spelled_settings import spell_setting
from cuda_ext.compiler.translation_unit import NAMED, TranslationUnit
from cuda_ext.fields import is_inner_path
from cuda_ext.text.includes import find_includes

# The messages of the CUDA front end, and of host compilers that preprocess.
_MISSING_HEADER = (
    r"(?m)^(?P<error>(?P<place>.+?(?:\(\d+\)|:\d+(?::\d+)?)): (?:catastrophic |fatal )?error: "
    r'(?:cannot open source file "(?P<name>[^"]+)"|(?P<name2>\S+): No such file or directory'
    r"|'(?P<name3>[^']+)' file not found).*\n?)"
    r"(?P<excerpt>(?: *\d+ \| .*\n *\| [ ^~]*\n?|  .*\n *\^ *\n*)?)"
)

_MOST_HEADERS = 8  # the number of headers that one error names

# Headers that nvcc includes by itself; NVRTC has what device code needs of them built in.
_BUILT_IN = {"cuda_runtime.h", "cuda_runtime_api.h", "device_launch_parameters.h"}
_PRINTF = {"cstdio", "stdio.h"}
_HOST_LIBRARY = r"[a-z_]+|(?:dirent|dlfcn|fcntl|getopt|io|malloc|omp|pthread|signal|unistd|windows)\.h|sys/.+"

# The packages with headers that the compilers find, by the prefix of a header's name.
_CUDA_PACKAGES = {
    "curand": "nvidia-curand",
    "cub/": "nvidia-cuda-cccl",
    "cuda/": "nvidia-cuda-cccl",
    "thrust/": "nvidia-cuda-cccl",
    "crt/": "nvidia-cuda-nvcc",
    # These are for host code.
    "cublas": "nvidia-cublas",
    "cufft": "nvidia-cufft",
    "cusolver": "nvidia-cusolver",
    "cusparse": "nvidia-cusparse",
    "npp": "nvidia-npp",
    "nvjpeg": "nvidia-nvjpeg",
    "nvtx3/": "nvidia-nvtx",
}
_FOR_DEVICE_CODE = {"nvidia-curand", "nvidia-cuda-cccl", "nvidia-cuda-nvcc"}
_TORCH = r"(?:ATen|c10|torch)/.+"
_DRIVER_API = (
    "<cuda.h> declares the driver API, for host code; leave it out, put it between #ifndef __CUDACC_RTC__ "
    "and #endif, or set {nvcc}; a kernel with a tensor map can declare "
    "struct alignas(64) CUtensorMap {{ unsigned long long opaque[16]; }};"
)
_BINDINGS = r"Python\.h|(?:pybind11|nanobind)/.+"


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
        place, name = match["place"], _missing_name(match)
        includer = "" if nvrtc_headers is None else _includer(place, unit, nvrtc_headers())
        through = f" (which {includer} includes)" if includer else ""
        if match[0] not in log:
            log = f"{log.rstrip()}\n{match[0]}"
        log = log.replace(match[0], match["error"])
        note = _about_nvrtc(place, name, nvrtc_headers()) if nvrtc_headers else ""
        notes.append(f"{place}{through}: {note or _about(name, by_nvrtc=nvrtc_headers is not None)}")
    return log, notes


def _missing_name(match: re.Match[str]) -> str:
    name: str = match["name"] or match["name2"] or match["name3"]
    return name.removeprefix("./")


def _collect(
    log: str, unit: TranslationUnit, compile_again: Callable[[TranslationUnit], str]
) -> Sequence[str]:
    """`log`, and the texts about further headers that are missing."""
    logs, stubs = [log], dict[str, bytes]()
    while len(stubs) < _MOST_HEADERS and (match := re.search(_MISSING_HEADER, logs[-1])):
        name = _missing_name(match)
        if f"{NAMED}{name}" in stubs or name in unit.headers or not is_inner_path(name):
            break
        stubs[f"{NAMED}{name}"] = b""
        logs.append(compile_again(unit.replace(headers={**unit.headers, **stubs}, instantiate=())))
    return logs


def _includer(place: str, unit: TranslationUnit, directories: Sequence[Path]) -> str:
    """Find the project's line that leads to the file of `place`, outside of the project; or nothing."""
    file = re.split(r"\(\d+\)$", place)[0]
    if not os.path.isabs(file):  # noqa: PTH117 - as the compiler spells it
        return ""
    search = [*map(str, include_directories(unit.options)), *map(str, directories)]
    without: set[str] = set()  # files that do not lead there
    for name, text in {unit.name: unit.source, **unit.headers}.items():
        for line, included in _includes(text):
            if included not in unit.headers and _leads(included, file, search, without):
                return f"{name}({line})"
    return ""


def _includes(content: bytes) -> list[tuple[int, str]]:
    """Return the lines of `content` that include a header, with its name."""
    text = content.decode(errors="surrogateescape")
    named = (include for include in find_includes(content).named if not include.is_test)
    return [(text.count("\n", 0, each.start) + 1, each.name) for each in named]


def _leads(name: str, file: str, search: Sequence[str], without: set[str]) -> bool:
    """Return True if the header `name`, found in the directories `search`, is `file` or includes it."""
    candidates = [os.path.normpath(f"{directory}/{name}") for directory in search]
    found = next((path for path in candidates if os.path.isfile(path)), None)  # noqa: PTH113
    if found is None or found in without:
        return False
    if os.path.samefile(found, file):  # noqa: PTH121
        return True
    without.add(found)
    beside = [os.path.dirname(found), *search]  # noqa: PTH120
    return any(_leads(each, file, beside, without) for _, each in _includes(Path(found).read_bytes()))


def _about_nvrtc(place: str, name: str, directories: Sequence[Path]) -> str:
    """Return the remedy for the host header `name`, which NVRTC lacks; empty for other headers."""
    if name in _BUILT_IN:
        return (
            f"NVRTC has built in what device code needs of <{name}>; leave this line out, or put it between "
            "#ifndef __CUDACC_RTC__ and #endif"
        )
    if any(Path(place).is_relative_to(directory) for directory in directories):
        if Path(place.partition("(")[0]).name == "cuda.h":
            return _DRIVER_API.format(nvcc=spell_setting("compiler", "nvcc"))
        if name.startswith("crt/"):
            return _about(name, by_nvrtc=True)
        return (
            f"this header needs <{name}>, which NVRTC does not have; if it is for host code, leave it out or "
            f"set {spell_setting('compiler', 'nvcc')}; otherwise a package of the tool chain is missing"
        )
    if name in _PRINTF:
        return (
            f"NVRTC has no host headers, and printf without <{name}>; leave this line out, or set "
            f"{spell_setting('compiler', 'nvcc')} for host code"
        )
    plain = name.removesuffix(".h")
    equivalent = [f"cuda/std/c{plain}"] if name != plain else []
    for directory in directories:
        for candidate in (*equivalent, f"cuda/std/{name}", f"cuda/std/{plain}"):
            if os.path.isfile(directory / candidate):  # noqa: PTH113 - a long name is an OSError there
                return (
                    f"NVRTC has no host headers; include <{candidate}> instead of <{name}> (its names are in "
                    f"cuda::std), or set {spell_setting('compiler', 'nvcc')}"
                )
    if misspelt := _misspelt(name, directories):
        return misspelt
    if re.fullmatch(_HOST_LIBRARY, name):
        return (
            f"NVRTC has no host headers; put <{name}> between #ifndef __CUDACC_RTC__ and #endif, or set "
            f"{spell_setting('compiler', 'nvcc')} for host code"
        )
    return ""


def _misspelt(name: str, directories: Sequence[Path]) -> str:
    """Return the remedy for a header `name` that is missing in an existing directory; or empty."""
    folder, _, file = name.rpartition("/")
    if not folder or name.startswith(("/", ".")):
        return ""  # a path of the project's, not a name among the CUDA headers
    for directory in directories:
        if os.path.isdir(directory / folder):  # noqa: PTH112 - a long name is an OSError there
            close = difflib.get_close_matches(file, os.listdir(directory / folder), 1)  # noqa: PTH208
            meant = f"; did you mean <{folder}/{close[0]}>?" if close else "; correct its name"
            return f"<{folder}/> of the CUDA headers has no {file!r}{meant}"
    return ""


def package_with(header: str) -> str:
    """Return the package with a `header` for device code that our extras do not install; or empty."""
    return _CUDA_PACKAGES["curand"] if re.match("curand(?!dx)", header) else ""


def _about(name: str, by_nvrtc: bool) -> str:
    nvcc = f"set {spell_setting('compiler', 'nvcc')}, and " if by_nvrtc else ""
    for beginning, package in _CUDA_PACKAGES.items():
        if re.match(f"{beginning}(?!dx)", name):
            add = f'add "{package}" ("{package}-cu12" for CUDA 12) to requires in [build-system]'
            if package in _FOR_DEVICE_CODE:
                return f'"{name}" is in another package; {add}, and to dependencies for compilation on demand'
            return f'"{name}" is for host code, and in another package; leave it out, or {nvcc}{add}'
    if name == "cuda_tile.h":
        return f'"{name}" comes with the assembler of tile kernels; require "cuda-ext[tile]" for builds'
    if re.fullmatch(_TORCH, name):
        return (
            f'"{name}" is for host code, and in PyTorch; keep kernels in a source without it, as Python '
            f'launches them with tensors, or {nvcc}add "torch" to requires in [build-system], and its '
            f'directory to {spell_setting("options")}, as in "-I/path/to/torch/include"'
        )
    if re.fullmatch(_BINDINGS, name):
        return (
            f'"{name}" is for host code; keep kernels in a source without it, as Python launches them '
            "without bindings"
        )
    compiler = "NVRTC" if by_nvrtc else "nvcc and its host compiler"
    return (
        f'"{name}" is neither in the include directories nor among the headers of {compiler}; correct its '
        f"name, or add its directory: to {spell_setting('include-dirs')}, or, outside of the project, to "
        f"{spell_setting('options')}, as in "
        '"-I/opt/include"'
    )
