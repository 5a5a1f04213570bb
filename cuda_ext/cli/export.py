"""``cuda-ext export``: write modules as C++ that builds without this package."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from cuda_ext.cli.environment import ARCHITECTURES, environment_with
from cuda_ext.cli.terminal import DIRECTORY, NEW_DIRECTORY, TEXT, find_project, shorten_path

if TYPE_CHECKING:
    from cuda_ext.builder.export.cpp_export import Library
    from cuda_ext.builder.project import Project


@click.command(
    epilog="""\b
    Examples:
      cuda-ext export build/export
      cuda-ext export recipe/kernels --from my-project --package-version 1.2
      cuda-ext export recipe/kernels --from build/cuda_ext/app_kernels
    """
)
@click.argument("directory", metavar="DIR", type=NEW_DIRECTORY)
@click.option(
    "--from",
    "origin",
    metavar="PATH",
    default=".",
    type=DIRECTORY,
    help="The project, or the directory of a module in a build tree of CMake.",
)
@click.option("--name", metavar="NAME", type=TEXT, help="The name of the library; by default the project's.")
@click.option(
    "--package-version",
    metavar="VERSION",
    type=TEXT,
    help="The version of the library, such as 1.2.3; by default the project's.",
)
@click.option("--jit", is_flag=True, help="Compile missing kernels when the program runs.")
@click.option("--c-interface", "with_c", is_flag=True, help="Add a header for C, Rust and other languages.")
@ARCHITECTURES
def export(
    directory: Path,
    origin: Path,
    name: str | None,
    package_version: str | None,
    jit: bool,
    with_c: bool,
    architectures: Sequence[str],
) -> None:
    """Write modules as C++ that builds anywhere.

    DIR gets a library with all modules of the project: headers, sources that contain the images, and a
    CMakeLists.txt, a .pc file and a BUILD.bazel. It builds with a C++17 compiler, without Python, CUDA and
    this package, for example in a recipe of vcpkg, Conan or Bazel. The same project gives the same bytes.

    A module of cuda_ext_add_module is exported from its directory in the build tree, cuda_ext/<target>.
    """
    from cuda_ext.builder.export.cpp_export import export
    from cuda_ext.builder.session import build_project

    project, library = _find(origin, name, package_version, jit, with_c)
    options = {"CUDAARCHS": ("--arch", ";".join(architectures))}
    with environment_with(options) as environ:
        packages = build_project(project, partial(click.echo, err=True), environ)
    headers = export(project, packages, library, directory)
    click.echo(f"{shorten_path(directory.absolute())}: library {library.name} {library.version}")
    for header in headers:
        click.echo(f"  #include <{header.as_posix()}>")


def _find(
    origin: Path, name: str | None, version: str | None, jit: bool, with_c: bool
) -> tuple[Project, Library]:
    """Return the project at `origin`, or that of a call of the CMake function, and its library."""
    from cuda_ext.builder.export.cpp_export import Library

    namespace = None
    if (origin / "module.json").is_file():
        from cuda_ext.integrations.cmake.module_call import Call

        call = Call.read(origin, origin.resolve().name)
        project, namespace, jit = call.project(), call.cxx_namespace, jit or bool(call.jit)
        with_c = with_c or bool(call.c_interface)
    else:
        project = find_project(origin)
    name = name or re.sub(r"\W", "_", project.name, flags=re.ASCII)
    return project, Library(name, version or project.version, namespace, jit, with_c)
