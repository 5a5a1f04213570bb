"""The tool chains of this environment: which are used, and which are passed over and why."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Literal

from cuda_ext.cli.doctor.finding import Finding, note, ok, problem, warning
from cuda_ext.cli.doctor.gpus import Gpus
from cuda_ext.errors import ToolchainError
from cuda_ext.toolchain import discovery, process
from cuda_ext.toolchain.bindings import binding, library_files
from cuda_ext.toolchain.identity import installed_nvrtc
from cuda_ext.toolchain.nvcc import Nvcc, nvcc_candidates

__all__ = ["findings"]

_Library = Literal["nvrtc", "nvfatbin", "nvjitlink"]
_TITLES: dict[_Library, str] = {"nvrtc": "NVRTC", "nvfatbin": "nvFatbin", "nvjitlink": "nvJitLink"}
# What building imports besides, by the name that it is installed under.
_PACKAGES = {
    "elftools": "pyelftools",
    "jinja2": "jinja2",
    "platformdirs": "platformdirs",
    "zstandard": "zstandard",
}
# One header of CUDA and one of CCCL, of which sources include most.
_HEADERS = {"cuda_fp16.h": "nvidia-cuda-runtime", "cuda/std/cstdint": "nvidia-cuda-cccl"}


def findings(gpus: Gpus, is_needed: bool) -> Iterator[Finding]:
    """All about compilers. `is_needed` says that something is to be built here."""
    install = f'pip install "cuda-ext[{_extra(gpus)}]"'
    opened = {name: _opened(name) for name in _TITLES}
    if not any(isinstance(found, tuple) or library_files(name) for name, found in opened.items()):
        text = "none: nothing can be built or compiled on demand here"
        remedy = "what was built ahead runs without; to compile"
        missing = problem if is_needed else note
        yield missing("compiler", text, remedy, install)
    else:
        for name, found in opened.items():
            if isinstance(found, tuple):
                yield _library(name, found)
            else:
                yield problem(_TITLES[name], found, "building takes it", install)
        if isinstance(version := opened["nvrtc"], tuple):
            yield from _headers(version)
            yield from _limits(version, gpus)
        if missing_packages := [title for name, title in _PACKAGES.items() if find_spec(name) is None]:
            text = f"{', '.join(missing_packages)} missing, which building takes"
            yield problem("packages", text, command=install)
    yield from _nvcc()


def _extra(gpus: Gpus) -> str:
    """What brings the newest compiler whose machine code the driver here takes."""
    return "cu12" if gpus.version is not None and gpus.version[0] == 12 else "cu13"


def _opened(name: _Library) -> tuple[int, int] | str:
    """The version of a library, or why it cannot be loaded."""
    try:
        module = binding(name)
        if name == "nvrtc":
            _, major, minor = module.nvrtcVersion()
            return major, minor
        major, minor = module.version()
        return major, minor
    except ToolchainError as error:
        return str(error)


def _library(name: _Library, version: tuple[int, int]) -> Finding:
    path = _path(name)
    text = f"{version[0]}.{version[1]}, from {_origin(path)}" if path else f"{version[0]}.{version[1]}"
    facts = {"version": f"{version[0]}.{version[1]}", "path": str(path) if path else None}
    passed_over = list(_passed_over(name, path))
    return ok(_TITLES[name], text, passed_over, facts=facts | {"passed_over": passed_over})


def _path(name: _Library) -> Path | None:
    """Where a library that is loaded came from."""
    if files := library_files(name):
        return files[0]
    try:
        if name == "nvrtc":
            return installed_nvrtc().library
        from cuda.pathfinder import load_nvidia_dynamic_lib

        found = load_nvidia_dynamic_lib(name).abs_path
    except (ImportError, RuntimeError, ToolchainError):
        return None
    return Path(found) if found else None


def _origin(path: Path) -> str:
    if any(path.is_relative_to(nvidia) for nvidia in discovery.nvidia_packages()):
        return "the installed package"
    for variable in ("CUDA_PATH", "CUDA_HOME"):
        if (value := os.environ.get(variable)) and path.is_relative_to(value):
            return f"{variable}, {path}"
    return f"the system, {path}"


def _passed_over(name: _Library, taken: Path | None) -> Iterator[str]:
    """The libraries of that kind that are not used, each with the reason."""
    places = [("installed package", nvidia, "*/") for nvidia in discovery.nvidia_packages()]
    named = ((variable, os.environ.get(variable)) for variable in ("CUDA_PATH", "CUDA_HOME"))
    places += [(variable, Path(value), "") for variable, value in named if value]
    seen = {taken.resolve()} if taken else set()
    for origin, root, prefix in places:
        patterns = (f"lib*/lib{name}.so.*", f"targets/*/lib/lib{name}.so.*", f"bin/**/{name}64_*.dll")
        for found in sorted(path for pattern in patterns for path in root.glob(prefix + pattern)):
            if found.resolve() not in seen:
                seen.add(found.resolve())
                shown = found if origin != "installed package" else found.relative_to(root.parent)
                yield f"passed over: {shown} ({origin}): {_why_not(found, taken)}"


def _why_not(found: Path, taken: Path | None) -> str:
    major, of_taken = (_major(path.name) if path else "" for path in (found, taken))
    if major and of_taken and major != of_taken:
        return f"it is of CUDA {major}, and cuda-bindings is made for {of_taken}"
    return "the other comes first"


def _major(library: str) -> str:
    """The major version in the name of a library."""
    _, _, unix = library.partition(".so.")
    return unix.partition(".")[0] or library.partition("64_")[2][:2]


def _headers(version: tuple[int, int]) -> Iterator[Finding]:
    """Where the headers are that sources include."""
    spelled = f"{version[0]}.{version[1]}"
    try:
        unpacked = discovery.unpacked_headers(spelled)
    except ToolchainError as error:
        yield problem("headers", str(error))
        return
    found = discovery.header_directories(version[0], next(iter(library_files("nvrtc")), None))
    if unpacked is not None:
        yield ok("headers", f"NVRTC's own, unpacked in {unpacked}", facts={"directories": [str(unpacked)]})
    elif version >= (13, 3) and hasattr(binding("nvrtc"), "nvrtcInstallBundledHeaders"):
        yield ok("headers", "NVRTC's own, which the first build unpacks", facts={"directories": []})
    elif lacking := [p for h, p in _HEADERS.items() if not any((d / h).is_file() for d in found)]:
        packages = " ".join(f"{p}-cu12" if version[0] == 12 else p for p in lacking)
        yield warning("headers", "those of CUDA are missing in part", command=f"pip install {packages}")
    else:
        yield ok("headers", f"of {_origin(found[0])}", facts={"directories": list(map(str, found))})
    if discovery.cudadevrt(version[0]) is None:
        package = "nvidia-cuda-runtime" if version[0] >= 13 else "nvidia-cuda-runtime-cu12"
        text = "no cudadevrt: device code that launches kernels cannot be linked"
        yield note("headers", text, "if there is such code", f"pip install {package}")


def _limits(version: tuple[int, int], gpus: Gpus) -> Iterator[Finding]:
    """What this compiler makes that the driver or a GPU here does not take."""
    spelled = f"{version[0]}.{version[1]}"
    if (driver := gpus.version) is not None and gpus.devices:
        supported = f"the driver supports CUDA up to {driver[0]}.{driver[1]}"
        if driver[0] < version[0]:
            yield warning(
                "compatibility",
                f"{supported}, and loads nothing that NVRTC {spelled} makes",
                f"upgrade the driver, or build with CUDA {driver[0]}",
                f'pip install "cuda-ext[cu{driver[0]}]"',
            )
        elif driver < version:
            text = f"{supported}: it loads machine code of NVRTC {spelled}, and no PTX"
            yield ok("compatibility", text)
        else:
            yield ok("compatibility", f"the driver loads all that NVRTC {spelled} makes")
    _, capabilities = binding("nvrtc").nvrtcGetSupportedArchs()
    if lacking := [gpu for gpu in gpus.devices if gpu.capability not in capabilities]:
        listed = ", ".join(map(str, lacking))
        is_old = min(gpu.capability for gpu in lacking) < min(capabilities)
        command = f'pip install {"" if is_old else "--upgrade "}"cuda-ext[{"cu12" if is_old else "cu13"}]"'
        remedy = "an older CUDA can" if is_old else "a newer CUDA can"
        yield warning("compatibility", f"NVRTC {spelled} cannot compile for {listed}", remedy, command)


def _nvcc() -> Iterator[Finding]:
    """The first nvcc that works, in the order in which a build looks for it."""
    taken: Nvcc | None = None
    passed_over, refused, nowhere = [], [], []
    for origin, candidate in nvcc_candidates(None, os.environ):
        if isinstance(candidate, Path) and taken:
            passed_over.append(f"passed over: {candidate} ({origin}): the other comes first")
        elif isinstance(candidate, Path):
            nvcc = Nvcc(candidate, os.environ)
            try:
                _ = nvcc.version
                taken, from_ = nvcc, origin
            except ToolchainError as error:
                refused.append(error)
                passed_over.append(f"passed over ({origin}): {error}")
        elif not taken:
            nowhere.append(f"{origin}: {candidate}")
    if nowhere:
        passed_over.insert(0, f"passed over: {'; '.join(nowhere)}")
    if taken:
        text = f"{taken.version} ({from_}), {taken.executable}"
        facts = {"version": taken.version, "path": str(taken.executable), "passed_over": passed_over}
        yield ok("nvcc", text, passed_over, facts=facts)
        if host := taken.host_compiler:
            yield ok("host compiler", f"{_first_line(host)}, {host}", facts={"path": str(host)})
    elif refused:
        text = 'none works, which only compiler = "nvcc" needs'
        yield Finding("warning", "nvcc", text, "mend one of them", details=tuple(passed_over))
    elif sys.platform != "darwin":
        text = 'none, which only compiler = "nvcc" needs'
        command = 'pip install "cuda-ext[nvcc-cu13]"'
        details = tuple(passed_over)
        yield Finding("note", "nvcc", text, "for code that NVRTC does not take", command, details)


def _first_line(program: Path) -> str:
    """How `program` introduces itself."""
    try:
        said = process.run([str(program), "--version"], environ={**os.environ, "LC_ALL": "C"}).output
    except OSError:
        said = ""
    return said.strip().partition("\n")[0] or program.name
