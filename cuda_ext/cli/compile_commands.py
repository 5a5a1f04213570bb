"""``cuda-ext compile-commands``: write the compilation database that editors read."""

from __future__ import annotations

from pathlib import Path

import click

from cuda_ext.cli.terminal import DIRECTORY, FILE, find_project, shorten_path
from cuda_ext.formats.quantities import format_count


@click.command(
    epilog="""\b
Examples:
  cuda-ext compile-commands
  cuda-ext compile-commands my-project -o compile_commands.json
"""
)
@click.argument("directory", metavar="[DIR]", default=".", type=DIRECTORY)
@click.option("-o", "--output", metavar="FILE", type=FILE, help="Write this file.")
def compile_commands(directory: Path, output: Path | None) -> None:
    """Write compile_commands.json, for editors with clangd.

    DIR is the directory of the project's pyproject.toml, by default the current one. The file tells clangd
    how each device source is compiled, so that the editor completes code, finds definitions and reports the
    errors of a build. You need no CUDA toolkit, and no clang other than the editor's clangd.

    The command writes the file to the directory of all device code, such as device/, where clangd finds it
    before files of other programs. Its entries for other sources stay. The file contains paths of this
    machine: keep it out of version control. Run the command again after you add sources, change settings, or
    move the Python environment.
    """
    from cuda_ext.builder.sources.compilation_database import choose_place, list_commands, write

    project = find_project(directory)
    place = output or choose_place(project)
    commands = list_commands(project)
    write(place, commands)
    click.echo(f"{shorten_path(place)}: {format_count(len(commands), 'device source')}; add it to .gitignore")
