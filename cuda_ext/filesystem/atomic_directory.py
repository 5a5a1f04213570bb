"""Replace files and directories atomically.

The old state stays until all new files are written. A writer that is killed, or that runs out of space,
leaves the old state; the next writer removes its remains.
"""

from __future__ import annotations

import contextlib
import errno
import glob
import os
import re
import shutil
import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from cuda_ext.filesystem.inner_path import is_inner_path
from cuda_ext.filesystem.locks import lock
from cuda_ext.filesystem.regular_file import read_file

_SUFFIX = ".cuda_ext"
_REMAINS = re.compile(rf"\..+\.[a-z0-9_]+{re.escape(_SUFFIX)}")


def replace_file(path: Path, content: bytes) -> bool:
    """Write `content` to `path` atomically, unless that is its content already; return whether it was not.

    Raises :class:`OSError`.
    """
    with contextlib.suppress(OSError):
        if read_file(str(path)) == content:
            return False
    path.parent.mkdir(parents=True, exist_ok=True)
    aside = path.with_name(f".{path.name}.{os.urandom(4).hex()}{_SUFFIX}")
    try:
        with aside.open("xb") as file:  # which follows no link
            file.write(content)
        aside.replace(path)
    except OSError as error:
        with contextlib.suppress(OSError):
            aside.unlink()
        error.filename, error.filename2 = str(path), None  # not the temporary file
        raise
    return True


def replace_directory(
    directory: Path, files: Mapping[str, bytes], check: Callable[[Path], None] = lambda _: None
) -> None:
    """Make `directory` contain exactly `files`, by their paths within it. Raises :class:`OSError`.

    A path that leads out of the directory is an error. Only a directory is ever replaced. `check` may inspect
    the old directory, while no other process writes, and raise an error to keep it. On Windows, and on file
    systems that cannot exchange two directories, there is a moment with neither the old nor the new
    directory.
    """
    import tempfile  # slow to import

    for name in files:
        if not is_inner_path(name):
            raise OSError(errno.EINVAL, f"{name!r} is not a path within it", str(directory))
    parent = directory.parent
    parent.mkdir(parents=True, exist_ok=True)
    with lock(parent) as is_locked:
        if is_locked:
            _remove_all(parent.glob(f".{glob.escape(directory.name)}.*{_SUFFIX}"))
        check(directory)
        if os.path.lexists(directory) and not directory.is_dir():
            raise NotADirectoryError(errno.ENOTDIR, "is not a directory", str(directory))
        if _holds(directory, files):
            return
        prefix = f".{directory.name}."
        with tempfile.TemporaryDirectory(_SUFFIX, prefix, parent, ignore_cleanup_errors=True) as aside:
            fresh = Path(aside, "new")
            fresh.mkdir()
            for name, content in files.items():
                path = fresh / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(content)
            _publish(fresh, directory, Path(aside, "old"))


def remove_remains(directory: Path) -> None:
    """Remove the remains of killed writers anywhere below `directory`, where no process may write."""
    _remove_all(directory.rglob(f".*{_SUFFIX}"))


def _remove_all(paths: Iterable[Path]) -> None:
    """Remove the `paths` that :func:`replace_directory` created; their names and contents show it."""
    for path in list(paths):
        is_named = _REMAINS.fullmatch(path.name) and path.is_dir() and not path.is_symlink()
        if is_named and {inner.name for inner in path.iterdir()} <= {"new", "old"}:
            shutil.rmtree(path, ignore_errors=True)


def _holds(directory: Path, files: Mapping[str, bytes]) -> bool:
    """Return True if `directory` contains exactly `files`."""
    try:
        if sum(len(names) for _, _, names in os.walk(directory)) != len(files):
            return False
        return all(read_file(f"{directory}/{name}") == content for name, content in files.items())
    except OSError:
        return False


def _publish(fresh: Path, directory: Path, old: Path) -> None:
    if not os.path.lexists(directory):
        fresh.rename(directory)
    elif not _exchange(fresh, directory):
        # Directories of a container image cannot be renamed; a move copies them.
        shutil.move(directory, old)
        try:
            fresh.rename(directory)
        except OSError:
            shutil.move(old, directory)
            raise


def _exchange(one: Path, other: Path) -> bool:
    """Exchange two directories atomically; return False if the system does not support that."""
    import ctypes  # slow to import

    here, exchange = -100, 2
    names = os.fsencode(one), os.fsencode(other)
    try:
        libc = ctypes.CDLL(None)
        if sys.platform == "darwin":
            return bool(libc.renamex_np(*names, exchange) == 0)
        return bool(libc.renameat2(here, names[0], here, names[1], exchange) == 0)
    except (TypeError, OSError, AttributeError):
        return False
