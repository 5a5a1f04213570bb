"""``cuda-ext compile-commands``."""

from __future__ import annotations

from pathlib import Path

import click

from cuda_ext.cli.output import counted, shown
from cuda_ext.cli.project import project_in
from cuda_ext.cli.values import DIRECTORY, FILE

__all__ = ["compile_commands"]


@click.command(
    epilog="""\b
Examples:
  cuda-ext compile-commands                                of the project in this directory
  cuda-ext compile-commands ../p -o compile_commands.json  of another, beside what is there
"""
)
@click.argument("directory", metavar="[DIR]", default=".", type=DIRECTORY)
@click.option(
    "-o",
    "--output",
    metavar="FILE",
    type=FILE,
    help="Write this file.",
)
def compile_commands(directory: Path, output: Path | None) -> None:
    """Have editors understand the device code of a project.

    DIR holds the project's pyproject.toml; it is the current directory by default. For each device source,
    compile_commands.json says how it is compiled, so that an editor with clangd completes, looks up and
    reports errors as the build does. It takes no CUDA toolkit, and no clang but the editor's clangd.

    The file is put into the directory that holds all device code, such as device/, where clangd finds it
    before those of other programs. Entries for other files in it stay. It names paths of this machine: keep
    it out of version control, and run the command again when sources are added, settings change, or the
    Python environment moves.
    """
    from cuda_ext.builder.sources.compilation_database import compile_commands, default_place, write

    project = project_in(directory)
    place = output or default_place(project)
    commands = compile_commands(project)
    write(place, commands)
    click.echo(f"{shown(place)}: {counted(len(commands), 'device source')}; add the file to .gitignore")
