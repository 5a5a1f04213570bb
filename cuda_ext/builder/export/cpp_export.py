"""Write modules as a directory of C++: headers, sources with the images, and files for build tools.

It builds without this package, without Python and without CUDA, wherever it lies: no file names a place of
this machine. The same modules give the same bytes. ``SHA256SUMS`` lists the files, so that a later export
replaces these, and nothing else.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import cuda_ext
from cuda_ext.builder.cpp import generate_cpp
from cuda_ext.builder.package.generate import Package
from cuda_ext.builder.project import Project
from cuda_ext.builder.rendering import templates
from cuda_ext.builder.sources.globs import find_headers
from cuda_ext.builder.sources.module_sources import Sources
from cuda_ext.errors import BuildError, ConfigError
from cuda_ext.filesystem.atomic_directory import replace_directory

_INCLUDE = Path(cuda_ext.__file__).parent / "include"
_SUMS = "SHA256SUMS"


@dataclass(frozen=True)
class Library:
    """The library to export: its name in build tools, its version, and what its modules have in C++."""

    name: str
    version: str
    namespace: str | None = None
    jit: bool = False
    with_c: bool = False

    def __post_init__(self) -> None:
        if not re.fullmatch(r"[A-Za-z][A-Za-z0-9_]*", self.name):
            raise ConfigError(
                f"{self.name!r} is not a name for a library",
                where="--name",
                remedy="use letters, digits and underscores",
            )
        if not re.fullmatch(r"\d+(\.\d+){0,3}", self.version):
            raise ConfigError(
                f"{self.version!r} is not a version that CMake knows",
                where="--package-version",
                remedy="write up to four numbers, as in 1.2.3",
            )


def export(project: Project, packages: Sequence[Package], library: Library, directory: Path) -> list[Path]:
    """Write the `packages` of `project` to `directory`; return the paths of the headers within it.

    Raises :class:`BuildError` if that holds files that are not of an earlier export, or were changed since.
    """
    files: dict[str, bytes] = {}
    headers = []
    for package in packages:
        module = _render(project, package, library)
        files |= {f"{package.name}/{name}": content for name, content in module.files.items()}
        headers.append(Path(module.header).relative_to("include"))
    on_demand = any(name.endswith("/compile.hpp") for name in files)
    files |= _loader(on_demand)
    files |= _for_build_tools(project, library, [package.name for package in packages], files)
    sums = (f"{hashlib.sha256(content).hexdigest()}  {name}\n" for name, content in sorted(files.items()))
    replace_directory(directory, {**files, _SUMS: "".join(sums).encode()}, _check)
    return headers


def _render(project: Project, package: Package, library: Library) -> generate_cpp.CppModule:
    (config,) = (module for module in project.modules if module.name == package.name)
    texts = Sources(config, project.tree).headers()
    return generate_cpp.render(
        package,
        config.settings.include_dirs,
        Path(),
        "literal",
        library.namespace,
        library.jit,
        generate_cpp.Texts(Path(), texts, find_headers(config, project.tree)),
        library.with_c,
    )


def _loader(on_demand: bool) -> dict[str, bytes]:
    """Return the sources of the loader and, if needed, of compilation on demand."""
    # The loader always includes compile.hpp.
    parts = ["interface.hpp", "compile.hpp", "interface/*", "loader/*"] + ["on_demand/*"] * on_demand
    paths = (path for part in parts for path in (_INCLUDE / "cuda_ext").glob(part))
    return {path.relative_to(_INCLUDE).as_posix(): path.read_bytes() for path in sorted(paths)}


def _for_build_tools(
    project: Project, library: Library, modules: Sequence[str], files: Iterable[str]
) -> Mapping[str, bytes]:
    include_directories = [f"{module}/include" for module in modules]
    headers = [name for name in files if name.startswith(tuple(include_directories))]
    context = {
        "name": library.name,
        "version": library.version,
        "title": f"CUDA kernels of {project.name}",
        "cuda_ext": cuda_ext.__version__,
        "include_directories": include_directories,
        "headers": headers,
        "sources": sorted(name for name in files if name.endswith(".cpp")),
        "private_headers": sorted(n for n in files if n.endswith(".hpp") and n not in headers),
        "parts": [name for name in files if name.endswith(".inc")],
    }
    environment = templates(__package__)

    def render(template: str) -> bytes:
        return environment.get_template(f"{template}.j2").render(context).encode()

    return {
        "CMakeLists.txt": render("CMakeLists.txt"),
        f"{library.name}.pc": render("library.pc"),
        "BUILD.bazel": render("BUILD.bazel"),
        "MODULE.bazel": render("MODULE.bazel"),
    }


def _check(directory: Path) -> None:
    """Raise :class:`BuildError` if `directory` holds anything but an unchanged export."""
    sums = directory / _SUMS
    lines = sums.read_text(encoding="utf-8").splitlines() if sums.is_file() else []
    known = {name: digest for digest, _, name in (line.partition("  ") for line in lines)}
    for path in sorted(directory.rglob("*")):
        name = path.relative_to(directory).as_posix()
        if path.is_dir() or name == _SUMS:
            continue
        if name not in known:
            raise BuildError(
                "is not a file of an export", where=path, remedy="move it, or name another directory"
            )
        if hashlib.sha256(path.read_bytes()).hexdigest() != known[name]:
            raise BuildError("was changed after it was exported", where=path, remedy="move it, or remove it")
