"""``cuda-ext prepare``: compile ahead of time what would be compiled on demand."""

from __future__ import annotations

import os
import time
import warnings
from collections.abc import Sequence
from dataclasses import asdict
from importlib import import_module
from types import ModuleType

import click

from cuda_ext.cli.terminal import TEXT, Failure, echo_json
from cuda_ext.errors import CacheWarning


@click.command(
    epilog="""\b
    Examples:
      cuda-ext prepare my_package.kernels
      cuda-ext prepare my_package.kernels "axpy<__half>" --arch sm_90
      cuda-ext prepare my_package.kernels --arch sm_80 --arch sm_90 --json
    """
)
@click.argument("module", type=TEXT)
@click.argument("expressions", metavar="[EXPRESSION]...", type=TEXT, nargs=-1)
@click.option(
    "--arch",
    "architectures",
    metavar="sm_90",
    type=TEXT,
    multiple=True,
    help="The architecture of a GPU; repeat the option for several. By default, this machine's GPUs.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def prepare(module: str, expressions: Sequence[str], architectures: Sequence[str], as_json: bool) -> None:
    """Compile kernels now that would be compiled on demand.

    The cache keeps the results, for example for a container image or before a cluster starts.

    MODULE is the import name of a module of kernels, such as example_project.kernels. Each EXPRESSION names a
    kernel in C++, such as "axpy<__half>". Without an EXPRESSION, the command compiles all kernels of the
    module for each GPU that the module has no image for.
    """
    from cuda_ext.cache.open_store import why_not_used
    from cuda_ext.runtime.compilation import prepare

    kernels = import_kernels(module)
    if reason := why_not_used(os.environ):
        raise Failure(f"the results cannot be kept: {reason}")
    began = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("error", CacheWarning)  # a result that is not kept is useless here
        try:
            preparation = prepare(kernels, expressions or None, architectures=architectures or None)
        except CacheWarning as warning:
            raise Failure(str(warning)) from None
    seconds = time.perf_counter() - began
    found = asdict(preparation)
    if as_json:
        echo_json({"module": module, **found, "seconds": round(seconds, 3)})
        return
    for label, texts in found.items():
        for text in texts:
            click.echo(f"{label:<9}{text}")
    if any(found.values()):
        counts = (f"{len(texts):,} {label}" for label, texts in found.items() if texts or label != "skipped")
        click.echo(f"{module}: {', '.join(counts)}, in {seconds:.1f} s")
    else:
        click.echo(f"{module}: nothing to compile: there is an image for each of these GPUs")


def import_kernels(name: str) -> ModuleType:
    """Import the module of kernels of that name."""
    from cuda_ext.cli.installed import named_modules
    from cuda_ext.runtime.module import KernelModule

    if not all(part.isidentifier() for part in name.split(".")):
        raise click.BadParameter(f"{name!r} is not an import name; write it as in example_project.kernels")
    try:
        module = import_module(name)
    except Exception as error:  # the package may raise anything
        missing = error.name if isinstance(error, ModuleNotFoundError) else None
        if missing and f"{name}.".startswith(f"{missing}."):
            remedy = "install the package that holds it, or set PYTHONPATH"
            if missing == name:
                _, remedy = named_modules(name)
            raise Failure(f"there is no module {missing!r}", where=name, remedy=remedy) from None
        reason = f"it cannot be imported: {type(error).__name__}: {error}"
        raise Failure(reason, where=name, remedy="correct that") from None
    if not isinstance(module, KernelModule):
        modules, _ = named_modules(name)
        suggestion = " or ".join(module.name for module in modules) or "one that a build has generated"
        raise Failure("it is not a module of kernels", where=name, remedy=f"name {suggestion}")
    return module
