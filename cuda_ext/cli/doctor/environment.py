"""The environment: what is set there, and what nobody heeds."""

from __future__ import annotations

import difflib
import os
from collections.abc import Iterator
from pathlib import Path

from cuda_ext.cli.cache_contents import shared_cache
from cuda_ext.cli.doctor.finding import Finding, note, ok, problem, warning
from cuda_ext.cli.environment import VARIABLES
from cuda_ext.errors import BuildError

__all__ = ["findings"]


# Of cuda-bindings, which then calls other functions than the launches in C know.
_PER_THREAD = "CUDA_PYTHON_CUDA_PER_THREAD_DEFAULT_STREAM"


def findings() -> Iterator[Finding]:
    """All that are set; of ours, those too that nobody knows."""
    for name in (*VARIABLES, *sorted(os.environ.keys() - VARIABLES.keys())):
        value = os.environ.get(name)
        if value is None:
            continue
        if name in VARIABLES:
            yield _known(name, value)
        elif name.startswith("CUDA_EXT_"):
            close = difflib.get_close_matches(name, VARIABLES, n=1)
            remedy = f"did you mean {close[0]}?" if close else "unset it: nothing of that name is heeded"
            # Its value may be anything, such as a password.
            yield warning(name, "is set, and nobody reads it", remedy)
    if os.environ.get(_PER_THREAD, "0") != "0":
        text = f"={os.environ[_PER_THREAD]}: launches go through cuda-bindings, which is slower"
        yield note(_PER_THREAD, text, "unset it, unless it is needed")


def _known(name: str, value: str) -> Finding:
    shown = f"={shared_cache(os.environ) or value}" if name == "CUDA_EXT_CACHE" else f"={value}"
    text = f"{shown}: {VARIABLES[name]}"
    match name:
        case "CUDA_EXT_CACHE_SIZE" | "MAX_JOBS":
            if refused := _refused(name):
                return problem(name, f"{shown}: {refused}")
        case "CUDA_EXT_JIT" if value == "0":
            return note(name, f"{shown}: nothing is compiled on demand", "unset it to have that back")
        case "CUDA_EXT_JIT" if value not in ("", "1"):
            return warning(name, f"{shown} has no effect: only 0 has", "write 0, or unset it")
        case "CUDA_EXT_DEBUG" if value not in ("", "0"):
            remedy = "unset it when the fault is found"
            return note(name, f"{shown}: every launch is slow and suspicious", remedy)
        case "CUDA_PATH" | "CUDA_HOME" if value and not Path(value).is_dir():
            return warning(name, f"{shown}: there is no such directory", "correct it, or unset it")
    return ok(name, text)


def _refused(name: str) -> str:
    """Why the value of `name` cannot be used."""
    from cuda_ext.builder.scheduler.local_pool import worker_count
    from cuda_ext.cache.open_store import local_store

    try:
        if name == "MAX_JOBS":
            worker_count(os.environ)
        else:
            local_store(os.environ)
    except BuildError as error:
        return str(error) if str(error).startswith(name) else ""
    return ""
