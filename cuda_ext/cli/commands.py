"""All commands in one place.

Their modules import little; what a command works with is imported when it runs.
"""

from __future__ import annotations

import click

import cuda_ext
from cuda_ext.cli.cache import cache
from cuda_ext.cli.cmake_dir import cmake_dir
from cuda_ext.cli.failure import Failure
from cuda_ext.cli.inspect import inspect
from cuda_ext.cli.prepare import prepare
from cuda_ext.errors import CudaExtError

__all__ = ["commands"]


class _Commands(click.Group):
    """Commands whose errors are messages."""

    def invoke(self, context: click.Context) -> object:
        try:
            return super().invoke(context)
        except CudaExtError as error:
            raise Failure(str(error)) from None
        except BrokenPipeError:
            raise  # whoever read the output has enough of it
        except OSError as error:
            raise Failure(f"{error.filename or 'standard output'}: {error.strerror}") from None


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(cuda_ext.__version__, message="%(version)s")
def commands() -> None:
    """CUDA kernels in a Python package as easily as data files."""


commands.add_command(cache)
commands.add_command(inspect)
commands.add_command(prepare)
commands.command("cmake-dir")(cmake_dir)
