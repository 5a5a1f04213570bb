"""The compilers of this environment and of the project in the current directory, as doctor examines them."""

from __future__ import annotations

import os
import shutil
import sys
from collections import defaultdict
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Literal

from cuda_ext.builder.project import Project
from cuda_ext.builder.sources.plan import compiler_choice
from cuda_ext.cli.doctor.findings import Finding, error_finding
from cuda_ext.cli.doctor.gpus import Gpus
from cuda_ext.errors import BuildError, ConfigError, ToolchainError
from cuda_ext.toolchain import cuda_packages, process
from cuda_ext.toolchain.bindings import binding, library_files
from cuda_ext.toolchain.compilers import CompilerChoice, nvcc_candidates, open_compiler
from cuda_ext.toolchain.identity import installed_nvrtc
from cuda_ext.toolchain.nvcc import Nvcc

__all__ = ["examine_project", "examine_tool_chain", "has_project"]

_Library = Literal["nvrtc", "nvfatbin", "nvjitlink"]
_Version = tuple[int, int]
_TITLES: dict[_Library, str] = {"nvrtc": "NVRTC", "nvfatbin": "nvFatbin", "nvjitlink": "nvJitLink"}
# Other packages that building imports, with their names in the registry.
_PACKAGES = {
    "elftools": "pyelftools",
    "jinja2": "jinja2",
    "platformdirs": "platformdirs",
    "zstandard": "zstandard",
}
# One header of CUDA and one of CCCL that most sources include, and their packages.
_HEADERS = {"cuda_fp16.h": "nvidia-cuda-runtime", "cuda/std/cstdint": "nvidia-cuda-cccl"}


def examine_tool_chain(gpus: Gpus) -> Iterator[Finding]:
    """The libraries that compile and link, CUDA's headers, and nvcc."""
    install = f'pip install "cuda-ext[{_best_extra(gpus)}]"'
    libraries = {name: _open_library(name) for name in _TITLES}
    if not any(isinstance(found, tuple) or library_files(name) for name, found in libraries.items()):
        level: Literal["problem", "note"] = "problem" if has_project() else "note"
        text = "none: nothing can be built or compiled on demand here"
        yield Finding(level, "compiler", text, "kernels that were built run without; to compile", install)
    else:
        for name, found in libraries.items():
            if isinstance(found, ToolchainError):
                yield error_finding("problem", _TITLES[name], found, command=install)
            else:
                yield _describe_library(name, found)
        if not isinstance(version := libraries["nvrtc"], ToolchainError):
            yield from _examine_headers(version)
            yield from _examine_compatibility(version, gpus)
        if missing := [title for name, title in _PACKAGES.items() if find_spec(name) is None]:
            text = f"{', '.join(missing)} missing, which building needs"
            yield Finding("problem", "packages", text, command=install)
    yield from _examine_nvcc()


def _best_extra(gpus: Gpus) -> str:
    """The extra with the newest compiler whose machine code this driver loads."""
    return "cu12" if gpus.version is not None and gpus.version[0] == 12 else "cu13"


# The libraries.


def _open_library(name: _Library) -> _Version | ToolchainError:
    """The version of a library, or why it cannot be loaded."""
    try:
        module = binding(name)
        *_, major, minor = module.nvrtcVersion() if name == "nvrtc" else module.version()
    except ToolchainError as error:
        return error
    return major, minor


def _describe_library(name: _Library, version: _Version) -> Finding:
    path = _library_path(name)
    number = _number(version)
    details = [f"passed over: {each}" for each in _passed_over(name, path)]
    facts = {"version": number, "path": str(path) if path else None, "passed_over": details}
    text = f"{number}, from {_origin(path)}" if path else number
    return Finding("ok", _TITLES[name], text, details=details, facts=facts)


