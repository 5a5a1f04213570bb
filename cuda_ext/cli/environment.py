"""The environment variables that the package reads, and the options of commands that replace some of them."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import click

from cuda_ext.cli.terminal import TEXT
from cuda_ext.errors import BuildError

# As ``cuda-ext --help`` and doctor describe them. A test compares the names with
# docs/reference/environment.md and with what the sources read.
VARIABLES = {
    "CUDA_EXT_CACHE": "the cache: a directory, or the URL of a shared one",
    "CUDA_EXT_CACHE_SIZE": "the maximum size of the cache, such as 5G; 0 turns it off",
    "CUDA_EXT_JIT": "0 turns compilation on demand off",
    "CUDA_EXT_DEBUG": "1 adds checks before and after every launch, which is slow",
    "CUDA_EXT_REPORT": "the HTML report that a build writes",
    "CUDA_EXT_TRACE": "the trace for Perfetto that a build writes",
    "CUDA_EXT_EXECUTOR": "module:function; the function returns an executor that compiles",
    "CUDA_EXT_RECORD": "the directory that cuda-ext record sets for records of launches",
    "CUDA_EXT_DASK_SCHEDULER": "the Dask scheduler, whose workers compile",
    "CUDA_EXT_CANDIDATES": "1 builds all candidates of the kernels that `tune` lists",
    "CUDAARCHS": "architectures that replace those of the project",
    "MAX_JOBS": "the number of processes that compile at once",
    "CUDA_EXT_TIMEOUT": "the time limit of one compilation in seconds",
    "CUDA_PATH": "a CUDA toolkit",
    "CUDA_HOME": "a CUDA toolkit, if CUDA_PATH is not set",
    "NVCC_CCBIN": "the host compiler of nvcc",
    "CUDA_VISIBLE_DEVICES": "the GPUs that a process can use",
}

# The option of commands that compile.
ARCHITECTURES = click.option(
    "--arch",
    "architectures",
    metavar="sm_90",
    type=TEXT,
    multiple=True,
    help="Compile for this architecture; repeat the option for several. By default, those of the project.",
)


@contextmanager
def environment_with(options: Mapping[str, tuple[str, object]]) -> Iterator[dict[str, str]]:
    """The environment of a build, in which the values of `options` replace variables, unless they are empty.

    `options` are the variables, each with an option and its value. Errors name the option for the variable.
    """
    given = {name: (option, str(value)) for name, (option, value) in options.items() if value}
    try:
        yield {**os.environ, **{name: value for name, (_, value) in given.items()}}
    except BuildError as error:
        error.where, _ = given.get(error.where, (error.where, ""))
        raise
