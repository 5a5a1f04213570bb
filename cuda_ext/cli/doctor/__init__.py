"""``cuda-ext doctor``: what is installed, what prevents building or launching kernels, and what to do."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import click

from cuda_ext.cli import completion
from cuda_ext.cli.doctor.findings import Finding, Section, show
from cuda_ext.cli.terminal import TEXT
from cuda_ext.errors import CudaExtError


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
@click.option("--json", "as_json", is_flag=True, help="Print JSON, with more facts.")
@click.pass_context
def doctor(context: click.Context, modules: Sequence[str], as_json: bool) -> None:
    """Report what is installed, what is wrong, and what to do.

    This examines compilers, the driver and its GPUs, the cache, the environment, and all installed modules of
    kernels: whether each has an image for each GPU. Nothing is compiled, imported or changed.

    With MODULE, the import name of a module of kernels or of a package with such modules, only those are
    examined, and all of their files are read.

    The exit code is 1 if there is a problem. A missing GPU is not a problem.
    """
    context.exit(show(examine(modules), as_json=as_json))


def examine(names: Sequence[str]) -> list[Section]:
    """Examine this machine, or only its GPUs and the modules and packages in `names`."""
    from cuda_ext.cli.doctor import gpus, installation, kernel_modules, this_project, tool_chain

    machine = gpus.find_gpus()
    examinations = {
        "Installation": installation.examine_installation(),
        "Tool chain": tool_chain.examine_tool_chain(machine),
        "This project": this_project.examine_project(),
        "Driver and GPUs": gpus.examine_gpus(machine),
        "Cache": installation.examine_cache(),
        "Environment": installation.examine_environment(),
        "Modules": kernel_modules.examine_modules(names, machine),
    }
    chosen = ("Driver and GPUs", "Modules") if names else examinations
    sections = [Section(title, _collect(title, examinations[title])) for title in chosen]
    # Each project has a finding: about its modules, or an error.
    return [section for section in sections if section.findings or section.title != "This project"]


def _collect(title: str, examination: Iterable[Finding]) -> list[Finding]:
    """Collect findings; an error becomes the last finding of its section."""
    findings: list[Finding] = []
    try:
        findings.extend(examination)
    except CudaExtError as error:
        subject = error.where or title.lower()
        findings.append(Finding("problem", subject, error.problem, error.remedy or "correct it"))
    except (Exception, SystemExit) as error:
        reason = str(error) if isinstance(error, OSError) else repr(error)
        remedy = "correct that, or report it with the output of cuda-ext doctor --json"
        findings.append(Finding("problem", title.lower(), f"the examination failed: {reason}", remedy))
    return findings
