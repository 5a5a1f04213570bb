"""The command itself: from a directory to a project in it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import get_args

import click

from cuda_ext.cli.init.name import ProjectName
from cuda_ext.cli.init.project import Backend, project_files
from cuda_ext.cli.init.writing import write_files
from cuda_ext.cli.output import quoted
from cuda_ext.cli.values import DIRECTORY, TEXT

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
    help="What builds the wheel.",
)
@click.option(
    "--name", metavar="NAME", type=TEXT, help="The project's name; by default that of the directory."
)
def init(directory: Path, backend: Backend, name: str | None) -> None:
    """Write a project to start from.

    It has one kernel, a Python module that launches it, a test, and a workflow that runs this test on GitHub.
    DIR is made if it is not there, and no file in it is overwritten.
    """
    project = ProjectName.made_from(directory.resolve().name if name is None else name)
    files = project_files(project, backend)
    write_files(directory, files)
    click.echo(f"Wrote the project {project.distribution}, which {backend} builds:")
    for file in files:
        click.echo(f"  {directory / file}")
    click.echo("\nNext:")
    if directory.resolve() != Path.cwd():
        beside = f"{os.curdir}{os.sep}" if str(directory).startswith("-") else ""  # or it is an option of cd
        click.echo(f"  cd {quoted(f'{beside}{directory}')}")
    click.echo('  pip install ".[test]"')
    click.echo("  pytest")
