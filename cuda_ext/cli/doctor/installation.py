"""The installed package, the environment variables and the cache, as doctor examines them."""

from __future__ import annotations

import os
import platform
import shutil
import stat
import sys
import time
from collections.abc import Iterator
from importlib.util import find_spec
from itertools import takewhile
from pathlib import Path

import cuda_ext
from cuda_ext.builder.project import Project
from cuda_ext.builder.scheduler.worker_count import worker_count
from cuda_ext.cache.local_store import LocalStore
from cuda_ext.cache.location import read_rights, shared_cache
from cuda_ext.cache.open_store import local_store, why_not_used
from cuda_ext.cli.doctor.findings import Finding, Level
from cuda_ext.cli.doctor.this_project import compiler_choices
from cuda_ext.cli.doctor.versions import python_version, why_not_in_c
from cuda_ext.cli.environment import VARIABLES
from cuda_ext.compiler.architectures import expand, from_cmake
from cuda_ext.errors import BuildError, ConfigError, did_you_mean
from cuda_ext.formats.quantities import format_size
from cuda_ext.time_limit import time_limit
from cuda_ext.toolchain.compilers import CompilerChoice, open_compiler
from cuda_ext.toolchain.cuda_libraries import gpu_capabilities

# Seconds to count entries, of which there may be hundreds of thousands.
_PATIENCE = 0.3
# Bytes that one build may need: NVRTC's headers and a few large images.
_LITTLE = 200 << 20


def examine_installation() -> Iterator[Finding]:
    """This package, the interpreter, cuda-bindings, and the modules in C."""
    directory = Path(cuda_ext.__file__).parent
    facts = {"version": cuda_ext.__version__, "place": str(directory)}
    yield Finding("ok", "cuda-ext", f"{cuda_ext.__version__}, in {directory}", facts=facts)
    facts = {"version": platform.python_version()}
    yield Finding("ok", "Python", f"{python_version()}, {sys.executable}", facts=facts)
    try:
        from cuda.bindings import __version__ as bindings
    except ImportError:
        pass  # compiling takes it, launching does not
    else:
        yield Finding("ok", "cuda-bindings", str(bindings), facts={"version": str(bindings)})
    for subject, module in (("launches", "_launch"), ("driver calls", "_calls")):
        if not (reason := why_not_in_c(module)):
            yield Finding("ok", subject, "in C", facts={"in_c": True})
            continue
        text = f"in Python, which is slower: {reason}"
        command = "pip install --force-reinstall --no-deps --no-binary cuda-ext cuda-ext"
        remedy = "with a C compiler installed"
        yield Finding("note", subject, text, remedy, command, facts={"in_c": False})


def examine_environment() -> Iterator[Finding]:
    """The variables that are set, and misspelled ones of this package."""
    for name in (*VARIABLES, *sorted(os.environ.keys() - VARIABLES.keys())):
        if name not in os.environ:
            continue
        if name in VARIABLES:
            yield _examine_variable(name, os.environ[name])
        elif name.startswith("CUDA_EXT_"):
            remedy = did_you_mean(name, VARIABLES) or "unset it: there is no variable of that name"
            yield Finding("warning", name, "is set, but not used", remedy)  # its value may be a password


def _examine_variable(name: str, value: str) -> Finding:
    shown = f"={shared_cache(os.environ) or value}" if name == "CUDA_EXT_CACHE" else f"={value}"
    try:
        _read_variable(name, value)
    except BuildError as error:
        if error.where == name:  # other findings report a missing home directory or compiler
            return Finding("problem", name, f"{shown}: {error.problem}", error.remedy)
    match name:
        case "CUDA_EXT_JIT" if value == "0":
            return Finding("note", name, f"{shown}: compilation on demand is off", "unset it to turn it on")
        case "CUDA_EXT_JIT" if value not in ("", "1"):
            return Finding("warning", name, f"{shown} has no effect: only 0 has", "write 0, or unset it")
        case "CUDA_EXT_DEBUG" if value not in ("", "0"):
            remedy = "unset it when the fault is found"
            return Finding("note", name, f"{shown}: every launch is checked, and slow", remedy)
        case "CUDA_PATH" | "CUDA_HOME" if value and not Path(value).is_dir():
            return Finding("warning", name, f"{shown}: there is no such directory", "correct it, or unset it")
        case "CUDAARCHS" if "native" in from_cmake(value) and not gpu_capabilities():
            remedy = 'to build here, name architectures instead, such as "all-major" or "sm_90"'
            return Finding("note", name, f"{shown}: this machine has no GPU that native could mean", remedy)
    return Finding("ok", name, f"{shown}: {VARIABLES[name]}")


