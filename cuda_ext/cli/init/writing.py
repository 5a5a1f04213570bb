"""New files: all of them or none, and never in the place of another."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from pathlib import Path

from cuda_ext.cli.failure import Failure

__all__ = ["write_files"]


def write_files(directory: Path, files: Mapping[str, str]) -> None:
    """Write `files`, by their paths in `directory`, which is made if it is not there.

    Raises :class:`Failure` if any of them is there already, or cannot be written; then nothing is changed.
    """
    if directory.exists() and not directory.is_dir():
        raise Failure(f"{directory}: is a file; name a directory")
    if there := [name for name in files if os.path.lexists(directory / name)]:
        listed = "".join(f"\n  {directory / name}" for name in there)
        raise Failure(
            f"{directory}: nothing was written, since these are there; move them, or name another "
            f"directory:{listed}"
        )
    with ExitStack() as written:
        try:
            for name, text in files.items():
                _write(directory / name, text, written)
        except OSError as error:
            place = error.filename or directory
            raise Failure(f"{place}: {error.strerror}; nothing was written") from None
        written.pop_all()


def _write(path: Path, text: str, undo: ExitStack) -> None:
    """Write one file, and say in `undo` how it goes away again, with the directories that were made."""
    for parent in reversed(path.parents):
        if not parent.exists():
            if parent.is_symlink():
                target = os.readlink(parent)  # noqa: PTH115 - as it was written
                raise Failure(
                    f"{parent}: is a link to {target}, which is not there; make that, or remove the link; "
                    "nothing was written"
                )
            parent.mkdir()
            undo.callback(_remove, parent, directory=True)
    with path.open("x", encoding="utf-8", newline="\n") as file:
        undo.callback(_remove, path)
        file.write(text)


def _remove(path: Path, directory: bool = False) -> None:
    with suppress(OSError):
        path.rmdir() if directory else path.unlink()
