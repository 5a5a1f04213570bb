"""``cuda-ext init``: write a project to start from."""

from __future__ import annotations

import os
import shlex
import sys
from pathlib import Path
from typing import get_args

import click

from cuda_ext.cli.init.new_project import Backend, ProjectName, render_files, write_files
from cuda_ext.cli.terminal import DIRECTORY, TEXT

__all__ = ["init"]


@click.command(
    epilog="""\b
    Examples:
      cuda-ext init my-project
      cuda-ext init my-project --backend hatchling
    """
)
@click.argument("directory", metavar="[DIR]", default=".", type=DIRECTORY)
@click.option(
    "--backend",
    type=click.Choice(get_args(Backend)),
    default="setuptools",
    show_default=True,
    help="The build backend.",
)
@click.option("--name", metavar="NAME", type=TEXT, help="The project's name; by default that of DIR.")
def init(directory: Path, backend: Backend, name: str | None) -> None:
    """Write a project to start from.

    It has one kernel, a Python module that launches it, a test, and a workflow that runs this test on GitHub.
    DIR is created if it does not exist. Existing files are never overwritten.
    """
    project = ProjectName.from_text(directory.resolve().name if name is None else name)
    files = render_files(project, backend)
    write_files(directory, files)
    click.echo(f"Wrote the project {project.distribution}, which {backend} builds:")
    for file in files:
        click.echo(f"  {directory / file}")
    click.echo("\nNext:")
    if directory.resolve() != Path.cwd():
        # cd would take a name that begins with "-" for an option.
        prefix = f"{os.curdir}{os.sep}" if str(directory).startswith("-") else ""
        click.echo(f"  cd {_quote(f'{prefix}{directory}')}")
    click.echo('  pip install ".[test]"')
    click.echo("  pytest")


def _quote(path: str) -> str:
    """`path` as one argument in this system's shell."""
    if sys.platform == "win32":  # paths have no quotes there
        return f'"{path}"' if " " in path else path
    return shlex.quote(path)
