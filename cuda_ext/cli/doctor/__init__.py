"""``cuda-ext doctor``: what prevents building or launching kernels, and what to do.

:func:`examine` lists the checks. A check yields findings; an exception becomes the last one of its section.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import click

from cuda_ext.cli.doctor.findings import LEVELS, STYLES, Finding, show_finding
from cuda_ext.cli.terminal import TEXT, echo_json, show_line
from cuda_ext.errors import CudaExtError
from cuda_ext.formats.quantities import format_count


@dataclass(frozen=True, slots=True)
class Section:
    """The findings of one check."""

    title: str
    findings: Sequence[Finding]


@click.command(
    epilog="""\b
    Examples:
      cuda-ext doctor
      cuda-ext doctor my_package.kernels
      cuda-ext doctor --json | jq .counts
    """
)
@click.argument("modules", metavar="[MODULE]...", type=TEXT, nargs=-1)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.pass_context
def doctor(context: click.Context, modules: Sequence[str], as_json: bool) -> None:
    """Find out what prevents builds or launches.

    The command checks compilers, the driver and its GPUs, the cache, the environment, and the project in the
    current directory. It also checks whether each installed module of kernels has an image for each GPU. It
    compiles, imports and changes nothing.

    MODULE is the import name of a module of kernels, or of a package with such modules. With it, the command
    checks only these modules, and reads all their files.

    The exit code is 1 if there is a problem. A missing GPU is not a problem.
    """
    sections = examine(modules)
    levels = [finding.level for section in sections for finding in section.findings]
    counts = {level: levels.count(level) for level in LEVELS}
    if as_json:
        # Fields may be added; existing ones keep their meaning.
        echo_json({"counts": counts, "sections": sections})
    else:
        for section in sections:
            show_line((section.title, "bold"))
            for finding in section.findings:
                show_finding(finding)
            show_line()
        present = [level for level in reversed(LEVELS) if counts[level] and level != "ok"]
        summary = ", ".join(format_count(counts[level], level) for level in present)
        show_line((summary or "no problems", STYLES[present[0] if present else "ok"]))
    context.exit(1 if counts["problem"] else 0)


def examine(names: Sequence[str]) -> list[Section]:
    """Check this machine and this project, or only the driver and the modules and packages in `names`."""
    from cuda_ext.cli.doctor import kernel_modules, machine, this_project

    gpus = machine.find_gpus()
    checks = {
        "Installation": machine.check_installation(),
        "Tool chain": machine.check_tool_chain(gpus),
        "This project": this_project.check_project(),
        "Driver and GPUs": machine.check_gpus(gpus),
        "Cache": machine.check_cache(),
        "Environment": machine.check_environment(),
        "Modules": kernel_modules.check_modules(names, gpus),
    }
    chosen = ("Driver and GPUs", "Modules") if names else checks
    sections = [Section(title, _collect(title.lower(), checks[title])) for title in chosen]
    return [section for section in sections if section.findings]


def _collect(subject: str, check: Iterator[Finding]) -> list[Finding]:
    """Collect findings; an error becomes the last one."""
    findings: list[Finding] = []
    try:
        findings.extend(check)
    except CudaExtError as error:
        remedy = error.remedy or "correct it"
        findings.append(Finding("problem", error.where or subject, error.problem, remedy))
    except (Exception, SystemExit) as error:
        reason = str(error) if isinstance(error, OSError) else repr(error)
        remedy = "correct that, or report it with the output of cuda-ext doctor --json"
        findings.append(Finding("problem", subject, f"the check failed: {reason}", remedy))
    return findings
