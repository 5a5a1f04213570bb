"""The compilers of this environment, as doctor examines them."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import suppress
from importlib.util import find_spec
from itertools import chain
from pathlib import Path
from typing import Literal

from cuda_ext.builder.project import Project
from cuda_ext.cli.doctor.findings import Finding, Level
from cuda_ext.cli.doctor.gpus import Gpus
from cuda_ext.errors import ConfigError, ToolchainError
from cuda_ext.toolchain import cuda_packages, process
from cuda_ext.toolchain.compilers import CompilerChoice, open_compiler, try_nvccs
from cuda_ext.toolchain.cuda_libraries import library_files, library_version, open_library, system_library
from cuda_ext.toolchain.nvcc import Nvcc
from cuda_ext.toolchain.programs.bundled_headers import count_bundled, unpacked_headers

_Library = Literal["nvrtc", "nvfatbin", "nvjitlink"]
_Version = tuple[int, int]
_TITLES: dict[_Library, str] = {"nvrtc": "NVRTC", "nvfatbin": "nvFatbin", "nvjitlink": "nvJitLink"}
# Other packages that building imports, with their names in the registry.
_PACKAGES = {
    "jinja2": "jinja2",
    "platformdirs": "platformdirs",
    "zstandard": "zstandard",
}
# One header of CUDA and one of CCCL that most sources include, and their packages.
_HEADERS = {"cuda_fp16.h": "nvidia-cuda-runtime", "cuda/std/cstdint": "nvidia-cuda-cccl"}


def examine_tool_chain(gpus: Gpus) -> Iterator[Finding]:
    """The libraries that compile and link, CUDA's headers, and nvcc."""
    # The newest compiler whose machine code this driver loads.
    extra = "cu12" if gpus.version is not None and gpus.version[0] == 12 else "cu13"
    install = f'pip install "cuda-ext[{extra}]"'
    libraries = [_examine_library(name, install) for name in _TITLES]
    if all(library.level == "problem" for library in libraries) and not any(map(library_files, _TITLES)):
        level: Level = "problem" if _has_project() else "note"
        text = "none: nothing can be built or compiled on demand here"
        yield Finding(level, "compiler", text, "kernels that were built run without; to compile", install)
    else:
        yield from libraries
        if libraries[0].level == "ok":
            version = library_version("nvrtc")
            if libraries[2].level == "ok" and (linker := library_version("nvjitlink")) < version:
                text = f"{_number(linker)} is older than NVRTC: images keep variables that no kernel uses"
                yield Finding("note", "nvJitLink", text, "for smaller images, install one as new as NVRTC")
            yield from _examine_headers(version)
            yield from _examine_compatibility(version, gpus)
        if missing := [title for name, title in _PACKAGES.items() if find_spec(name) is None]:
            text = f"{', '.join(missing)} missing, which building needs"
            yield Finding("problem", "packages", text, command=install)
    yield from _examine_nvcc()


# The libraries.


def _examine_library(name: _Library, install: str) -> Finding:
    try:
        version = _number(library_version(name))
    except ToolchainError as error:
        return Finding("problem", _TITLES[name], error.statement, error.remedy, install)
    file = next(iter(library_files(name)), None) or _loaded_file(name)
    path = Path(file) if file else None
    details = [f"passed over: {other}" for other in _passed_over(name, path)]
    facts = {"version": version, "path": str(path) if path else None, "passed_over": details}
    text = f"{version}, from {_origin(path)}" if path else version
    return Finding("ok", _TITLES[name], text, details=details, facts=facts)


def _loaded_file(name: _Library) -> str | None:
    """The file of a library that is not from a wheel, if it can be determined."""
    with suppress(ImportError, RuntimeError):
        return system_library(name)
    return None


def _origin(path: Path) -> str:
    if any(path.is_relative_to(nvidia) for nvidia in cuda_packages.nvidia_packages()):
        return "the installed package"
    for variable in ("CUDA_PATH", "CUDA_HOME"):
        if (value := os.environ.get(variable)) and path.is_relative_to(value):
            return f"{variable}, {path}"
    return f"the system, {path}"


def _passed_over(name: _Library, used: Path | None) -> Iterator[str]:
    """The libraries of that kind that are not used, each with the reason."""
    seen = {used.resolve()} if used else set()
    places = chain.from_iterable(cuda_packages.library_directories(name, n) for n in (13, 12))
    for directory in map(Path, places):
        for path in chain(directory.glob(f"lib{name}.so.*"), directory.glob(f"{name}64_*.dll")):
            if path.resolve() in seen:
                continue
            seen.add(path.resolve())
            major, needed = _major(path), used and _major(used)
            is_other = needed and major != needed
            reason = f"it is of CUDA {major}, and cuda-bindings needs {needed}" if is_other else "comes later"
            yield f"{path} ({_origin(path).partition(',')[0]}): {reason}"


def _major(library: Path) -> str:
    """The major version in the file name of a library."""
    _, _, unix = library.name.partition(".so.")
    return unix.partition(".")[0] or library.name.partition("64_")[2][:2]


