"""A directory of files that appears at once.

What was there before stays until all of the new files are written. A writer that is killed, or that runs
out of space, leaves the old state; its remains are removed by the next one.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import glob
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

__all__ = ["only_writer", "remove_remains", "replace_directory", "replace_file"]

_SUFFIX = ".cuda_ext"


def replace_file(path: Path, content: bytes) -> None:
    """Make `path` a file that holds `content`, at once. One that does is left alone.

    Raises :class:`OSError`.
    """
    with contextlib.suppress(OSError):
        if path.read_bytes() == content:
            return
    path.parent.mkdir(parents=True, exist_ok=True)
    aside = path.with_name(f".{path.name}.{os.getpid()}{_SUFFIX}")
    try:
        aside.write_bytes(content)
        aside.replace(path)
    except OSError as error:
        with contextlib.suppress(OSError):
            aside.unlink()
        error.filename, error.filename2 = str(path), None  # not the one aside, which nobody knows
        raise


def replace_directory(
    directory: Path, files: Mapping[str, bytes], check: Callable[[Path], None] = lambda _: None
) -> None:
    """Make `directory` hold exactly `files`, by their paths within it. Raises :class:`OSError`.

    Only a directory is ever replaced. `check` may look at what is there, while nobody else writes, and raise
    to keep it. On Windows, and on file systems that cannot exchange two directories, there is a moment with
    neither old nor new.
    """
    directory.parent.mkdir(parents=True, exist_ok=True)
    with only_writer(directory.parent) as alone:
        check(directory)
        if os.path.lexists(directory) and not directory.is_dir():
            raise NotADirectoryError(errno.ENOTDIR, "is not a directory", str(directory))
        if alone:
            for remains in directory.parent.glob(f".{glob.escape(directory.name)}.*{_SUFFIX}"):
                shutil.rmtree(remains, ignore_errors=True)
        if _holds(directory, files):
            return
        aside = Path(tempfile.mkdtemp(_SUFFIX, f".{directory.name}.", directory.parent))
        try:
            for name, content in files.items():
                path = aside / "new" / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(content)
            _publish(aside / "new", directory, aside / "old")
        finally:
            shutil.rmtree(aside, ignore_errors=True)


def remove_remains(directory: Path) -> None:
    """Remove what killed writers have left anywhere below `directory`, where nobody writes now."""
    for remains in list(directory.rglob(f".*{_SUFFIX}")):
        shutil.rmtree(remains, ignore_errors=True)


def _holds(directory: Path, files: Mapping[str, bytes]) -> bool:
    """Whether `directory` holds exactly `files` already."""
    try:
        if sum(len(names) for _, _, names in os.walk(directory)) != len(files):
            return False
        return all(Path(directory, name).read_bytes() == content for name, content in files.items())
    except OSError:
        return False


def _publish(fresh: Path, directory: Path, old: Path) -> None:
    if not os.path.lexists(directory):
        fresh.rename(directory)
    elif not _exchange(fresh, directory):
        # A plain rename fails for what a container image brought along; a move copies that.
        shutil.move(directory, old)
        try:
            fresh.rename(directory)
        except OSError:
            shutil.move(old, directory)
            raise


@contextlib.contextmanager
def only_writer(parent: Path) -> Iterator[bool]:
    """Wait until nobody else writes in `parent`; whether the system can tell. A killed process lets go."""
    with contextlib.ExitStack() as stack:
        try:
            import fcntl

            descriptor = os.open(parent, os.O_RDONLY)
            stack.callback(os.close, descriptor)
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        except (ImportError, OSError):
            yield False
        else:
            yield True


def _exchange(one: Path, other: Path) -> bool:
    """Swap two directories in one step; whether the system can."""
    here, exchange = -100, 2
    names = os.fsencode(one), os.fsencode(other)
    try:
        libc = ctypes.CDLL(None)
        if sys.platform == "darwin":
            return bool(libc.renamex_np(*names, exchange) == 0)
        return bool(libc.renameat2(here, names[0], here, names[1], exchange) == 0)
    except (TypeError, OSError, AttributeError):
        return False
