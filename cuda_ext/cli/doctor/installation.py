"""The installed package, the environment variables and the cache, as doctor examines them."""

from __future__ import annotations

import importlib
import os
import platform
import shutil
import stat
import sys
import time
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import cuda_ext
from cuda_ext.builder.scheduler.worker_count import worker_count
from cuda_ext.cache.local_store import LocalStore
from cuda_ext.cache.open_store import local_store, why_not_used
from cuda_ext.cli.cache_contents import read_rights, shared_cache
from cuda_ext.cli.doctor.findings import Finding, Level, error_finding
from cuda_ext.cli.environment import VARIABLES
from cuda_ext.errors import BuildError, ConfigError, did_you_mean
from cuda_ext.formats.quantities import format_size

__all__ = ["examine_cache", "examine_environment", "examine_installation"]

_LAUNCH = "cuda_ext.runtime.launch._launch"
# A variable of cuda-bindings: with it, cuda-bindings calls other functions than the launches in C do.
_PER_THREAD = "CUDA_PYTHON_CUDA_PER_THREAD_DEFAULT_STREAM"
# Seconds to count entries, of which there may be hundreds of thousands.
_PATIENCE = 0.3
# Bytes that one build may need: NVRTC's headers and a few large images.
_LITTLE = 200 << 20


def examine_installation() -> Iterator[Finding]:
    """This package, the interpreter, cuda-bindings, and whether launches are compiled."""
    directory = Path(cuda_ext.__file__).parent
    facts = {"version": cuda_ext.__version__, "place": str(directory)}
    yield Finding("ok", "cuda-ext", f"{cuda_ext.__version__}, in {directory}", facts=facts)
    version = platform.python_version()
    python = f"{platform.python_implementation()} {version}, {platform.system()} {platform.machine()}"
    yield Finding("ok", "Python", f"{python}, {sys.executable}", facts={"version": version})
    try:
        from cuda.bindings import __version__ as bindings
    except ImportError:
        pass  # the finding about the driver says so
    else:
        yield Finding("ok", "cuda-bindings", str(bindings), facts={"version": str(bindings)})
    try:
        importlib.import_module(_LAUNCH)
        yield Finding("ok", "launches", "in C", facts={"in_c": True})
    except ImportError as error:
        reason = str(error) if find_spec(_LAUNCH) else "there was no C compiler at installation"
        yield Finding(
            "note",
            "launches",
            f"in Python, which is slower: {reason}",
            "with a C compiler installed",
            "pip install --force-reinstall --no-deps --no-binary cuda-ext cuda-ext",
            facts={"in_c": False},
        )


# The environment.


def examine_environment() -> Iterator[Finding]:
    """The variables that are set, and misspelled ones of this package."""
    for name in (*VARIABLES, *sorted(os.environ.keys() - VARIABLES.keys())):
        value = os.environ.get(name)
        if value is None:
            continue
        if name in VARIABLES:
            yield _examine_variable(name, value)
        elif name.startswith("CUDA_EXT_"):
            remedy = did_you_mean(name, VARIABLES) or "unset it: there is no variable of that name"
            yield Finding("warning", name, "is set, but not used", remedy)  # its value may be a password
    if os.environ.get(_PER_THREAD, "0") != "0":
        text = f"={os.environ[_PER_THREAD]}: launches go through cuda-bindings, which is slower"
        yield Finding("note", _PER_THREAD, text, "unset it, unless it is needed")


def _examine_variable(name: str, value: str) -> Finding:
    shown = f"={shared_cache(os.environ) or value}" if name == "CUDA_EXT_CACHE" else f"={value}"
    match name:
        case "CUDA_EXT_CACHE_SIZE" | "MAX_JOBS":
            try:
                worker_count(os.environ) if name == "MAX_JOBS" else local_store(os.environ)
            except ConfigError as error:
                return error_finding("problem", name, error, prefix=f"{shown}: ")
            except BuildError:
                pass  # the finding about the cache says that there is no place for it
        case "CUDA_EXT_JIT" if value == "0":
            return Finding("note", name, f"{shown}: compilation on demand is off", "unset it to turn it on")
        case "CUDA_EXT_JIT" if value not in ("", "1"):
            return Finding("warning", name, f"{shown} has no effect: only 0 has", "write 0, or unset it")
        case "CUDA_EXT_DEBUG" if value not in ("", "0"):
            remedy = "unset it when the fault is found"
            return Finding("note", name, f"{shown}: every launch is checked, and slow", remedy)
        case "CUDA_PATH" | "CUDA_HOME" if value and not Path(value).is_dir():
            return Finding("warning", name, f"{shown}: there is no such directory", "correct it, or unset it")
    return Finding("ok", name, f"{shown}: {VARIABLES[name]}")


# The cache.


def examine_cache() -> Iterator[Finding]:
    """Where the cache is, whether it can be used, and the free space on its disk."""
    try:
        store = local_store(os.environ)
        reason = why_not_used(os.environ)
    except ConfigError as error:
        yield error_finding("problem", "cache", error)
        return
    except BuildError as error:  # there is no home directory, or platformdirs is missing
        yield error_finding("warning", "cache", error, prefix="none: ")
        return
    directory = store.objects.parent
    if reason:
        level: Level = "warning" if store.bound else "note"
        yield Finding(level, "cache", reason, facts={"directory": str(directory)})
    else:
        yield _describe_cache(store)
    if not store.bound:
        return
    yield from _examine_disk(store, directory)
    if url := shared_cache(os.environ):
        # It is not contacted, which may take long.
        facts = {"url": url}
        if find_spec("fsspec") is None:
            command = 'pip install "cuda-ext[shared-cache]"'
            text = f"{url} is not used: fsspec is missing"
            yield Finding("warning", "shared cache", text, command=command, facts=facts)
        else:
            yield Finding("ok", "shared cache", f"{url}, used by builds; not examined here", facts=facts)


def _describe_cache(store: LocalStore) -> Finding:
    until = time.monotonic() + _PATIENCE
    count = size = 0
    is_all = True
    for file in store.files():
        if file.kind == "entry":
            count, size = count + 1, size + file.size
        if time.monotonic() > until:
            is_all = False
            break
    directory = str(store.objects.parent)
    rights = read_rights(store.objects)
    details = [directory, "created on first use"]
    if rights:
        details = [directory, f"rights {stat.filemode(rights[0])}, owner {rights[1]}"]
    at_least = "" if is_all else "more than "
    text = f"can be used; {at_least}{format_size(size)} of {format_size(store.bound)}, {count:,} entries"
    facts = {"directory": directory, "entries": count, "size": size, "is_all": is_all, "bound": store.bound}
    return Finding("ok", "cache", text, details=details, facts=facts)


def _examine_disk(store: LocalStore, directory: Path) -> Iterator[Finding]:
    """The disk of the cache, which may not exist yet."""
    nearest = next((p for p in (directory, *directory.parents) if p.is_dir()), None)
    try:
        free = shutil.disk_usage(nearest).free if nearest else 0
    except OSError:
        return
    text, facts = f"{format_size(free)} free on the disk of the cache", {"free": free}
    if free < _LITTLE:
        remedy = "free some space, or set CUDA_EXT_CACHE to a directory on another disk"
        yield Finding("warning", "disk", text, remedy, facts=facts)
    elif free < store.bound // 2 and free < 5 << 30:
        remedy = f"lower the maximum size: set CUDA_EXT_CACHE_SIZE to {max(1, free // 2 >> 30)}G"
        yield Finding("note", "disk", text, remedy, facts=facts)
    else:
        yield Finding("ok", "disk", text, facts=facts)
