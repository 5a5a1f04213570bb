"""Python sources of a module: functions of Triton and cuTile that are compiled on demand.

A child process compiles them: it imports the source and the front-end, which would change this process.
"""

from __future__ import annotations

import json
import os
import pickle
import sys
import tempfile
from collections.abc import Mapping
from functools import cache, cached_property
from pathlib import Path
from typing import Any, NamedTuple

from cuda_ext.compiler.front_ends.instantiation import Instantiation, parse_instantiation
from cuda_ext.compiler.front_ends.python_functions import PythonFunction, find_functions
from cuda_ext.compiler.translation_unit import SourceKind
from cuda_ext.errors import BuildError, CompilationError
from cuda_ext.facts.manifest import Manifest
from cuda_ext.facts.sources import Source
from cuda_ext.runtime.jit.request import Entry, Request
from cuda_ext.toolchain import process
from cuda_ext.toolchain.diagnostics import shorten_output
from cuda_ext.toolchain.identity import identity_of

_START = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]); "
    "from cuda_ext.runtime.jit.python_sources import answer; answer(sys.argv[2])"
)


class PythonSource:
    """An embedded Python source: its `text`, and `units`, the indices of its units by their sources."""

    def __init__(self, name: str, text: bytes, units: Mapping[int, Source]) -> None:
        self.name = name
        self.functions: dict[str, PythonFunction] = {each.name: each for each in find_functions(text)}
        self.units = units

    @cached_property
    def front_end(self) -> SourceKind:
        decorators = [name for function in self.functions.values() for name in function.decorators]
        return "cutile" if any(name.startswith("cuda.tile.") for name in decorators) else "triton"

    def built(self, function: str) -> list[Instantiation]:
        """Return the built instantiations of `function`."""
        texts = (text for source in self.units.values() for text in source.instantiate)
        return [each for each in map(parse_instantiation, texts) if each.function == function]


def find_sources(manifest: Manifest, texts: Mapping[str, bytes]) -> dict[str, PythonSource]:
    """Find the Python sources of `manifest` that are among `texts`, the embedded files."""
    units: dict[str, dict[int, Source]] = {}
    for number, unit in enumerate(manifest.units):
        for source in unit.sources:
            if source.name.endswith(".py") and source.name in texts:
                units.setdefault(source.name, {})[number] = source
    return {name: PythonSource(name, texts[name], own) for name, own in units.items()}


def front_end_compiler(kind: SourceKind) -> Any:
    """Return the compiler of this kind; nothing is imported before it compiles."""
    from cuda_ext.toolchain.compilers import CompilerChoice, open_compiler

    return open_compiler(CompilerChoice(kind), os.environ)


@cache
def front_end_identity(kind: SourceKind) -> str:
    """Return the identity of the installed front-end, by the ends of its files.

    Raises :class:`~cuda_ext.errors.ToolchainError` if it is not installed.
    """
    compiler = front_end_compiler(kind)
    return identity_of(f"{kind} {compiler.version}", compiler.files(), digest=lambda _: None)


class _Task(NamedTuple):
    request: Request
    texts: Mapping[str, bytes]
    front_end: SourceKind


def compile_apart(request: Request, texts: Mapping[str, bytes], front_end: SourceKind) -> Entry:
    """Compile `request` in a child process; `texts` are the embedded Python files by name.

    Raises :class:`~cuda_ext.errors.BuildError`.
    """
    with tempfile.TemporaryDirectory(prefix="cuda_ext-") as directory:
        Path(directory, "task").write_bytes(pickle.dumps(_Task(request, texts, front_end)))
        command = [sys.executable, "-P", "-c", _START, json.dumps(sys.path), directory]
        done = process.run(command, environ=os.environ, compiles=str(request))
        answer = Path(directory, "answer")
        if not answer.exists():
            raise CompilationError(
                f"the process that compiles it ended with exit code {done.exit_code}: "
                f"{shorten_output(done.output)}",
                where=str(request),
            )
        entry, error = pickle.loads(answer.read_bytes())  # noqa: S301 - by the child process
    if error:
        raise error
    result: Entry = entry
    return result


def answer(directory: str) -> None:
    """Do the task in `directory`, in the child process, and write the entry or the error there."""
    from cuda_ext.runtime.jit.compile_request import compile_request

    task: _Task = pickle.loads(Path(directory, "task").read_bytes())  # noqa: S301 - by the parent process
    result: tuple[Entry | None, BuildError | None]
    compiler = front_end_compiler(task.front_end)
    try:
        result = compile_request(task.request, task.texts, compiler, task.front_end), None
    except BuildError as error:
        result = None, error
    Path(directory, "answer").write_bytes(pickle.dumps(result))
