"""``cuda-ext report``: compile the kernels of a project, and write the HTML page about that."""

from __future__ import annotations

import webbrowser
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import click

from cuda_ext.cli.environment import ARCHITECTURES, environment_with
from cuda_ext.cli.terminal import DIRECTORY, FILE, find_project, shorten_path
from cuda_ext.formats.quantities import format_count

_FILE = "build/kernels.html"


@click.command(
    epilog="""\b
    Examples:
      cuda-ext report --open
      cuda-ext report my-project --fresh -o kernels.html
    """
)
@click.argument("directory", metavar="[DIR]", default=".", type=DIRECTORY)
@click.option("-o", "--output", metavar="FILE", type=FILE, help=f"Write this file instead of {_FILE}.")
@ARCHITECTURES
@click.option("--fresh", is_flag=True, help="Compile everything, even what the cache has, to see all times.")
@click.option("--open", "is_opened", is_flag=True, help="Open the page in a browser.")
def report(
    directory: Path, output: Path | None, architectures: Sequence[str], fresh: bool, is_opened: bool
) -> None:
    """Write an HTML page about a project's kernels.

    The page shows where a build spends its time, the size and the parts of each image, the registers and
    spills of each kernel, and the changes since the previous page. DIR is the directory of the project's
    pyproject.toml, by default the current one. The command does not change the source tree.
    """
    from cuda_ext.builder.session import build_project

    project = find_project(directory)
    file = (output or project.root / (project.settings.report or _FILE)).absolute()
    options = {
        "CUDA_EXT_REPORT": ("--output", file),
        "CUDAARCHS": ("--arch", ";".join(architectures)),
        "CUDA_EXT_CACHE_SIZE": ("--fresh", "0" if fresh else ""),
    }
    with environment_with(options) as environ:
        packages = build_project(project, partial(click.echo, err=True), environ)
    click.echo(f"{shorten_path(file)}: {format_count(len(packages), 'module')}")
    if is_opened:
        webbrowser.open(file.as_uri())
