"""Import the Python source of a translation unit, with the files of the project that it can import.

They are first written to a directory of their own, so that a product depends on nothing else of the project.
Their code objects have file names relative to the project, so that their bytes do not depend on its location.
"""

from __future__ import annotations

import atexit
import importlib
import linecache
import posixpath
import shutil
import sys
import tempfile
import traceback
from importlib.machinery import FileFinder, SourceFileLoader
from importlib.util import decode_source
from pathlib import Path
from types import CodeType, ModuleType
from typing import TYPE_CHECKING

from cuda_ext.compiler.translation_unit import TranslationUnit
from cuda_ext.errors import CompilationError
from cuda_ext.toolchain.front_ends.contained_code import contained

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

_imported: dict[str, ModuleType] = {}
_directories: list[str] = []


def import_source(unit: TranslationUnit) -> ModuleType:
    """Import the source of `unit`, once per process. Raises :class:`CompilationError`."""
    with contained("cannot be imported", unit.name, lambda error: _describe(error, unit)):
        if unit.sha256 not in _imported:
            _forget()
            _imported[unit.sha256] = _import(unit)
        return _imported[unit.sha256]


def _import(unit: TranslationUnit) -> ModuleType:
    directory = scratch_directory()
    _directories.append(f"{directory}/")
    for name, content in {**unit.headers, unit.name: unit.source}.items():
        file = Path(directory, name)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content)
    sys.path[:0] = [f"{directory}/src", directory]
    sys.path_hooks.insert(0, _find)
    importlib.invalidate_caches()
    name = posixpath.splitext(unit.name.removeprefix("src/"))[0].replace("/", ".")
    module = importlib.import_module(name)
    if not (module.__file__ or "").startswith(directory):
        raise CompilationError(f"another module is called {name}, too", remedy="rename the source")
    return module


def scratch_directory() -> str:
    """Create a directory that lasts as long as this process."""
    directory = tempfile.mkdtemp(prefix="cuda_ext-")
    atexit.register(shutil.rmtree, directory, ignore_errors=True)
    return directory


def _forget() -> None:
    """Forget the modules of other units, which may have the same names."""
    for name, module in list(sys.modules.items()):
        if (getattr(module, "__file__", None) or "").startswith(tuple(_directories)):
            del sys.modules[name]
    _imported.clear()


class _Loader(SourceFileLoader):
    """Compiles a file under its name in the project, under which messages also show its lines."""

    def source_to_code(self, data: bytes, path: str, *, _optimize: int = -1) -> CodeType:  # type: ignore[override]
        name = next(path.removeprefix(each) for each in _directories if path.startswith(each))
        code = super().source_to_code(data, name, _optimize=_optimize)
        linecache.cache[name] = len(data), None, decode_source(data).splitlines(keepends=True), name
        return code

    def set_data(self, path: str, data: ReadableBuffer, *, _mode: int = 0o666) -> None:
        """Write no bytecode: code that is read from it has the path of the file itself."""


def _find(path: str) -> FileFinder:
    """Find modules in the directories of sources; an entry of ``sys.path_hooks``."""
    if not f"{path}/".startswith(tuple(_directories)):
        raise ImportError(path)
    return FileFinder(path, (_Loader, [".py"]))


def _describe(error: BaseException, unit: TranslationUnit) -> str:
    """Return the exception's message and the project line that raised it."""
    names = unit.name, *unit.headers
    own = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename in names]
    if isinstance(error, SyntaxError) and error.filename in names:
        return f"{error.msg} (line {error.lineno})"
    place = f" ({own[-1].filename}, line {own[-1].lineno})" if own else ""
    said = "".join(traceback.format_exception_only(error)).strip()
    return f"{said}{place}"
