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
_LISTS = ("path", "path_hooks")


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
            raise CompilationError(f"{what}: {error.problem}", where=where, remedy=error.remedy) from None
        except BaseException as error:  # this process goes on to compile others
            restore()
            raise CompilationError(f"{what}: {shorten_output(describe(error))}", where=where) from None
        finally:
            restore()


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
