"""Code of a source runs in the process that compiles others after it: what it changes is restored.

Whatever it raises is one error.
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
    """Raise all errors within as :class:`CompilationError` that say `what` was done with the source `where`.

    The working directory, the environment, the search path, the streams and the recursion limit are as before
    behind it. Threads, which some workers of Dask have, wait for each other.
    """
    with _lock:
        restore = _remember()
        try:
            yield
        except CompilationError as error:
            raise CompilationError(f"{what}: {error.problem}", where=where, remedy=error.remedy) from None
        except BaseException as error:  # this process compiles on
            restore()
            raise CompilationError(f"{what}: {shorten_output(describe(error))}", where=where) from None
        finally:
            restore()


def _remember() -> Callable[[], None]:
    """The function that restores the state of this process as it is now."""
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
        os.environ = environ  # noqa: B003 - the object that was there
        if dict(environ) != variables:
            environ.clear()
            environ.update(variables)

    return restore