def _read_variable(name: str, value: str) -> None:
    """Read `value` as a build does. Raises :class:`BuildError`."""
    match name:
        case "CUDA_EXT_CACHE_SIZE":
            local_store(os.environ)
        case "MAX_JOBS":
            worker_count(os.environ)
        case "CUDA_EXT_TIMEOUT":
            time_limit(os.environ)
        case "CUDAARCHS":
            project = Project.load(Path())
            names = from_cmake(value)
            native = gpu_capabilities() if "native" in names else []
            if project is None and not native:  # no build here needs a GPU
                names = [architecture for architecture in names if architecture != "native"]
            for choice in compiler_choices(project) if project else [CompilerChoice()]:
                expand(names, open_compiler(choice, os.environ), name, native)


def examine_cache() -> Iterator[Finding]:
    """Report the cache's directory, whether it can be used, and the free space on its disk."""
    try:
        store = local_store(os.environ)
    except BuildError as error:  # an invalid size; or there is no home directory or no platformdirs
        level: Level = "problem" if isinstance(error, ConfigError) else "warning"
        yield Finding(level, "cache", error.statement, error.remedy)
        return
    directory = Path(store.directory)
    if reason := why_not_used(os.environ):
        facts = {"directory": str(directory)}
        yield Finding("warning" if store.bound else "note", "cache", reason, facts=facts)
    else:
        yield _describe_cache(store)
    if not store.bound:
        return
    yield from _examine_disk(store, directory)
    if url := shared_cache(os.environ):
        # It is not contacted, which may take long.
        if find_spec("fsspec") is None:
            text, command = f"{url} is not used: fsspec is missing", 'pip install "cuda-ext[shared-cache]"'
            yield Finding("warning", "shared cache", text, command=command, facts={"url": url})
        else:
            text = f"{url}, used by builds; not examined here"
            yield Finding("ok", "shared cache", text, facts={"url": url})


def _describe_cache(store: LocalStore) -> Finding:
    until = time.monotonic() + _PATIENCE
    files = takewhile(lambda _: time.monotonic() < until, store.files())
    sizes = [file.size for file in files if file.is_entry]
    is_all = time.monotonic() < until
    directory = store.directory
    rights = read_rights(Path(directory))
    created = f"rights {stat.filemode(rights[0])}, owner {rights[1]}" if rights else "created on first use"
    used = f"{'' if is_all else 'more than '}{format_size(sum(sizes))} of {format_size(store.bound)}"
    return Finding(
        "ok",
        "cache",
        f"can be used; {used}, {len(sizes):,} entries",
        details=[directory, created],
        facts={
            "directory": directory,
            "entries": len(sizes),
            "size": sum(sizes),
            "is_all": is_all,
            "bound": store.bound,
        },
    )


def _examine_disk(store: LocalStore, directory: Path) -> Iterator[Finding]:
    """The disk of the cache, which may not exist yet."""
    nearest = next((p for p in (directory, *directory.parents) if p.is_dir()), None)
    try:
        free = shutil.disk_usage(nearest).free if nearest else 0
    except OSError:
        return
    level: Level = "ok"
    remedy = ""
    if free < _LITTLE:
        level = "warning"
        remedy = "free some space, or set CUDA_EXT_CACHE to a directory on another disk"
    elif free < store.bound // 2 and free < 5 << 30:
        level = "note"
        remedy = f"lower the maximum size: set CUDA_EXT_CACHE_SIZE to {max(1, free // 2 >> 30)}G"
    text = f"{format_size(free)} free on the disk of the cache"
    yield Finding(level, "disk", text, remedy, facts={"free": free})
