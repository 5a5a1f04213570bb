"""``cuda-ext tune``: measure candidates on this machine's GPU, or check what a package chose."""

from __future__ import annotations

import sys
import time
from contextlib import suppress
from pathlib import Path

import click

from cuda_ext.cli.prepare import import_kernels
from cuda_ext.cli.terminal import DIRECTORY, TEXT


@click.command(
    epilog="""\b
    Examples:
      cuda-ext tune my_package.kernels --case "m=[512, 4096], n=4096, k=4096"
      cuda-ext tune my_package.kernels --kernel gemm --case "n=4096" --limit 600
      cuda-ext tune my_package.kernels --check
    """
)
@click.argument("module", type=TEXT)
@click.option("--kernel", "names", type=TEXT, multiple=True, help="Measure only this kernel; repeatable.")
@click.option("--case", "cases", type=TEXT, multiple=True, help="Measure this case; repeatable.")
@click.option("--check", is_flag=True, help="Measure what the package has, and write nothing.")
@click.option("--limit", type=click.FloatRange(1), help="Stop after so many seconds.")
@click.option("--patience", type=click.FloatRange(0.1), default=20, help="The most seconds of a candidate.")
@click.option("--project", type=DIRECTORY, default=".", help="The directory to write tuning/KERNEL.json to.")
def tune(
    module: str,
    names: tuple[str, ...],
    cases: tuple[str, ...],
    check: bool,
    limit: float | None,
    patience: float,
    project: Path,
) -> None:
    """Measure the candidates of kernels on this machine's GPU.

    A case gives values of arguments, or lists of values for all combinations. Without --case, the cases are
    the launches that `cuda-ext record` recorded in the project.

    MODULE is the import name of a module of kernels that was built with CUDA_EXT_CANDIDATES=1. You need no
    compiler. The command writes results after each round, as lines of tuning/KERNEL.json, and the next build
    chooses by these results. After an interruption, run the command again: it continues where it was.

    --check takes any build of the package. It compares the candidates that the package has, for the measured
    cases or those of --case. If their results differ, the exit code is 1.
    """
    from cuda_ext.tuning.campaign import Campaign, parse_cases
    from cuda_ext.tuning.measure import Bench

    def show(text: str) -> None:
        if sys.stderr.isatty():
            click.echo(f"\r\x1b[K{text}", nl=False, err=True)

    def say(text: str) -> None:
        show("")
        click.echo(text)

    kernels = import_kernels(module)
    given = {"": [case for text in cases for case in parse_cases(text)]}
    measured = given if cases or check else _recorded_cases(project)
    bench = Bench(module, patience)
    campaign = Campaign(kernels, bench, say, show, time.monotonic() + (limit or float("inf")))
    try:
        is_good = campaign.run(names, measured, None if check else project)
    finally:
        bench.close()
    if check and not is_good:
        raise click.exceptions.Exit(1)


def _recorded_cases(project: Path) -> dict[str, list[dict[str, object]]]:
    """Return the different sizes of recorded launches, by function."""
    from ast import literal_eval

    from cuda_ext.recording.records import DIRECTORY, read_records

    cases: dict[str, list[dict[str, object]]] = {}
    for launch in read_records(project / DIRECTORY):
        case: dict[str, object] = {}
        for each in launch.arguments:
            if each.shape is not None:
                case[each.name] = each.shape
            elif "." not in each.name:
                with suppress(ValueError, SyntaxError):
                    case[each.name] = literal_eval(each.value)
        own = cases.setdefault(launch.kernel, [])
        if case not in own:
            own.append(case)
    return cases