def _library_path(name: _Library) -> Path | None:
    """The file of a loaded library, if it can be determined."""
    if files := library_files(name):
        return files[0]
    try:
        if name == "nvrtc":
            return installed_nvrtc().library
        from cuda.pathfinder import load_nvidia_dynamic_lib

        path = load_nvidia_dynamic_lib(name).abs_path
    except (ImportError, RuntimeError, ToolchainError):
        return None
    return Path(path) if path else None


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
    patterns = (f"lib*/lib{name}.so.*", f"targets/*/lib/lib{name}.so.*", f"bin/**/{name}64_*.dll")
    roots = [("installed package", nvidia, "*/") for nvidia in cuda_packages.nvidia_packages()]
    toolkits = ((variable, os.environ.get(variable)) for variable in ("CUDA_PATH", "CUDA_HOME"))
    roots += [(variable, Path(toolkit), "") for variable, toolkit in toolkits if toolkit]
    for origin, root, prefix in roots:
        for path in sorted(path for pattern in patterns for path in root.glob(prefix + pattern)):
            if path.resolve() in seen:
                continue
            seen.add(path.resolve())
            major, used_major = _major(path), used and _major(used)
            reason = "the other comes first"
            if major and used_major and major != used_major:
                reason = f"it is of CUDA {major}, and cuda-bindings needs {used_major}"
            shown = path.relative_to(root.parent) if origin == "installed package" else path
            yield f"{shown} ({origin}): {reason}"


def _major(library: Path) -> str:
    """The major version in the file name of a library."""
    _, _, unix = library.name.partition(".so.")
    return unix.partition(".")[0] or library.name.partition("64_")[2][:2]


def _examine_headers(version: _Version) -> Iterator[Finding]:
    """The headers of CUDA and CCCL that sources include."""
    try:
        unpacked = cuda_packages.unpacked_headers(_number(version))
    except ToolchainError as error:
        yield error_finding("problem", "headers", error)
        return
    directories = cuda_packages.header_directories(version[0], next(iter(library_files("nvrtc")), None))
    suffix = "-cu12" if version[0] == 12 else ""
    if unpacked is not None:
        facts = {"directories": [str(unpacked)]}
        yield Finding("ok", "headers", f"NVRTC's own, unpacked in {unpacked}", facts=facts)
    elif version >= (13, 3) and hasattr(binding("nvrtc"), "nvrtcInstallBundledHeaders"):
        facts = {"directories": []}
        yield Finding("ok", "headers", "NVRTC's own, which the first build unpacks", facts=facts)
    elif missing := [p for h, p in _HEADERS.items() if not any((d / h).is_file() for d in directories)]:
        command = f"pip install {' '.join(package + suffix for package in missing)}"
        yield Finding("warning", "headers", "some of CUDA's are missing", command=command)
    else:
        facts = {"directories": list(map(str, directories))}
        yield Finding("ok", "headers", f"from {_origin(directories[0])}", facts=facts)
    if cuda_packages.cudadevrt(version[0]) is None:
        text = "no cudadevrt: device code that launches kernels cannot be linked"
        command = f"pip install nvidia-cuda-runtime{suffix}"
        yield Finding("note", "headers", text, "if there is such code", command)


def _examine_compatibility(version: _Version, gpus: Gpus) -> Iterator[Finding]:
    """Whether this driver loads the output of NVRTC, and whether NVRTC compiles for each GPU."""
    nvrtc = f"NVRTC {_number(version)}"
    if (driver := gpus.version) is not None and gpus.devices:
        supported = f"the driver supports CUDA up to {_number(driver)}"
        if driver[0] < version[0]:
            yield Finding(
                "warning",
                "compatibility",
                f"{supported}, and loads no output of {nvrtc}",
                f"upgrade the driver, or build with CUDA {driver[0]}",
                f'pip install "cuda-ext[cu{driver[0]}]"',
            )
        elif driver < version:
            text = f"{supported}: it loads machine code of {nvrtc}, and no PTX"
            yield Finding("ok", "compatibility", text)
        else:
            yield Finding("ok", "compatibility", f"the driver loads all output of {nvrtc}")
    _, capabilities = binding("nvrtc").nvrtcGetSupportedArchs()
    if lacking := [gpu for gpu in gpus.devices if gpu.capability not in capabilities]:
        text = f"{nvrtc} cannot compile for {', '.join(map(str, lacking))}"
        if min(gpu.capability for gpu in lacking) < min(capabilities):
            remedy, command = "an older CUDA can", 'pip install "cuda-ext[cu12]"'
        else:
            remedy, command = "a newer CUDA can", 'pip install --upgrade "cuda-ext[cu13]"'
        yield Finding("warning", "compatibility", text, remedy, command)


