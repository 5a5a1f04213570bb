"""All commands in one place.

Their modules import little; what a command works with is imported when it runs.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from typing import IO, Any, TextIO, cast

import click

import cuda_ext
from cuda_ext.cli.build import build
from cuda_ext.cli.cache import cache
from cuda_ext.cli.cmake_dir import cmake_dir
from cuda_ext.cli.compile_commands import compile_commands
from cuda_ext.cli.completion import completion
from cuda_ext.cli.doctor import doctor
from cuda_ext.cli.failure import Failure
from cuda_ext.cli.init import init
from cuda_ext.cli.inspect import inspect
from cuda_ext.cli.prepare import prepare
from cuda_ext.errors import CudaExtError

__all__ = ["commands"]

_CMAKE = """\b
Examples:
  cmake -B build -DCMAKE_PREFIX_PATH="$(cuda-ext cmake-dir)"
"""
_FAILED = "a mistake, told in one message; or what verify and doctor have found"


class _Commands(click.Group):
    """Commands in the order in which one meets them, whose errors are messages."""

    def list_commands(self, context: click.Context) -> list[str]:  # noqa: ARG002
        return list(self.commands)

    def invoke(self, context: click.Context) -> object:
        try:
            with redirect_stdout(cast("IO[str]", _Output(sys.stdout))):
                return super().invoke(context)
        except CudaExtError as error:
            raise Failure(str(error)) from None
        except BrokenPipeError:
            raise  # whoever read the output has enough of it
        except OSError as error:
            reason = str(error.strerror or error)
            raise Failure(f"{error.filename}: {reason}" if error.filename else reason) from None

    def format_epilog(self, context: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        from cuda_ext.cli.environment import VARIABLES

        with formatter.section("Environment"):
            formatter.write_dl([(variable.name, variable.does) for variable in VARIABLES])
        with formatter.section("Exit codes"):
            formatter.write_dl([("0", "success"), ("1", _FAILED), ("2", "wrong usage")])


class _Output:
    """Standard output, whose errors say so, as those of files have their names."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        with _named("standard output"):
            return self._stream.write(text)

    def flush(self) -> None:
        with _named("standard output"):
            self._stream.flush()


@contextmanager
def _named(what: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        error.filename = what
        raise


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(cuda_ext.__version__, message="%(version)s")
def commands() -> None:
    """CUDA kernels in a Python package as easily as data files.

    \b
      cuda-ext init my-project && cd my-project   a project to start from
      pip install ".[test]" && pytest             its wheel, and its test
      cuda-ext doctor                             if that does not work

    Each command has a --help with examples. With --json, output is for programs.
    """


commands.add_command(init)
commands.add_command(build)
commands.add_command(compile_commands)
commands.add_command(inspect)
commands.add_command(doctor)
commands.add_command(prepare)
commands.add_command(cache)
commands.add_command(completion)
commands.command("cmake-dir", epilog=_CMAKE)(cmake_dir)
