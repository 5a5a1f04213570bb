"""``cuda-ext prepare``."""

from __future__ import annotations

import importlib
import os
import pkgutil
import time
import warnings
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

import click

from cuda_ext.cache.store import why_not_used
from cuda_ext.cli import completion
from cuda_ext.cli.failure import Failure
from cuda_ext.cli.output import echo_json
from cuda_ext.cli.values import TEXT
from cuda_ext.errors import CacheWarning
from cuda_ext.manifest import FILE_NAME
from cuda_ext.runtime.module import KernelModule

if TYPE_CHECKING:
    from cuda_ext.runtime.jit.preparation import Preparation

__all__ = ["prepare"]


@click.command(
    epilog="""\b
    Examples:
      cuda-ext prepare my_package.kernels
      cuda-ext prepare my_package.kernels "axpy<__half>" --arch sm_90
      cuda-ext prepare my_package.kernels --arch sm_80 --arch sm_90 --json
    """
)
@click.argument("module", type=TEXT, shell_complete=completion.modules)
@click.argument("expressions", metavar="[EXPRESSION]...", type=TEXT, nargs=-1)
@click.option(
    "--arch",
    "architectures",
    metavar="sm_90",
    type=TEXT,
    multiple=True,
    shell_complete=completion.gpus,
    help="The architecture of a GPU, as often as needed. By default, those of this machine.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def prepare(module: str, expressions: Sequence[str], architectures: Sequence[str], as_json: bool) -> None:
    """Compile ahead what would be compiled on demand.

    It is kept in the cache, for the image of a container or the start of a cluster.

    MODULE is the import name of a module of kernels, such as example_project.kernels. Each EXPRESSION names a
    kernel in C++, such as "axpy<__half>". Without any, it is all that was built, for GPUs that no image was
    built for.
    """
    kernels = _imported(module)
    if why := why_not_used(os.environ):
        raise Failure(f"nothing can be kept: {why}")
    began = time.perf_counter()
    prepared = _prepared(kernels, expressions, architectures)
    seconds = time.perf_counter() - began
    if as_json:
        compiled, known = list(prepared.compiled), list(prepared.known)
        echo_json({"module": module, "compiled": compiled, "known": known, "seconds": round(seconds, 3)})
        return
    for what, demands in (("compiled", prepared.compiled), ("known", prepared.known)):
        for demand in demands:
            click.echo(f"{what:<9}{demand}")
    if prepared.compiled or prepared.known:
        counts = f"{len(prepared.compiled):,} compiled, {len(prepared.known):,} known"
        click.echo(f"{module}: {counts}, in {seconds:.1f} s")
    else:
        click.echo(f"{module}: nothing to compile: there is an image for each of these GPUs")


def _prepared(kernels: KernelModule, expressions: Sequence[str], architectures: Sequence[str]) -> Preparation:
    from cuda_ext.runtime.jit.preparation import prepare

    with warnings.catch_warnings():
        warnings.simplefilter("error", CacheWarning)  # what is not kept is not prepared
        try:
            return prepare(kernels, expressions or None, architectures=architectures or None)
        except CacheWarning as warning:
            raise Failure(str(warning)) from None


def _imported(name: str) -> KernelModule:
    """The module of kernels of that name, imported."""
    if not all(part.isidentifier() for part in name.split(".")):
        raise click.BadParameter(f"{name!r} is no import name; write it as in example_project.kernels")
    try:
        module = importlib.import_module(name)
    except ModuleNotFoundError as error:
        if not error.name or not f"{name}.".startswith(f"{error.name}."):
            raise _does_not_import(name, error) from None
        raise Failure(
            f"{name}: there is no module {error.name!r}; install the package that holds it, or set PYTHONPATH"
        ) from None
    except Exception as error:  # of code that is not ours
        raise _does_not_import(name, error) from None
    if not isinstance(module, KernelModule):
        within = " or ".join(_modules_within(module))
        raise Failure(
            f"{name}: it is no module of kernels; name {within or 'one that a build has generated'}"
        )
    return module


def _does_not_import(name: str, error: Exception) -> Failure:
    return Failure(f"{name}: it cannot be imported: {type(error).__name__}: {error}; correct that")


def _modules_within(package: ModuleType) -> list[str]:
    """The modules of kernels that lie directly in `package`."""
    return [
        f"{package.__name__}.{found.name}"
        for place in getattr(package, "__path__", ())
        for found in pkgutil.iter_modules([place])
        if Path(place, found.name, FILE_NAME).is_file()
    ]
