"""Run code of a source in a process that compiles others after it, and restore the state that it changes.

Any exception of this code becomes one error.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from cuda_ext.errors import CompilationError
from cuda_ext.toolchain.diagnostics import shorten_output

_lock = threading.Lock()
_STREAMS = ("stdin", "stdout", "stderr")
_LISTS = ("path", "path_hooks", "meta_path")


class MissingImportError(ImportError):
    """A source needs a package that cannot be imported; ``where`` is the line of its import."""

    def __init__(self, where: str, module: str, error: ImportError) -> None:
        self.where, self.problem, self.remedy = where, f"imports {module}: {error}", ""
        if isinstance(error, ModuleNotFoundError) and f"{module}.".startswith(f"{error.name}."):
            self.problem = f"imports {module}, which is not installed"
            package = module.partition(".")[0]
            self.remedy = f"install {package} for the build, or define what kernels read apart from it"
        super().__init__(where, module, error)  # which a copy is made of, on its way to another process

    def __str__(self) -> str:
        return f"{self.where}: {self.problem}"


@contextmanager
def contained(
    what: str, where: str, describe: Callable[[BaseException], str] = lambda error: str(error).strip()
) -> Iterator[None]:
    """Raise all errors of a block as :class:`CompilationError` of the source `where`, with the text `what`.

    After the block, restore the working directory, the environment, the search path, the streams and the
    recursion limit. Some workers of Dask have several threads; these run such blocks one after another.
    """
    with _lock:
        restore = _remember()
        try:
            yield
        except CompilationError as error:
            if error.where:
                raise
            raise CompilationError(f"{what}: {error.problem}", where=where, remedy=error.remedy) from None
        except BaseException as error:  # this process goes on to compile others
            restore()
            if missing := _find_missing(error):
                raise CompilationError(missing.problem, where=missing.where, remedy=missing.remedy) from None
            raise CompilationError(f"{what}: {shorten_output(describe(error))}", where=where) from None
        finally:
            restore()


def _find_missing(error: BaseException | None) -> MissingImportError | None:
    """Find it behind the exceptions of a front-end."""
    if error is None or isinstance(error, MissingImportError):
        return error
    return _find_missing(error.__cause__ or error.__context__)


def _remember() -> Callable[[], None]:
    """Return a function that restores the current state of this process."""
    directory, environ, limit = Path.cwd(), os.environ, sys.getrecursionlimit()
    variables = dict(environ)
    streams: dict[str, Any] = {name: getattr(sys, name) for name in _STREAMS}
    lists: dict[str, list[Any]] = {name: getattr(sys, name) for name in _LISTS}
    contents = {name: [*each] for name, each in lists.items()}

    def restore() -> None:
        for name, stream in streams.items():
            setattr(sys, name, stream)
        for name, each in lists.items():
            each[:] = contents[name]
            setattr(sys, name, each)
        sys.setrecursionlimit(limit)
        with suppress(OSError):
            os.chdir(directory)
        os.environ = environ  # noqa: B003 - the original object
        if dict(environ) != variables:
            environ.clear()
            environ.update(variables)

    return restore
