"""``cuda-ext doctor``: what is installed, what prevents building or launching kernels, and what to do."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial

import click

from cuda_ext.cli import completion
from cuda_ext.cli.doctor.findings import Finding, Section, as_json, show_sections
from cuda_ext.cli.terminal import TEXT, echo_json
from cuda_ext.errors import CudaExtError

__all__ = ["doctor", "examine"]


@click.command(
    epilog="""\b
    Examples:
      cuda-ext doctor
      cuda-ext doctor my_package.kernels
      cuda-ext doctor --json | jq .counts
    """
)
@click.argument(
    "modules", metavar="[MODULE]...", type=TEXT, nargs=-1, shell_complete=completion.complete_modules
)
@click.option("--json", "is_json", is_flag=True, help="Print JSON, with more facts.")
@click.pass_context
def doctor(context: click.Context, modules: Sequence[str], is_json: bool) -> None:
    """Report what is installed, what is wrong, and what to do.

    This examines compilers, the driver and its GPUs, the cache, the environment, and all installed modules of
    kernels: whether each has an image for each GPU. Nothing is compiled, imported or changed.

    With MODULE, the import name of a module of kernels or of a package with such modules, only those are
    examined, and all of their files are read.

    The exit code is 1 if there is a problem. A missing GPU is not a problem.
    """
    sections = list(examine(modules))
    if is_json:
        echo_json(as_json(sections))
    else:
        show_sections(sections)
    has_problem = any(finding.level == "problem" for section in sections for finding in section.findings)
    context.exit(1 if has_problem else 0)


def examine(names: Sequence[str]) -> Iterator[Section]:
    """Examine this machine, or only its GPUs and the modules and packages in `names`."""
    from cuda_ext.cli.doctor import gpus, installation, kernel_modules, tool_chain

    machine = gpus.find_gpus()
    if names:
        yield _section("Driver and GPUs", partial(gpus.examine_gpus, machine))
        yield _section("Modules", partial(kernel_modules.examine_named, names, machine))
        return
    yield _section("Installation", installation.examine_installation)
    yield _section("Tool chain", partial(tool_chain.examine_tool_chain, machine))
    if tool_chain.has_project():
        yield _section("This project", tool_chain.examine_project)
    yield _section("Driver and GPUs", partial(gpus.examine_gpus, machine))
    yield _section("Cache", installation.examine_cache)
    yield _section("Environment", installation.examine_environment)
    yield _section("Modules", partial(kernel_modules.examine_installed, machine))


def _section(title: str, examination: Callable[[], Iterable[Finding]]) -> Section:
    """The findings up to an unexpected error, which must not hide those of other sections."""
    findings: list[Finding] = []
    try:
        findings.extend(examination())
    except (Exception, SystemExit) as error:
        reason = str(error) if isinstance(error, CudaExtError | OSError) else repr(error)
        remedy = "correct that, or report it with the output of cuda-ext doctor --json"
        findings.append(Finding("problem", title.lower(), f"the examination failed: {reason}", remedy))
    return Section(title, findings)
