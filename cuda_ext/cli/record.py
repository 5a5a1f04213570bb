"""``cuda-ext record``: record the launches of a program, and build what it launched."""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from cuda_ext.cli.terminal import DIRECTORY, Failure, find_project, shorten_path
from cuda_ext.formats.quantities import format_count
from cuda_ext.recording.records import DIRECTORY as PLACE
from cuda_ext.recording.records import Launch, RecordError, describe_variation, read_records

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
    root = found.root
    place = (records or root / PLACE).absolute()
    if bool(program) + write + check != 1:
        raise click.UsageError(
            "name a program, as in: cuda-ext record -- python -m pytest; or give --write or --check"
        )
    if write or check:
        _compare(found, read_records(place), write)
        return
    code = _run(program, place, root, without_gpu)
    try:
        _summarize(place)
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
        note = (
            "launches of Triton and cuTile are recorded and not executed, so the program computes no results"
        )
        click.echo(f"without a GPU: {note}", err=True)
    recording = Recording(str(place), str(root), replaces)
    try:
        return run_in_foreground(program, recording.added_to(os.environ))
    except OSError as error:
        raise Failure(f"cannot be started: {error.strerror}", where=program[0]) from None


def _compare(project: Project, launches: Sequence[Launch], write: bool) -> None:
    """Show which of `launches` are not built, and add them to the table or fail."""
    from cuda_ext.filesystem.atomic_directory import replace_file
    from cuda_ext.recording.built_launches import add_to_table, compare

    missing, unknown = compare(project.modules, project.root, launches)
    for text in dict.fromkeys(f"{each.kernel} in {each.source or 'no file'}" for each in unknown):
        click.echo(f"not compared: no module of the project has {text}")
    for text in describe_variation(launches) if write else ():
        click.echo(text)
    file = project.root / "pyproject.toml"
    content = add_to_table(project, missing) if write else b""
    for each in missing:
        total = format_count(sum(launch.times for launch in each.launches), "launch", "launches")
        click.echo(f"{shorten_path(file)}: {each.where}: {total} in {each.source} not built:", err=not write)
        for text in each.instantiations:
            click.echo(f"  {text}", err=not write)
        for text in each.notes:
            click.echo(f"  left out: {text}", err=not write)
    if write:
        replace_file(file, content)
        count = sum(len(each.instantiations) for each in missing)
        click.echo(f"{shorten_path(file)}: {format_count(count, 'instantiation')} added")
    elif missing:
        raise Failure(
            "the table does not build what was launched",
            where=shorten_path(file),
            remedy="run cuda-ext record --write",
        )
    else:
        total = format_count(len(launches), "recorded launch", "recorded launches")
        click.echo(f"{shorten_path(file)} builds all {total}")


def _summarize(place: Path) -> None:
    """Show the kernels that were launched."""
    launches = read_records(place)
    times: Counter[tuple[str, str, str]] = Counter()
    different: Counter[tuple[str, str, str]] = Counter()
    for launch in launches:
        times[launch[0], launch.source, launch.kernel] += launch.times
        different[launch[0], launch.source, launch.kernel] += 1
    for (kind, source, kernel), count in different.items():
        total = format_count(times[kind, source, kernel], "launch", "launches")
        click.echo(f"{kind:<8}{kernel} in {source or 'no file'}: {total}, {count:,} different")
