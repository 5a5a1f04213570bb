"""``cuda-ext record``: record the launches of a program, and build what it launched."""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import click

from cuda_ext.cli.terminal import DIRECTORY, Failure, find_project
from cuda_ext.formats.quantities import format_count
from cuda_ext.recording.records import DIRECTORY as PLACE
from cuda_ext.recording.records import RecordError, read_records


@click.command(
    context_settings={"allow_interspersed_args": False},
    epilog="""\b
    Examples:
      cuda-ext record -- python -m pytest
      cuda-ext record --write
      cuda-ext record --check
    """,
)
@click.option("--project", metavar="DIR", default=".", type=DIRECTORY, help="The project; by default, here.")
@click.option(
    "--records", metavar="DIR", type=DIRECTORY, help=f"The records; by default, {PLACE} in the project."
)
@click.argument("program", nargs=-1, type=click.UNPROCESSED)
def record(project: Path, records: Path | None, program: Sequence[str]) -> None:
    """Record the launches of a program.

    Each launch of a kernel in a Python process of PROGRAM is recorded once, with types, constants, shapes and
    the grid: those of modules of kernels, of Triton, cuTile and CuPy. Records of several runs add up. Without
    a GPU, launches of Triton and cuTile are not executed, so PROGRAM computes no results. Its exit code is
    that of this command.
    """
    root = find_project(project).root
    place = (records or root / PLACE).absolute()
    if not program:
        raise click.UsageError("name a program, as in: cuda-ext record -- python -m pytest")
    code = _run(program, place, root)
    try:
        _summarize(place)
    except RecordError as error:
        click.echo(str(error), err=True)
    sys.exit(code)


def _run(program: Sequence[str], place: Path, root: Path) -> int:
    """Run `program` with recording; return its exit code."""
    import cuda_ext
    from cuda_ext.recording.recorder import Recording
    from cuda_ext.toolchain.process import run_in_foreground

    replaces = not cuda_ext.gpu_available()
    if replaces:
        note = "there is no GPU: launches of Triton and cuTile are recorded and not executed, so the program"
        click.echo(f"{note} computes no results", err=True)
    recording = Recording(str(place), str(root), replaces)
    try:
        return run_in_foreground(program, recording.added_to(os.environ))
    except OSError as error:
        raise Failure(f"cannot be started: {error.strerror}", where=program[0]) from None


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
