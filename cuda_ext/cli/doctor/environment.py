"""The variables of the environment that are heeded, and what they do."""

from __future__ import annotations

import difflib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from cuda_ext.cli.cache.place import shared_cache
from cuda_ext.cli.doctor.finding import Finding, note, ok, problem, told, warning
from cuda_ext.errors import BuildError

__all__ = ["VARIABLES", "Variable", "findings"]


@dataclass(frozen=True, slots=True)
class Variable:
    """``does`` is what setting it does; ``is_ours`` tells those that nobody else reads."""

    name: str
    does: str

    @property
    def is_ours(self) -> bool:
        return self.name.startswith("CUDA_EXT_")


VARIABLES = (
    Variable("CUDA_EXT_CACHE", "the cache: a directory, or the URL of one that machines share"),
    Variable("CUDA_EXT_CACHE_SIZE", "the bound of the cache, such as 5G; 0 turns it off"),
    Variable("CUDA_EXT_JIT", "0 turns compilation on demand off"),
    Variable("CUDA_EXT_DEBUG", "1 looks at every launch before and after it, which is slow"),
    Variable("CUDA_EXT_REPORT", "where a build writes an HTML page about itself"),
    Variable("CUDA_EXT_TRACE", "where a build writes a trace for Perfetto"),
    Variable("CUDA_EXT_DASK_SCHEDULER", 'the scheduler of builds with executor = "dask"'),
    Variable("CUDAARCHS", "architectures that replace those of the project"),
    Variable("MAX_JOBS", "how many processes compile at once"),
    Variable("CUDA_PATH", "a CUDA toolkit"),
    Variable("CUDA_HOME", "a CUDA toolkit, after CUDA_PATH"),
    Variable("NVCC_CCBIN", "the host compiler of nvcc"),
    Variable("CUDA_VISIBLE_DEVICES", "the GPUs that processes see"),
)
# Of cuda-bindings, which then calls other functions than the launches in C know.
_PER_THREAD = "CUDA_PYTHON_CUDA_PER_THREAD_DEFAULT_STREAM"


def findings() -> Iterator[Finding]:
    """All that are set; of ours, those too that nobody knows."""
    known = {variable.name: variable for variable in VARIABLES}
    for name in (*known, *sorted(os.environ.keys() - known.keys())):
        value = os.environ.get(name)
        if value is None:
            continue
        if variable := known.get(name):
            yield _known(variable, value)
        elif name.startswith("CUDA_EXT_"):
            close = difflib.get_close_matches(name, [v.name for v in VARIABLES if v.is_ours], n=1)
            remedy = f"did you mean {close[0]}?" if close else "nothing of that name is heeded"
            yield warning(name, f"={value}: nobody reads it", remedy, f"unset {name}")
    if os.environ.get(_PER_THREAD, "0") != "0":
        text = f"={os.environ[_PER_THREAD]}: launches go through cuda-bindings, and take about 0.7 µs longer"
        yield note(_PER_THREAD, text, "unless it is needed", f"unset {_PER_THREAD}")


def _known(variable: Variable, value: str) -> Finding:
    name = variable.name
    shown = f"={shared_cache(os.environ) or value}" if name == "CUDA_EXT_CACHE" else f"={value}"
    text = f"{shown}: {variable.does}"
    match name:
        case "CUDA_EXT_CACHE_SIZE" | "MAX_JOBS":
            if refused := _refused(name):
                return problem(name, *told(refused.removeprefix(f"{name}: ")))
        case "CUDA_EXT_JIT" if value == "0":
            return note(name, f"{shown}: nothing is compiled on demand", "to have it back", f"unset {name}")
        case "CUDA_EXT_JIT" if value not in ("", "1"):
            return warning(name, f"{shown} has no effect: only 0 has", "write 0, or unset it")
        case "CUDA_EXT_DEBUG" if value not in ("", "0"):
            remedy = "when the fault is found"
            return note(name, f"{shown}: every launch is slow and suspicious", remedy, f"unset {name}")
        case "CUDA_PATH" | "CUDA_HOME" if value and not Path(value).is_dir():
            return warning(name, f"{shown}: there is no such directory", "correct it, or unset it")
    return ok(name, text)


def _refused(name: str) -> str:
    """Why the value of `name` cannot be used."""
    from cuda_ext.build.workers import worker_count
    from cuda_ext.store import local_store

    try:
        if name == "MAX_JOBS":
            worker_count(os.environ)
        else:
            local_store(os.environ)
    except BuildError as error:
        return str(error) if str(error).startswith(name) else ""
    return ""
