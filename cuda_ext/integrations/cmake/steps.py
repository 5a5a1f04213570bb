"""The steps that ``cuda_ext_add_module`` runs when CMake configures and builds a project.

``configure`` reads the arguments of the function and writes what CMake needs for its rule. ``build`` compiles
the module and generates its files.
"""

from __future__ import annotations

import dataclasses
import os
import re
import shutil
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from glob import escape, has_magic
from pathlib import Path

import cuda_ext
from cuda_ext.builder.config.modules import ModuleConfig
from cuda_ext.builder.cpp import source_name
from cuda_ext.builder.package.depfile import render_depfile
from cuda_ext.builder.session import plan as plan_modules
from cuda_ext.builder.sources.globs import find_headers
from cuda_ext.compiler.architectures import from_cmake
from cuda_ext.compiler.spelled_settings import IN_CMAKE
from cuda_ext.errors import BuildError, ConfigError, ToolchainError, describe_error, escape_controls
from cuda_ext.facts.manifest import FILE_NAME
from cuda_ext.filesystem.atomic_directory import replace_directory, replace_file
from cuda_ext.integrations.cmake.module_call import Call, Embed, call_of
from cuda_ext.integrations.cmake.parse_call import parse_call, spell_error

_SEPARATOR = "\x1f"  # before each argument


def main(arguments: Sequence[str]) -> int:
    """Run one step and return its exit status. A mistake in the project is one message."""
    step, directory, target, *rest = arguments
    steps: Mapping[str, Callable[..., None]] = {"configure": _configure, "build": _build}
    try:
        steps[step](Path(directory), target, *rest)
    except BuildError as error:
        _show(spell_error(error, call_of(target)))
    except Exception as error:
        _show(f"{call_of(target)}: {describe_error(error)}")
    else:
        return 0
    finally:
        os.environ.pop(IN_CMAKE, None)
    return 1


def _spell_settings(from_pyproject: bool) -> None:
    """Have messages spell settings as they are written: in pyproject.toml, or in the call."""
    if not from_pyproject:
        os.environ[IN_CMAKE] = "1"


def _configure(
    directory: Path,
    target: str,
    root: str,
    current: str,
    architectures: str,
    embed: Embed,
    generator: str,
    exported: str,
    others: str,
) -> None:
    """Read ``arguments.txt`` in `directory`; write ``module.json`` for the other steps and ``module.cmake``.

    `embed` is ``none`` where C++ is not enabled. `others` are the modules of the project before this one. If
    `exported` is ``ON``, also write the compilation database; a failure of that is a warning.
    """
    words = _decode((directory / "arguments.txt").read_bytes(), target).split(_SEPARATOR)[1:]
    _spell_settings(from_pyproject="FROM_PYPROJECT" in words)
    call = parse_call(words, target, Path(root), Path(current))
    call = dataclasses.replace(
        call,
        # enable_language(CUDA) takes OFF for the compiler's default.
        architectures=[] if architectures.upper() in ("OFF", "FALSE") else from_cmake(architectures),
        cudaarchs=os.environ.get("CUDAARCHS", ""),
        embed=call.choose_embed(embed),
        restores_byproducts="Makefiles" not in generator,
    )
    project = call.project()
    (config,) = project.modules
    module = call.check_apart(config.name, list(filter(None, others.split(";"))))
    # Architectures and the compiler are checked here, so that mistakes stop CMake.
    (plan,) = plan_modules(project, call.environ())
    _check_launcher(config)
    units = [unit for library in plan.libraries for unit in library.units]
    sources = sorted({unit.name for unit in units})
    embedded = find_headers(config, project.root)
    headers = {name for unit in units for name in unit.header_files}.union(plan.headers, embedded)
    _check_names([*sources, *sorted(headers)], target)
    call = dataclasses.replace(call, files=(*sources, *embedded))
    replace_file(directory / "module.cmake", _variables(call, config, module, sources).encode())
    call.write(directory)
    if exported == "ON":
        from cuda_ext.builder.sources import compilation_database as editors

        try:
            commands = editors.list_commands(project, call.environ())
        except ToolchainError as error:
            _show(f"{call_of(target)}: {editors.FILE_NAME} is not written: {error}")
        else:
            editors.write(directory / editors.FILE_NAME, commands)


