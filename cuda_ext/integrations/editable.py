"""Compare a package of an editable install with its sources when it is imported.

With ``editable-rebuild = true`` changed sources are compiled; otherwise the import warns. The recorded state
of the sources is compared with the current state, without loading the build.
"""

# ruff: noqa: PTH113, PTH118, PTH120 - pathlib is not loaded if nothing has changed

from __future__ import annotations

import os
import sys

from cuda_ext.builder.editable_record import FILE, has_changed, read_record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def refresh(name: str) -> None:
    """Bring the package `name`, which is being imported, up to date with its sources, or warn of changes.

    Raises :class:`ImportError` if they have changed and cannot be compiled.
    """
    module = sys.modules[name]
    here = os.path.dirname(os.path.realpath(module.__file__ or ""))
    record = _read(here, name)
    directory = _source_directory(name, here, record)
    if directory is None:
        return
    if directory != here:
        record = _read(directory, name)
    if has_changed(record):
        (_rebuild if record["rebuild"] else _warn_of_changes)(name, directory)
    # A strict install links to the former files; there may be new ones now.
    module.__file__, module.__path__ = os.path.join(directory, "__init__.py"), [directory]


def _rebuild(name: str, directory: str) -> None:
    from cuda_ext.builder.editable_package import rebuild
    from cuda_ext.errors import describe_error

    try:
        rebuild(name, directory, lambda: _read(directory, name))
    except ImportError:
        raise
    except Exception as error:
        problem = "its project has changed since it was compiled, and cannot be compiled now"
        message = f"{name}: {problem}:\n{describe_error(error)}"
        raise ImportError(message, name=name, path=directory) from None


def _warn_of_changes(name: str, directory: str) -> None:
    from cuda_ext.builder.editable_package import describe_changes

    problem, remedy = describe_changes(name, directory)
    if problem:
        import warnings

        # Of the frames between this one and the import, Python hides those of importlib.
        warnings.warn(f"{name}: {problem}; {remedy}", stacklevel=4)


def _source_directory(name: str, here: str, record: dict[str, Any]) -> str | None:
    """Return the source directory of the package `name`, which was loaded with its `record` from `here`."""
    root: str = record["root"]
    if name in record["directories"]:
        directory: str = record["directories"][name]
        is_linked = here.startswith(root + os.sep) and os.path.isfile(os.path.join(directory, FILE))
        if here == directory or is_linked:
            return directory
    if not record["rebuild"]:
        return None
    import warnings

    warnings.warn(
        f"{name}: {here} is a copy of a package of an editable install in {root}, and is not kept up to "
        "date; install the project that it lies in",
        stacklevel=2,
    )
    return None


def _read(directory: str, name: str) -> dict[str, Any]:
    """Return the record of the package `name` in `directory`."""
    record = read_record(directory)
    if record is not None:
        return record
    path = os.path.join(directory, FILE)
    raise ImportError(
        f"{name}: {path} is damaged, or of another version of cuda-ext; install the project again",
        name=name,
        path=path,
    )
