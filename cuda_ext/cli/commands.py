"""The command group ``cuda-ext``: the order of its commands, its help, and how errors are shown.

A command is imported when it runs, from the module of its name.
"""

from __future__ import annotations

import sys
from contextlib import redirect_stdout
from importlib import import_module
from typing import IO, Any, cast

import click

from cuda_ext.cli.terminal import Output
from cuda_ext.errors import describe_error, did_you_mean

_COMMANDS = (
    "init",
    "build",
    "report",
    "compile-commands",
    "export",
    "inspect",
    "doctor",
    "prepare",
    "record",
    "tune",
    "cache",
    "cmake-dir",
)
_CMAKE = """\b
Examples:
  cmake -B build -DCMAKE_PREFIX_PATH="$(cuda-ext cmake-dir)"
"""
_EXIT_CODES = [
    ("0", "success"),
    ("1", "an error, or a problem that doctor found"),
    ("2", "wrong usage"),
]


class _Commands(click.Group):
    """Commands in the order of use, imported on demand. Errors are shown as one message."""

    def list_commands(self, context: click.Context) -> list[str]:  # noqa: ARG002
        return list(_COMMANDS)

    def get_command(self, context: click.Context, name: str) -> click.Command | None:  # noqa: ARG002
        if name not in _COMMANDS:
            return None
        attribute = name.replace("-", "_")
        command = getattr(import_module(f"cuda_ext.cli.{attribute}"), attribute)
        if name == "cmake-dir":  # a plain function, which also works without click
            return click.command(name, epilog=_CMAKE)(command)
        return cast("click.Command", command)

    def resolve_command(
        self, context: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args[0] not in _COMMANDS and (remedy := did_you_mean(args[0], _COMMANDS)):
            context.fail(f"No such command {args[0]!r}; {remedy}")
        return super().resolve_command(context, args)

    def main(self, *args: Any, **extra: Any) -> Any:
        try:
            return super().main(*args, **extra)
        except Exception as error:
            click.echo(describe_error(error), err=True)
            sys.exit(1)

    def invoke(self, context: click.Context) -> object:
        with redirect_stdout(cast("IO[str]", Output(sys.stdout))):
            return super().invoke(context)

    def format_epilog(self, context: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        from cuda_ext.cli.environment import VARIABLES

        with formatter.section("Environment"):
            formatter.write_dl(list(VARIABLES.items()))
        with formatter.section("Exit codes"):
            formatter.write_dl(_EXIT_CODES)


def _show_versions(context: click.Context, _option: click.Parameter, is_given: bool) -> None:
    if is_given and not context.resilient_parsing:
        from cuda_ext.cli.versions import versions

        for name, version in versions():
            click.echo(f"{name:<10}{version}")
        context.exit()


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_show_versions,
    help="Show the versions of cuda-ext, Python, the driver and NVRTC, and exit.",
)
def commands() -> None:
    """CUDA kernels in a Python package as easily as data files.

    \b
      cuda-ext init my-project && cd my-project   a project to start from
      pip install ".[test]" && pytest             build, install and test it
      cuda-ext doctor                             if that does not work

    The --help of each command has examples. --json prints output for programs.
    """