def _number(version: _Version) -> str:
    return f"{version[0]}.{version[1]}"


# nvcc.


def _examine_nvcc() -> Iterator[Finding]:
    """The first nvcc that works, in the order of a build, and its host compiler."""
    used: Nvcc | None = None
    used_origin = ""
    passed_over, absent = [], []
    is_broken = False
    for origin, candidate in nvcc_candidates(None, os.environ):
        if used:
            if isinstance(candidate, Path):
                passed_over.append(f"passed over: {candidate} ({origin}): the other comes first")
        elif isinstance(candidate, Path):
            nvcc = Nvcc(candidate, os.environ)
            try:
                _ = nvcc.version
                used, used_origin = nvcc, origin
            except ToolchainError as error:
                is_broken = True
                passed_over.append(f"passed over ({origin}): {error}")
        else:
            absent.append(f"{origin}: {candidate}")
    if absent:
        passed_over.insert(0, f"passed over: {'; '.join(absent)}")
    if used:
        facts = {"version": used.version, "path": str(used.executable), "passed_over": passed_over}
        text = f"{used.version} ({used_origin}), {used.executable}"
        yield Finding("ok", "nvcc", text, details=passed_over, facts=facts)
        if host := used.host_compiler:
            yield Finding("ok", "host compiler", f"{_first_line(host)}, {host}", facts={"path": str(host)})
    elif is_broken:
        text = 'none works; only compiler = "nvcc" needs one'
        yield Finding("warning", "nvcc", text, "repair one of them", details=passed_over)
    elif sys.platform != "darwin":
        text, remedy = 'none; only compiler = "nvcc" needs one', "for code that NVRTC does not compile"
        yield Finding("note", "nvcc", text, remedy, 'pip install "cuda-ext[nvcc-cu13]"', passed_over)


def _first_line(program: Path) -> str:
    """The first line of ``program --version``."""
    try:
        output = process.run([str(program), "--version"], environ={**os.environ, "LC_ALL": "C"}).output
    except OSError:
        output = ""
    return output.strip().partition("\n")[0] or program.name


# The project in the current directory.


def has_project() -> bool:
    """Whether the current directory has a project with a ``[tool.cuda_ext]`` table, valid or not."""
    try:
        return Project.load(Path.cwd()) is not None
    except ConfigError:
        return True
    except OSError:  # the directory was removed
        return False


def examine_project() -> Iterator[Finding]:
    """The compiler that a build of this project would use."""
    try:
        project = Project.required(Path.cwd())
    except BuildError as error:
        yield error_finding("problem", "pyproject.toml", error, remedy="correct it")
        return
    modules: dict[CompilerChoice, list[str]] = defaultdict(list)
    for module in project.modules:
        modules[compiler_choice(module.settings, project.root)].append(module.name)
    for choice, names in modules.items():
        yield _examine_choice(choice, ", ".join(names))
    if project.settings.executor == "dask" and find_spec("distributed") is None:
        text = 'executor = "dask" needs Dask, which is not installed'
        yield Finding("problem", project.name, text, command='pip install "cuda-ext[dask]"')


def _examine_choice(choice: CompilerChoice, names: str) -> Finding:
    """Whether the modules of these names can be compiled."""
    if choice.launcher and shutil.which(choice.launcher) is None:
        text = f"launcher: {choice.launcher!r} is not on PATH"
        return Finding("problem", names, text, "install it, or remove the key")
    try:
        compiler = open_compiler(choice, os.environ)
        version = compiler.version
    except ToolchainError as error:
        install = 'pip install "cuda-ext[cu13]"' if choice.name == "nvrtc" else ""
        return error_finding("problem", names, error, command=install)
    text = f"a build uses NVRTC {version}"
    if isinstance(compiler, Nvcc):
        through = f" through {choice.launcher}" if choice.launcher else ""
        text = f"a build uses nvcc {version}{through}, {compiler.executable}"
    return Finding("ok", names, text, facts={"compiler": choice.name})
