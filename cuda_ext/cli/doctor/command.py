"""The command itself."""

from __future__ import annotations

from collections.abc import Sequence

import click

from cuda_ext.cli import completion
from cuda_ext.cli.terminal import TEXT, echo_json

__all__ = ["doctor"]


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
    """Say what is here, what is wrong, and what to do.

    It looks at compilers, the driver and its GPUs, the cache, the environment, and at all installed modules
    of kernels: whether each has an image for each GPU. Nothing is compiled, imported or changed.

    With MODULE, the import name of a module of kernels or of a package that has some, it looks at those
    alone, and reads all of their files.

    The exit code is 1 if there is a problem. Having no GPU is none.
    """
    from cuda_ext.cli.doctor.examination import examine

    sections = list(examine(modules))
    if as_json:
        from cuda_ext.cli.doctor.as_json import sections_as_json

        echo_json(sections_as_json(sections))
    else:
        from cuda_ext.cli.doctor.listing import show_sections

        show_sections(sections)
    is_well = all(finding.level != "problem" for section in sections for finding in section.findings)
    context.exit(0 if is_well else 1)
