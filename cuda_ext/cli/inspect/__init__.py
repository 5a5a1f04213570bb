"""``cuda-ext inspect``: show what is in a wheel, a module or an image, or what differs between two."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from cuda_ext.cli.terminal import TEXT, Failure, echo_json
from cuda_ext.errors import did_you_mean

if TYPE_CHECKING:
    from cuda_ext.cli.inspect.contents import Contents


@click.command(
    epilog="""\b
    Examples:
      cuda-ext inspect dist/my_package-1.0-py3-none-any.whl
      cuda-ext inspect my_package.kernels --kernel axpy
      cuda-ext inspect old.whl new.whl        (why has it grown?)
      cuda-ext inspect my_package --json
    """
)
@click.argument("what", type=TEXT, shell_complete=click.Path().shell_complete)
@click.argument("other", type=TEXT, required=False, shell_complete=click.Path().shell_complete)
@click.option("--json", "as_json", is_flag=True, help="Print JSON, with everything.")
@click.option(
    "--kernel",
    "pattern",
    metavar="PATTERN",
    type=TEXT,
    help="Show only these kernels, such as axpy or '*<double*'.",
)
@click.option("--sizes", is_flag=True, help="Show the sizes of the parts of each cubin, instead of kernels.")
@click.pass_context
def inspect(
    context: click.Context, what: str, other: str | None, as_json: bool, pattern: str | None, sizes: bool
) -> None:
    """Show compiled kernels: registers, spills, sizes.

    WHAT is a wheel, a fatbin, a cubin, PTX, a directory with modules of kernels, or the import name of an
    installed module. With OTHER, the command shows the changes from WHAT to OTHER. It imports nothing and
    needs no GPU.

    If a module is damaged, the command reports it, shows the others, and ends with exit code 1.
    """
    from cuda_ext.cli.inspect.reading import read_contents

    contents = [read_contents(name) for name in (what, other) if name is not None]
    if pattern is not None:
        contents = _select_kernels(contents, pattern)
        contents = contents if other else [each.without_empty_modules() for each in contents]
    if as_json:
        from cuda_ext.cli.inspect.comparing import difference_as_json
        from cuda_ext.facts.codec import plain

        echo_json(difference_as_json(*contents) if other else {"schema": 1, **plain(contents[0], [])})
    else:
        from cuda_ext.cli.inspect.display import show_contents, show_difference, show_sizes

        show = show_difference if other else show_sizes if sizes else show_contents
        show(*contents)
    damaged = [message for each in contents for message in each.damaged]
    for message in damaged:
        click.echo(message, err=True)
    context.exit(1 if damaged else 0)


def _select_kernels(contents: list[Contents], pattern: str) -> list[Contents]:
    from cuda_ext.cli.inspect.contents import names_of

    # A unit that holds the kernel in one of the two is compared in both.
    titles = set().union(*(each.units_with(pattern) for each in contents))
    selected = [each.with_kernels(pattern, titles) for each in contents]
    if not any(each.kernels for each in selected):
        names = [name for each in contents for kernel in each.kernels for name in names_of(kernel)]
        raise Failure(
            f"no kernel matches {pattern!r}",
            where=contents[-1].path,
            remedy=did_you_mean(pattern, names) or "leave out --kernel to show all",
        )
    return selected
