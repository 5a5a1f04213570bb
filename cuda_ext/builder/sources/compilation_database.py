"""``compile_commands.json``: commands from which clangd learns how to read the device sources of a project.

No compiler runs these commands. They make clang see a source as the build's compiler does: with the same
language, macros and headers. For NVRTC no headers of the host are searched, and its builtin declarations are
in ``include/cuda_ext/editor``; for nvcc, clang's own CUDA mode reads nvcc's headers and those of the host.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict

from cuda_ext.builder.sources.globs import kind_of
from cuda_ext.builder.sources.module_sources import Sources
from cuda_ext.builder.sources.plan import compiler_choice
from cuda_ext.compiler.architectures import GROUPS
from cuda_ext.compiler.compile_options import definitions
from cuda_ext.compiler.translation_unit import Compiler, TranslationUnit
from cuda_ext.errors import ConfigError, ToolchainError
from cuda_ext.facts.architecture import Architecture
from cuda_ext.facts.sources import Options
from cuda_ext.filesystem.atomic_directory import replace_file
from cuda_ext.filesystem.locks import lock
from cuda_ext.filesystem.regular_file import read_file
from cuda_ext.toolchain.compilers import open_compiler
from cuda_ext.toolchain.nvcc import Nvcc
from cuda_ext.toolchain.programs.bundled_headers import is_for_now

if TYPE_CHECKING:
    from cuda_ext.builder.project import Project

FILE_NAME = "compile_commands.json"

# NVRTC's builtin declarations.
_EDITOR = Path(__file__).parents[2] / "include" / "cuda_ext" / "editor"
# clangd rejects a GPU that it does not know; it knows this one since version 17, of 2023.
_NEWEST_KNOWN = Architecture("cubin", 90, "a")
_OURS = "--cuda-device-only"
_ANOTHER_FILE = "name another file with --output, in a directory that holds device sources alone"


class Command(TypedDict):
    """An entry: the file, relative to the directory, and the command that would compile it."""

    directory: str
    file: str
    arguments: list[str]


def list_commands(project: Project, environ: Mapping[str, str] = os.environ) -> list[Command]:
    """List an entry for each device source of each module. Raises :class:`BuildError`."""
    commands: list[Command] = []
    compiler_for = cache(lambda choice: open_compiler(choice, environ))
    for module in project.modules:
        sources = Sources(module, project.tree)
        include = [f"-I{_spell(name, project)}" for name in module.settings.include_dirs]
        for unit in (sources.unit(name) for name in sources.names if kind_of(name) == "cu"):
            settings, options = sources.settings(unit.name), unit.options
            compiler = compiler_for(compiler_choice(settings, project.root))
            file = _spell(unit.name, project)
            arguments = [
                *("clang++", "-xcuda", _OURS, f"--cuda-gpu-arch={_architecture(settings.architectures)}"),
                f"-std={options.std}",
                *_view(compiler, options),
                *_macros(options),
                *include,
                *(argument for name in options.pre_include for argument in ("-include", name)),
                *_headers(compiler, options),
                *("-fsyntax-only", file),
            ]
            commands.append({"directory": str(project.root), "file": file, "arguments": arguments})
    return commands


def _spell(name: str, project: Project) -> str:
    """Return the path of the file `name`, relative to the project if it lies there."""
    return project.tree.path(name) if name.partition("/")[0] in project.outside else name


def choose_place(project: Project) -> Path:
    """Return the file in the common directory of all device code, where clangd looks first.

    Raises :class:`ConfigError` if that file would hide CMake's from clangd.
    """
    directories = [project.root / file.parent for file in project.source_files()]
    place = Path(os.path.commonpath(directories), FILE_NAME)
    other = place.parent / "build" / FILE_NAME
    if other.is_file() and not place.exists():
        raise ConfigError(
            f"with it, clangd would no longer read {other}",
            where=place,
            remedy=_ANOTHER_FILE,
        )
    return place


def write(place: Path, commands: Sequence[Command]) -> None:
    """Write `commands` to the file at `place`; its entries for other files stay.

    Concurrent writers wait for each other. Raises :class:`ConfigError` if the file is another program's or a
    path is not UTF-8, and :class:`OSError`.
    """
    _render(place, commands)  # check this before anything is written
    place.parent.mkdir(parents=True, exist_ok=True)
    named = {_path(command) for command in commands}
    directories = {command["directory"] for command in commands}
    with lock(place.parent):
        kept = [
            entry
            for entry in _read(place)
            if _path(entry) not in named
            # Drop sources and modules that no longer exist.
            and not (entry["directory"] in directories and _OURS in entry.get("arguments", ()))
        ]
        replace_file(place, _render(place, [*kept, *commands]))


def _render(place: Path, entries: Sequence[Mapping[str, Any]]) -> bytes:
    text = json.dumps(entries, indent=1, ensure_ascii=False)
    try:
        return f"{text}\n".encode()
    except UnicodeEncodeError as error:
        line = text.split("\n")[text.count("\n", 0, error.start)].strip(" ,")
        raise ConfigError(
            f"JSON cannot have {line}, which is not UTF-8", where=place, remedy="rename that directory"
        ) from None


def _read(place: Path) -> list[dict[str, Any]]:
    """Return the entries of the file at `place`. Raises :class:`ConfigError` if it is another program's."""
    if place.is_symlink():
        raise ConfigError("is a link to a file of another program", where=place, remedy=_ANOTHER_FILE)
    try:
        entries = json.loads(read_file(str(place)))
    except FileNotFoundError:
        return []
    except (OSError, ValueError, RecursionError):
        entries = None
    if not isinstance(entries, list) or not all(map(_is_command, entries)):
        raise ConfigError(
            "is not a list of compile commands", where=place, remedy="remove it, or choose another file"
        )
    return entries


