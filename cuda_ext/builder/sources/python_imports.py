"""Gather the project's files that a Python source imports, like the headers of CUDA C++."""

from __future__ import annotations

import ast
import posixpath
from collections.abc import Iterator
from pathlib import Path

from cuda_ext.errors import BuildError
from cuda_ext.filesystem.regular_file import read_file

# Directories of the project on the import path of its sources.
_ROOTS = ("src", "")


def gather_imports(root: Path, name: str, source: bytes) -> dict[str, bytes]:
    """Read the files below `root` that `source`, the text of the file `name`, imports, directly or not.

    Imports anywhere in a file count. A package's ``__init__.py`` is included only if something imports a name
    of it: packages of kernels need not be importable as a whole. Raises :class:`BuildError` for invalid
    syntax.
    """
    found: dict[str, bytes] = {}
    waiting = [(name, source)]
    while waiting:
        path, text = waiting.pop()
        for module in _imports(path, text):
            for file in _files(root, module):
                if file not in found and file != name:
                    found[file] = read_file(str(root / file))
                    waiting.append((file, found[file]))
    return dict(sorted(found.items()))


def _imports(path: str, source: bytes) -> Iterator[str]:
    """Yield the modules that a file may import, as paths below a root and without suffix."""
    try:
        tree = ast.parse(source)
    except SyntaxError as error:
        where = f"{path}:{error.lineno}" if error.lineno else path
        raise BuildError(f"is no Python: {error.msg}", where=where, remedy="correct it") from None
    except ValueError as error:
        raise BuildError(f"is no Python: {error}", where=path, remedy="correct it") from None
    except (MemoryError, RecursionError):
        raise BuildError("is no Python: it nests too deep", where=path, remedy="divide it") from None
    package = posixpath.dirname(_below_root(path))
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name.replace(".", "/")
        elif isinstance(node, ast.ImportFrom):
            base = package
            for _ in range(node.level - 1):
                base = posixpath.dirname(base)
            start = [base] if node.level and base else []
            module = "/".join([*start, *([node.module.replace(".", "/")] if node.module else [])])
            yield module
            for alias in node.names:
                yield posixpath.join(module, alias.name)


def _below_root(path: str) -> str:
    for root in _ROOTS:
        if root and path.startswith(f"{root}/"):
            return path.removeprefix(f"{root}/")
    return path


def _files(root: Path, module: str) -> Iterator[str]:
    """Yield the file of `module` below `root`."""
    for directory in _ROOTS:
        for file in (f"{module}.py", f"{module}/__init__.py"):
            path = posixpath.join(directory, file)
            if module and (root / path).is_file():
                yield path
                return
