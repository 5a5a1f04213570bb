"""The command itself: one thing is shown, of two what changed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from cuda_ext.cli import completion
from cuda_ext.cli.terminal import TEXT, Failure, echo_json

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
@click.argument("what", type=TEXT, shell_complete=completion.complete_files)
@click.argument("other", type=TEXT, required=False, shell_complete=completion.complete_files)
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

    Of several modules, those that are damaged are left out and told of, and the exit code is 1.
    """
    from cuda_ext.cli.inspect.reading import read_contents

    named = [what] if other is None else [what, other]
    found = [read_contents(name) for name in named]
    if pattern is not None:
        found = _only(found, pattern)
    if len(found) == 1:
        _show(found[0] if pattern is None else found[0].around_its_kernels(), as_json)
    else:
        _compare(found[0], found[1], as_json)
    damaged = [message for contents in found for message in contents.damaged]
    for message in damaged:
        click.echo(message, err=True)
    context.exit(1 if damaged else 0)


def _show(contents: Contents, as_json: bool) -> None:
    if as_json:
        from cuda_ext.cli.inspect.as_json import contents_as_json

        echo_json(contents_as_json(contents))
    else:
        from cuda_ext.cli.inspect.listing import show_contents

        show_contents(contents)


def _compare(before: Contents, after: Contents, as_json: bool) -> None:
    from cuda_ext.cli.inspect.difference import compare

    difference = compare(before, after)
    if as_json:
        from cuda_ext.cli.inspect.as_json import difference_as_json

        echo_json(difference_as_json(difference))
    else:
        from cuda_ext.cli.inspect.changes import show_difference

        show_difference(difference)


def _only(found: list[Contents], pattern: str) -> list[Contents]:
    chosen = [contents.only(pattern) for contents in found]
    if not any(module.kernels for contents in chosen for module in contents.modules):
        import difflib

        kernels = [kernel for contents in found for module in contents.modules for kernel in module.kernels]
        names = [name for kernel in kernels for name in kernel.names]
        close = difflib.get_close_matches(pattern, names, n=1)
        hint = f"did you mean {close[0]!r}?" if close else "without --kernel, all are shown"
        raise Failure(f"{found[-1].path}: no kernel matches {pattern!r}; {hint}")
    return chosen
