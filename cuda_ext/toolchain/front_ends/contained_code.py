"""Code of a source runs in the process that compiles others after it: what it changes is restored.

Whatever it raises is one error.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from cuda_ext.errors import BuildError, CompilationError
from cuda_ext.toolchain.diagnostics import shorten_output

__all__ = ["contained"]

_STREAMS = ("stdin", "stdout", "stderr")
_LISTS = ("path", "path_hooks")


@contextmanager
def contained(
    what: str, where: str, describe: Callable[[BaseException], str] = lambda error: str(error).strip()
) -> Iterator[None]:
    """Raise all errors within as :class:`CompilationError` that say `what` was done with the source `where`.

    Errors of the tool chain are raised as they are. The working directory, the environment, the search path,
    the streams and the recursion limit are as before behind it.
    """
    restore = _remember()
    try:
        yield
    except CompilationError as error:
        raise CompilationError(f"{what}: {error.problem}", where=where, remedy=error.remedy) from None
    except BuildError:
        raise
    except BaseException as error:  # this process compiles on
        restore()
        raise CompilationError(f"{what}: {shorten_output(describe(error))}", where=where) from None
    finally:
        restore()


def _remember() -> Callable[[], None]:
    """The function that restores the state of this process as it is now."""
    directory, environ, limit = Path.cwd(), dict(os.environ), sys.getrecursionlimit()
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
        if dict(os.environ) != environ:
            os.environ.clear()
            os.environ.update(environ)

    return restore