def _examine_headers(version: _Version) -> Iterator[Finding]:
    """The headers of CUDA and CCCL that sources include."""
    unpacked = unpacked_headers(_number(version))
    directories = cuda_packages.header_directories(version[0], next(iter(library_files("nvrtc")), None))
    suffix = "-cu12" if version[0] == 12 else ""
    if unpacked is not None:
        facts = {"directories": [str(unpacked)]}
        yield Finding("ok", "headers", f"NVRTC's own, unpacked in {unpacked}", facts=facts)
    elif count_bundled():
        text = "NVRTC's own, which the next build unpacks"
        yield Finding("ok", "headers", text, facts={"directories": []})
    elif missing := [p for h, p in _HEADERS.items() if not any(Path(d, h).is_file() for d in directories)]:
        command = f"pip install {' '.join(package + suffix for package in missing)}"
        yield Finding("warning", "headers", "some of CUDA's are missing", command=command)
    else:
        facts = {"directories": directories}
        yield Finding("ok", "headers", f"from {_origin(Path(directories[0]))}", facts=facts)
    if cuda_packages.cudadevrt(version[0], open_library("nvrtc")._name) is None:
        text = "no cudadevrt: device code that launches kernels cannot be linked"
        command = f"pip install nvidia-cuda-runtime{suffix}"
        yield Finding("note", "headers", text, "if there is such code", command)


def _examine_compatibility(version: _Version, gpus: Gpus) -> Iterator[Finding]:
    """Check that this driver loads the output of NVRTC, and that NVRTC compiles for each GPU."""
    nvrtc = f"NVRTC {_number(version)}"
    if (driver := gpus.version) is not None and gpus.devices:
        supported = f"the driver supports CUDA up to {_number(driver)}"
        if driver[0] < version[0]:
            text = f"{supported}, and loads no output of {nvrtc}"
            remedy = f"upgrade the driver, or build with CUDA {driver[0]}"
            yield Finding("warning", "compatibility", text, remedy, f'pip install "cuda-ext[cu{driver[0]}]"')
        elif driver < version:
            text = f"{supported}: it loads machine code of {nvrtc}, and no PTX"
            yield Finding("ok", "compatibility", text)
        else:
            yield Finding("ok", "compatibility", f"the driver loads all output of {nvrtc}")
    capabilities = open_compiler(CompilerChoice(), os.environ).capabilities()
    if lacking := [gpu for gpu in gpus.devices if gpu.capability not in capabilities]:
        names = ", ".join(f"GPU {gpu.ordinal} (sm_{gpu.capability})" for gpu in lacking)
        remedy, command = "a newer CUDA can", 'pip install --upgrade "cuda-ext[cu13]"'
        if min(gpu.capability for gpu in lacking) < min(capabilities):
            remedy, command = "an older CUDA can", 'pip install "cuda-ext[cu12]"'
        yield Finding("warning", "compatibility", f"{nvrtc} cannot compile for {names}", remedy, command)


def _number(version: _Version) -> str:
    return f"{version[0]}.{version[1]}"


# nvcc.


def _examine_nvcc() -> Iterator[Finding]:
    """The nvcc that a build uses, its host compiler, and the others."""
    tried = list(try_nvccs(None, os.environ))
    working = [(origin, nvcc) for origin, nvcc in tried if isinstance(nvcc, Nvcc)]
    rejected = {origin: reason for origin, reason in tried if not isinstance(reason, Nvcc)}
    details = [f"passed over: {origin}: {reason}" for origin, reason in rejected.items()]
    details += [f"passed over: {origin}: {nvcc.executable} comes later" for origin, nvcc in working[1:]]
    if working:
        origin, nvcc = working[0]
        text = f"{nvcc.version} ({origin}), {nvcc.executable}"
        facts = {"version": nvcc.version, "path": str(nvcc.executable), "passed_over": details}
        yield Finding("ok", "nvcc", text, details=details, facts=facts)
        if host := nvcc.host_compiler:
            yield Finding("ok", "host compiler", f"{first_line(host)}, {host}", facts={"path": str(host)})
    elif any(isinstance(reason, ToolchainError) for reason in rejected.values()):
        text = 'none works; only compiler = "nvcc" needs one'
        yield Finding("warning", "nvcc", text, "repair one of them", details=details)
    elif sys.platform != "darwin":
        text, remedy = 'none; only compiler = "nvcc" needs one', "for code that NVRTC does not compile"
        yield Finding("note", "nvcc", text, remedy, 'pip install "cuda-ext[nvcc-cu13]"', details)


def first_line(program: Path) -> str:
    """The first line of ``program --version``."""
    try:
        output = process.run([str(program), "--version"], environ={**os.environ, "LC_ALL": "C"}).output
    except OSError:
        output = ""
    return output.strip().partition("\n")[0] or program.name


def _has_project() -> bool:
    """Return True if the current directory has a project with a ``[tool.cuda_ext]`` table, valid or not."""
    try:
        return Project.load(Path()) is not None
    except ConfigError:
        return True