def _variables(call: Call, config: ModuleConfig, module: str, sources: Sequence[str]) -> str:
    """Write the variables of ``module.cmake``. Raises :class:`ConfigError`."""
    root = Path(call.root)
    fixed = escape(call.root)  # CMake's globs have the same wildcards
    patterns = [p for p in (*config.settings.sources, *config.settings.headers) if has_magic(p)]
    variables = {
        "module": [module],
        "name": [config.name],
        "path": [config.name.replace(".", "/")],
        "sources": sources,
        "code": [source_name(config.name)] if call.embed != "none" else [],
        "on_demand": ["ON"] if call.jit or config.settings.headers else [],
        "globs": [f"{fixed}/{pattern}" for pattern in patterns if "**" not in pattern],
        "recursive_globs": [f"{fixed}/{p.replace('**/', '')}" for p in patterns if "**" in p],
        "pyproject": [str(root / "pyproject.toml")] if call.pyproject else [],
        "python_destination": [call.python_destination] if call.python_destination else [],
        "depends": call.depends,
    }
    if split := [value for values in variables.values() for value in values if ";" in value]:
        problem = f"{split[0]!r} has a semicolon, which separates values in CMake"
        raise ConfigError(problem, where=call_of(call.target), remedy="rename it")
    quoted = {name: re.sub(r'([\\"$])', r"\\\1", ";".join(values)) for name, values in variables.items()}
    return "".join(f'set(cuda_ext_{name} "{text}")\n' for name, text in quoted.items())


def _decode(text: bytes, target: str) -> str:
    try:
        return text.decode()
    except UnicodeDecodeError as error:
        raise ConfigError(
            f"an argument has the byte {text[error.start]:#04x}, which is not UTF-8",
            where=call_of(target),
            remedy="save the CMakeLists.txt as UTF-8",
        ) from None


def _check_names(names: Iterable[str], target: str) -> None:
    """No file has a name that CMake, Ninja or Make would change or divide."""
    for name in names:
        if found := re.search(r'["%*:;<>^`|]', name):
            raise ConfigError(
                f"{name!r} has the character {found[0]!r}, which build tools do not accept in file names",
                where=call_of(target),
                remedy="rename it",
            )


def _check_launcher(config: ModuleConfig) -> None:
    if (launcher := config.settings.launcher) and not shutil.which(launcher):
        where = config.key_path("launcher")
        raise ConfigError(f"{launcher!r} is not on PATH", where=where, remedy="install it, or leave it out")


def _build(directory: Path, target: str, stamp: str, depfile: str) -> None:
    """Compile the module; write C++, and its files below ``python``, ``include`` and ``embedded``.

    These directories are the build tree's own: whatever else they hold is removed.
    """
    from cuda_ext.builder.session import build_project

    call = Call.read(directory, target)
    _spell_settings(call.pyproject)
    project = call.project()
    (package,) = build_project(project, _show, call.environ())
    place = Path("python", *package.name.split("."))
    files = {(place / name).as_posix(): content for name, content in package.files.items()}
    byproducts = {(place / FILE_NAME).as_posix()}
    if call.embed != "none":
        from cuda_ext.builder.cpp import generate_cpp
        from cuda_ext.builder.sources.module_sources import Sources

        (config,) = project.modules
        headers = Sources(config, project.root).headers()
        texts = generate_cpp.Texts(directory / "embedded", headers, find_headers(config, project.root))
        cpp = generate_cpp.render(
            package,
            config.settings.include_dirs,
            directory / place,
            call.embed,
            call.cxx_namespace,
            bool(call.jit),
            texts,
        )
        files |= {**cpp.files, **{f"embedded/{name}": text for name, text in headers.items()}}
        byproducts |= {name for name in cpp.files if name.startswith("include/")} | {cpp.source}
    _write(directory, files)
    inputs = {str(project.root / name) for name in project.source_files()} | package.outside
    watched = {directory / name for name in files}
    if call.restores_byproducts:
        watched -= {directory / name for name in byproducts}
        # Ninja runs this step again for a dependency that is newer than the start of the last run.
        start = max(Path(path).stat().st_mtime_ns for path in {str(directory / "module.json"), *inputs})
        for path in watched:
            os.utime(path, ns=(start, min(start, path.stat().st_mtime_ns)))
    rule = render_depfile([stamp], sorted({*inputs, *map(str, watched), cuda_ext.__file__}))
    Path(depfile).write_bytes(os.fsencode(rule))
    Path(stamp).touch()


def _write(directory: Path, files: Mapping[str, bytes]) -> None:
    """Write `files` below `directory`, the package as a whole; remove others from the directories of ours."""
    package = {name.removeprefix("python/"): files[name] for name in files if name.startswith("python/")}
    replace_directory(directory / "python", package)
    others = {directory / name: content for name, content in files.items() if not name.startswith("python/")}
    for path in (*directory.glob("include/**/*"), *directory.glob("embedded/**/*")):
        if path not in others and not path.is_dir():
            path.unlink()
    for path, content in others.items():
        replace_file(path, content)


def _show(text: str) -> None:
    print(escape_controls(text), file=sys.stderr)
