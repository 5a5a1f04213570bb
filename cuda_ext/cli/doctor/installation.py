"""This package itself, the interpreter that it runs in, and what it reaches CUDA through."""

from __future__ import annotations

import importlib
import platform
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import cuda_ext
from cuda_ext.cli.doctor.finding import Finding, note, ok

__all__ = ["findings"]

_LAUNCH = "cuda_ext.runtime.launch._launch"


def findings() -> Iterator[Finding]:
    directory = Path(cuda_ext.__file__).parent
    facts = {"version": cuda_ext.__version__, "place": str(directory)}
    yield ok("cuda-ext", f"{cuda_ext.__version__}, in {directory}", facts=facts)
    python = f"{platform.python_implementation()} {platform.python_version()}"
    system = f"{platform.system()} {platform.machine()}"
    yield ok("Python", f"{python}, {system}, {sys.executable}", facts={"version": platform.python_version()})
    try:
        from cuda.bindings import __version__ as bindings
    except ImportError:
        pass  # without it there is no driver, which is told there
    else:
        yield ok("cuda-bindings", str(bindings), facts={"version": str(bindings)})
    yield _launcher()


def _launcher() -> Finding:
    """Whether launches go through C."""
    command = "pip install --force-reinstall --no-deps --no-binary cuda-ext cuda-ext"
    remedy = "with a C compiler installed"
    try:
        importlib.import_module(_LAUNCH)
    except ImportError as error:
        reason = str(error) if find_spec(_LAUNCH) else "there was no C compiler when this was installed"
        text = f"in Python, which is slower: {reason}"
        return note("launches", text, remedy, command, facts={"in_c": False})
    return ok("launches", "in C", facts={"in_c": True})
