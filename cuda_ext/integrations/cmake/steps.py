"""The steps that ``cuda_ext_add_module`` runs when CMake configures and builds a project.

``configure`` checks all modules at once. ``build`` compiles one and generates its files.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import cuda_ext
from cuda_ext.compiler.spelled_settings import IN_CMAKE
from cuda_ext.errors import BuildError, describe_error, escape_controls

if TYPE_CHECKING:
    from cuda_ext.integrations.cmake.module_call import Call


def main(arguments: Sequence[str]) -> int:
    """Run one step and return its exit status. A mistake in the project is one message."""
    step, first, *rest = arguments
    if step == "configure":
        from cuda_ext.integrations.cmake.configure import configure

        return configure(first, rest, _show)
    from cuda_ext.integrations.cmake.module_call import Call, call_of

    target, stamp, depfile = rest
    show = _show
    try:
        call = Call.read(Path(first), target)
        show = partial(_show_at, call)
        _build(Path(first), call, show, stamp, depfile)
    except BuildError as error:
        from cuda_ext.integrations.cmake.parse_call import spell_error

        show(spell_error(error, call_of(target)))
    except Exception as error:
        _show(f"{call_of(target)}: {describe_error(error)}")
    else:
        return 0
    finally:
        os.environ.pop(IN_CMAKE, None)
    return 1


def _build(directory: Path, call: Call, show: Callable[[str], None], stamp: str, depfile: str) -> None:
    """Compile the module; write C++, and its files below ``python``, ``include`` and ``embedded``.

    These directories are the build tree's own: whatever else they hold is removed.
    """
    from cuda_ext.builder.package.depfile import render_depfile
    from cuda_ext.builder.session import build_project
    from cuda_ext.facts.manifest import FILE_NAME

    if not call.pyproject:
        os.environ[IN_CMAKE] = "1"
    project = call.project()
    (package,) = build_project(project, show, call.environ())
    place = Path("python", *package.name.split("."))
    files = {(place / name).as_posix(): content for name, content in package.files.items()}
    byproducts = {(place / FILE_NAME).as_posix()}
    if call.embed != "none":
        from cuda_ext.builder.cpp import generate_cpp
        from cuda_ext.builder.sources.globs import find_headers
        from cuda_ext.builder.sources.module_sources import Sources

        (config,) = project.modules
        headers = Sources(config, project.tree).headers()
        texts = generate_cpp.Texts(Path("embedded"), headers, find_headers(config, project.tree))
        cpp = generate_cpp.render(
            package,
            config.settings.include_dirs,
            place,
            call.embed or "literal",
            call.cxx_namespace,
            bool(call.jit),
            texts,
            bool(call.c_interface),
            call.machine,
        )
        files |= {**cpp.files, **{f"embedded/{name}": text for name, text in headers.items()}}
        byproducts |= {name for name in cpp.files if name.startswith("include/") or name.endswith(".o")}
        byproducts.add(cpp.source)
    _write(directory, files)
    inputs = {project.tree.path(name.as_posix()) for name in project.source_files()} | package.outside
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
    from cuda_ext.filesystem.atomic_directory import replace_directory, replace_file

    package = {name.removeprefix("python/"): files[name] for name in files if name.startswith("python/")}
    replace_directory(directory / "python", package)
    others = {directory / name: content for name, content in files.items() if not name.startswith("python/")}
    for path in (*directory.glob("include/**/*"), *directory.glob("embedded/**/*")):
        if path not in others and not path.is_dir():
            path.unlink()
    for path, content in others.items():
        replace_file(path, content)


def _show_at(call: Call, text: str) -> None:
    _show(call.with_paths(text))


def _show(text: str) -> None:
    print(escape_controls(text), file=sys.stderr)
