"""``cuda-ext record``: record the launches of a program, and build what it launched."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from cuda_ext.cli.terminal import DIRECTORY, Failure, find_project, shorten_path
from cuda_ext.formats.quantities import format_count
from cuda_ext.recording.records import DIRECTORY as PLACE
from cuda_ext.recording.records import Launch, RecordError, read_records

if TYPE_CHECKING:
    from cuda_ext.builder.project import Project


@click.command(
    context_settings={"allow_interspersed_args": False},
    epilog="""\b
    Examples:
      cuda-ext record -- python -m pytest
      cuda-ext record --write
      cuda-ext record --check
    """,
)
@click.option(
    "--project",
    metavar="DIR",
    default=".",
    type=DIRECTORY,
    help="The project; by default, the current directory.",
)
@click.option(
    "--records", metavar="DIR", type=DIRECTORY, help=f"The records; by default, {PLACE} in the project."
)
@click.option("--without-gpu", is_flag=True, help="Execute no launches of Triton and cuTile.")
@click.option("--write", is_flag=True, help="Add launched kernels that are not built to pyproject.toml.")
@click.option("--check", is_flag=True, help="Fail if a launched kernel is not built.")
@click.argument("program", nargs=-1, type=click.UNPROCESSED)
def record(
    project: Path,
    records: Path | None,
    without_gpu: bool,
    write: bool,
    check: bool,
    program: Sequence[str],
) -> None:
    """Record the launches of a program, and build them.

    The command runs PROGRAM. It records each different launch of its Python processes once, with types,
    constants, shapes and the grid: launches of modules of kernels, of Triton, cuTile and CuPy. Records of
    several runs add up. Without a GPU, launches of Triton and cuTile are not executed, so PROGRAM computes no
    results. The command ends with the exit code of PROGRAM.

    --write adds launched kernels that are not built to `instantiate` in pyproject.toml, and removes nothing.
    It needs cuda-ext[record]. --check lists these kernels and fails, for example in continuous integration.
    """
    found = find_project(project)
    place = (records or found.root / PLACE).absolute()
    if bool(program) + write + check != 1:
        raise click.UsageError(
            "name a program, as in: cuda-ext record -- python -m pytest; or give --write or --check"
        )
    if not program:
        _compare(found, read_records(place), write)
        return
    code = _run(program, place, found.root, without_gpu)
    try:
        _summarize(read_records(place))
    except RecordError as error:
        click.echo(str(error), err=True)
    sys.exit(code)


def _run(program: Sequence[str], place: Path, root: Path, without_gpu: bool) -> int:
    """Run `program` with recording; return its exit code."""
    import cuda_ext
    from cuda_ext.recording.recorder import Recording
    from cuda_ext.toolchain.process import run_in_foreground

    replaces = without_gpu or not cuda_ext.gpu_available()
    if replaces:
        note = "launches of Triton and cuTile are recorded and not executed"
        click.echo(f"without a GPU: {note}, so the program computes no results", err=True)
    try:
        environ = Recording(str(place), str(root), replaces).added_to(os.environ)
        return run_in_foreground(program, environ)
    except OSError as error:
        raise Failure(f"cannot be started: {error.strerror}", where=program[0]) from None


def _summarize(launches: Sequence[Launch]) -> None:
    """Show the kernels that were launched."""
    times: dict[str, list[int]] = {}
    for each in launches:
        name = f"{each.kind:<8}{each.kernel} in {each.source or 'no file'}"
        times.setdefault(name, []).append(each.times)
    for name, own in times.items():
        click.echo(f"{name}: {format_count(sum(own), 'launch', 'launches')}, {len(own):,} different")


def _compare(project: Project, launches: Sequence[Launch], write: bool) -> None:
    """Show which of `launches` are not built, and add them to the table or fail."""
    from cuda_ext.filesystem.atomic_directory import replace_file
    from cuda_ext.recording.added_instantiations import add_to_table
    from cuda_ext.recording.built_launches import compare, describe_variation

    missing, unknown = compare(project, launches)
    texts = [f"{each.kernel} in {each.source or 'no file'}" for each in unknown]
    notes = [f"not compared: no module of the project has {text}" for text in dict.fromkeys(texts)]
    for note in notes + describe_variation(launches) * write:
        click.echo(note)
    file = project.root / "pyproject.toml"
    content = add_to_table(project, missing) if write else b""
    name = shorten_path(file)
    for each in missing:
        total = format_count(sum(launch.times for launch in each.launches), "launch", "launches")
        kernel = f"{each.launches[0].kernel} in {each.source}"
        lines = [f"{name}: {each.module.where}: {total} of {kernel} not built:"]
        lines += [*each.instantiations, *(f"left out: {note}" for note in each.notes)]
        click.echo("\n  ".join(lines), err=not write)
    if write:
        replace_file(file, content)
        count = sum(len(each.instantiations) for each in missing)
        click.echo(f"{name}: {format_count(count, 'instantiation')} added")
    elif missing:
        problem = "the table does not build what was launched"
        raise Failure(problem, where=name, remedy="run cuda-ext record --write")
    else:
        click.echo(f"{name} builds all {format_count(len(launches), 'recorded launch', 'recorded launches')}")
