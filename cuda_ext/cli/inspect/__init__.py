"""``cuda-ext inspect``: show what is in a wheel, a module or an image, or what differs between two."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from cuda_ext.cli.completion import complete_files
from cuda_ext.cli.terminal import TEXT, Failure, echo_json
from cuda_ext.errors import did_you_mean

if TYPE_CHECKING:
    from cuda_ext.cli.inspect.contents import Contents

__all__ = ["inspect"]


@click.command(
    epilog="""\b
    Examples:
      cuda-ext inspect dist/my_package-1.0-py3-none-any.whl
      cuda-ext inspect my_package.kernels --kernel axpy
      cuda-ext inspect old.whl new.whl        (why has it grown?)
      cuda-ext inspect my_package --json
    """
)
@click.argument("what", type=TEXT, shell_complete=complete_files)
@click.argument("other", type=TEXT, required=False, shell_complete=complete_files)
@click.option("--json", "as_json", is_flag=True, help="Print JSON, with everything.")
@click.option(
    "--kernel",
    "pattern",
    metavar="PATTERN",
    type=TEXT,
    help="Only these kernels, such as axpy or '*<double*'.",
)
@click.pass_context
def inspect(context: click.Context, what: str, other: str | None, as_json: bool, pattern: str | None) -> None:
    """Show compiled kernels: registers, spills, sizes.

    WHAT is a wheel, a fatbin, a cubin, PTX, a directory with modules of kernels in it, or the import name of
    an installed one. With OTHER, show what changed from WHAT to OTHER. Nothing is imported, and no GPU is
    needed.

    Damaged modules are reported and left out if there are others, and the exit code is 1.
    """
    from cuda_ext.cli.inspect.reading import read_contents

    contents = [read_contents(name) for name in (what, other) if name is not None]
    if pattern is not None:
        contents = _select_kernels(contents, pattern)
    if other is not None:
        _show_difference(*contents, as_json=as_json)
    else:
        _show(contents[0] if pattern is None else contents[0].without_other_units(), as_json=as_json)
    damaged = [message for each in contents for message in each.damaged]
    for message in damaged:
        click.echo(message, err=True)
    context.exit(1 if damaged else 0)


def _show(contents: Contents, *, as_json: bool) -> None:
    if as_json:
        from cuda_ext.cli.inspect.inspect_json import contents_as_json

        echo_json(contents_as_json(contents))
    else:
        from cuda_ext.cli.inspect.display import show_contents

        show_contents(contents)


def _show_difference(before: Contents, after: Contents, *, as_json: bool) -> None:
    from cuda_ext.cli.inspect.comparing import compare_contents

    difference = compare_contents(before, after)
    if as_json:
        from cuda_ext.cli.inspect.inspect_json import difference_as_json

        echo_json(difference_as_json(difference))
    else:
        from cuda_ext.cli.inspect.display import show_difference

        show_difference(difference)


def _select_kernels(contents: list[Contents], pattern: str) -> list[Contents]:
    selected = [each.with_kernels(pattern) for each in contents]
    if not any(module.kernels for each in selected for module in each.modules):
        kernels = [kernel for each in contents for module in each.modules for kernel in module.kernels]
        raise Failure(
            f"no kernel matches {pattern!r}",
            where=contents[-1].path,
            remedy=did_you_mean(pattern, [name for kernel in kernels for name in kernel.names])
            or "leave out --kernel to show all",
        )
    return selected