def _is_command(entry: object) -> bool:
    """Return True if `entry` has the fields that are read here; other programs add more."""
    if not isinstance(entry, dict):
        return False
    directory, file, arguments = entry.get("directory"), entry.get("file"), entry.get("arguments", [])
    return isinstance(directory, str) and isinstance(file, str) and isinstance(arguments, list)


def _path(entry: Mapping[str, Any]) -> str:
    return os.path.normpath(Path(entry["directory"], entry["file"]))


def _architecture(names: Iterable[str]) -> Architecture:
    """Choose the newest GPU among `names` that every clangd knows, or else the oldest."""
    targets = set()
    for name in names:
        try:
            targets.add(Architecture.parse(name).as_kind("cubin"))
        except ValueError:
            if name in GROUPS:
                targets.add(Architecture("cubin", _NEWEST_KNOWN.number))
    known = [target for target in targets if target <= _NEWEST_KNOWN]
    return max(known) if known else min(targets, default=_NEWEST_KNOWN)


def _view(compiler: Compiler, options: Options) -> Iterator[str]:
    """Yield the arguments that make clang read a source as its compiler does."""
    # Nothing is compiled for a GPU; ignore a toolkit that clang may find on this machine.
    yield from ("-nocudalib", "--no-cuda-version-check", "-Wno-unknown-cuda-version")
    if options.relocatable:
        yield from ("-fgpu-rdc", "-D__CUDACC_RDC__")
    if options.fast_math or _FAST_MATH.intersection(options.raw):
        yield "-D__USE_FAST_MATH__"
    if isinstance(compiler, Nvcc):
        yield f"--cuda-path={_toolkit(compiler.executable)}"
        return
    major, minor = compiler.version.split(".")
    yield from (
        "-nocudainc",
        "-nostdinc",
        f"-D__CUDACC_VER_MAJOR__={major}",
        f"-D__CUDACC_VER_MINOR__={minor}",
    )
    yield from ("-include", str(_EDITOR / "nvrtc.hpp"))
    if options.relaxed_constexpr or _DEVICE_BY_DEFAULT.intersection(options.raw):
        yield from ("-include", str(_EDITOR / "device_by_default.hpp"))
    elif not options.skip_host_code:  # where constexpr functions become device code
        yield from ("-Xclang", "-fno-cuda-host-device-constexpr")


_FAST_MATH = {"-use_fast_math", "--use_fast_math"}
_DEVICE_BY_DEFAULT = {"-default-device", "--device-as-default-execution-space"}


def _macros(options: Options) -> Iterator[str]:
    """Yield the macros that a module defines, and those in its options."""
    yield from definitions(options)
    for option, following in pairwise((*options.raw, "")):
        if match := re.fullmatch(r"(-D|-U|--define-macro|--undefine-macro)=?(.*)", option, re.DOTALL):
            letter = "U" if match[1] in ("-U", "--undefine-macro") else "D"
            yield f"-{letter}{match[2] or following}"


def _headers(compiler: Compiler, options: Options) -> Iterator[str]:
    """Yield the search path of the tool chain's headers."""
    directories = list(compiler.search_path(TranslationUnit("", b"", options=options)))
    if any(map(is_for_now, directories)):
        raise ToolchainError(
            "NVRTC's headers, which editors read, cannot be kept",
            remedy="set CUDA_EXT_CACHE to a directory that you can write",
        )
    if isinstance(compiler, Nvcc):  # nvcc finds CCCL by itself
        directories += [directory / "cccl" for directory in directories]
    for directory in dict.fromkeys(directories):
        if directory.is_dir():
            yield from ("-isystem", str(directory))


def _toolkit(nvcc: Path) -> Path:
    """Return the toolkit that `nvcc` belongs to."""
    roots = [nvcc.resolve().parent.parent, nvcc.parent.parent]
    return next((root for root in roots if (root / "include" / "cuda_runtime.h").is_file()), roots[0])
