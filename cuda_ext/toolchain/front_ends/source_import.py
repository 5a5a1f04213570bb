"""Import the Python source of a translation unit, with those files of the project that it can import.

They are written to a directory of their own first, so that a product depends on nothing else of the project,
and its bytes do not depend on where the project lies.
"""

from __future__ import annotations

import atexit
import importlib
import posixpath
import shutil
import sys
import tempfile
import traceback
from pathlib import Path
from types import ModuleType

from cuda_ext.compiler.translation_unit import TranslationUnit
from cuda_ext.errors import CompilationError

__all__ = ["import_source", "scratch_directory"]

_imported: dict[str, ModuleType] = {}
_directories: list[str] = []


def import_source(unit: TranslationUnit) -> ModuleType:
    """Import the source of `unit`, once per process. Raises :class:`CompilationError`."""
    if unit.sha256 not in _imported:
        _forget()
        directory = scratch_directory()
        _directories.append(f"{directory}/")
        for name, content in {**unit.headers, unit.name: unit.source}.items():
            file = Path(directory, name)
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(content)
        path = [f"{directory}/src", directory]
        sys.path[:0] = path
        importlib.invalidate_caches()
        try:
            name = posixpath.splitext(unit.name.removeprefix("src/"))[0].replace("/", ".")
            _imported[unit.sha256] = importlib.import_module(name)
        except (Exception, SystemExit) as error:
            raise CompilationError(_describe(error, directory), where=unit.name) from None
        finally:
            sys.path[:] = [each for each in sys.path if each not in path]
    return _imported[unit.sha256]


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


def _describe(error: BaseException, directory: str) -> str:
    """What happened, and where in the project."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if frame.filename.startswith(directory)]
    if isinstance(error, SyntaxError) and error.filename and error.filename.startswith(directory):
        return f"cannot be imported: {error.msg} (line {error.lineno})"
    place = f" ({own[-1].filename.removeprefix(directory)[1:]}, line {own[-1].lineno})" if own else ""
    return f"cannot be imported: {type(error).__name__}: {error}{place}"
