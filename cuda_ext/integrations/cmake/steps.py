"""The steps that ``cuda_ext_add_module`` runs when CMake configures and builds a project.

``configure`` reads the arguments of the function and writes what CMake needs for its rules. Each ``compile``
compiles one source into the cache, in parallel with other sources and the project's C++. Then ``generate``
assembles the module from the cache.
"""

from __future__ import annotations

import dataclasses
import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from glob import has_magic
from pathlib import Path
from typing import Literal

import cuda_ext
from cuda_ext.builder.cpp import source_names
from cuda_ext.builder.package.depfile import render_depfile
from cuda_ext.builder.package.in_place import remove_others
from cuda_ext.builder.sources.globs import check_module, find_headers
from cuda_ext.compiler.architectures import from_cmake
from cuda_ext.errors import BuildError, ConfigError, ToolchainError
from cuda_ext.filesystem.atomic_directory import replace_file
from cuda_ext.integrations.cmake.module_call import Call, call_of
from cuda_ext.integrations.cmake.parse_call import parse_call, spell_error

__all__ = ["main"]

_CACHE = "cache"  # of this build tree alone, if the user has no cache
_SEPARATOR = "\x1f"  # before each argument


def main(arguments: Sequence[str]) -> int:
    """Run one step and return its exit status. A mistake in the project is one message."""
    step, directory, target, *rest = arguments
    steps: Mapping[str, Callable[..., None]] = {
        "configure": _configure,
        "compile": _compile,
        "generate": _generate,
    }
    try:
        steps[step](Path(directory), target, *rest)
    except BuildError as error:
        _show(spell_error(error, call_of(target)))
        return 1
    except OSError as error:
        _show(f"{call_of(target)}: {error.filename}: cannot be read or written: {error.strerror}")
        return 1
    return 0


def _configure(
    directory: Path,
    target: str,
    root: str,
    current: str,
    architectures: str,
    embed: Literal["incbin", "literal"],
    exported: str,
) -> None:
    """Read ``arguments.txt`` in `directory`; write ``module.json`` for the other steps and ``module.cmake``.

    If `exported` is ``ON``, also write the compilation database; a failure of that is a warning.
    """
    words = (directory / "arguments.txt").read_text(encoding="utf-8").split(_SEPARATOR)[1:]
    call = dataclasses.replace(
        parse_call(words, target, Path(root), Path(current)),
        # enable_language(CUDA) takes OFF for the compiler's default.
        architectures=[] if architectures.upper() in ("OFF", "FALSE") else from_cmake(architectures),
        cudaarchs=os.environ.get("CUDAARCHS", ""),
        embed=embed,
    )
    real = Path(call.root)
    (config,) = call.project().modules
    sources = check_module(config, real)
    call = dataclasses.replace(call, files=(*sources, *find_headers(config, real)))
    patterns = [p for p in (*config.settings.sources, *config.settings.headers) if has_magic(p)]
    variables = {
        "name": [config.name],
        "path": [config.name.replace(".", "/")],
        "sources": sources,
        "code": list(source_names(config.name, config.settings.jit)),
        "globs": [str(real / pattern) for pattern in patterns if "**" not in pattern],
        "recursive_globs": [str(real / p.replace("**/", "")) for p in patterns if "**" in p],
        "pyproject": [str(real / "pyproject.toml")] if call.pyproject else [],
        "python_destination": [call.python_destination] if call.python_destination else [],
        "depends": call.depends,
    }
    if split := [value for values in variables.values() for value in values if ";" in value]:
        raise ConfigError(
            f"{split[0]!r} has a semicolon, which separates paths in CMake",
            where=call_of(target),
            remedy="rename it",
        )
    text = "".join(f"set(cuda_ext_{name} [==[{';'.join(values)}]==])\n" for name, values in variables.items())
    replace_file(directory / "module.cmake", text.encode())
    call.write(directory)
    if exported == "ON":
        from cuda_ext.builder.sources import compilation_database as editors

        try:
            commands = editors.list_commands(call.project(), call.environ())
        except ToolchainError as error:
            _show(f"{call_of(target)}: {editors.FILE_NAME} is not written: {error}")
        else:
            editors.write(directory / editors.FILE_NAME, commands)


def _compile(directory: Path, target: str, source: str, stamp: str, depfile: str) -> None:
    """Compile `source` into the cache."""
    from cuda_ext.builder.scheduler.progress import Quiet
    from cuda_ext.builder.session import compile_source

    call = Call.read(directory, target)
    # The build tool runs these steps in parallel.
    environ = {**call.environ(), "MAX_JOBS": "1"}
    project = call.project()
    reads = compile_source(project, source, environ, Quiet(_show), directory / _CACHE)
    # CMake's own rule names the source, whose name a depfile may not be able to express.
    _finish(stamp, depfile, reads - {str(project.root / source)})


def _generate(directory: Path, target: str, stamp: str, depfile: str) -> None:
    """Write the package below ``python``, the C++ header below ``include``, and the C++ sources."""
    from cuda_ext.builder.cpp import generate_cpp
    from cuda_ext.builder.scheduler.progress import Quiet
    from cuda_ext.builder.session import build

    call = Call.read(directory, target)
    project = call.project()
    (package,) = build(project, call.environ(), Quiet(lambda _: None), directory / _CACHE)
    place = directory / "python" / Path(*package.name.split("."))
    remove_others(directory / "python", [place])
    package.write(place)
    cpp = generate_cpp.render(package, project.modules[0].settings.include_dirs, place, call.embed)
    for name, content in cpp.files.items():
        replace_file(directory / name, content)
    _remove_other_headers(directory / "include", directory / cpp.header)
    _finish(stamp, depfile, (str(project.root / name) for name in project.source_files()))


def _remove_other_headers(directory: Path, header: Path) -> None:
    """Remove the header of a module that was renamed, so that it cannot be included by mistake."""
    for other in directory.rglob("*.h"):
        if other != header:
            other.unlink()


def _finish(stamp: str, depfile: str, reads: Iterable[str]) -> None:
    """Touch `stamp` and write its depfile: the files that it `reads`, and this package."""
    Path(stamp).parent.mkdir(exist_ok=True)
    Path(depfile).write_text(render_depfile([stamp], sorted({*reads, cuda_ext.__file__})), encoding="utf-8")
    Path(stamp).touch()


def _show(text: str) -> None:
    print(text, file=sys.stderr)
