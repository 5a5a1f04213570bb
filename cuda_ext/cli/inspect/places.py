"""Find modules of kernels in wheels, directories and installed packages.

Nothing is imported: the finders of this interpreter resolve import names package by package.
"""

from __future__ import annotations

import errno
import json
import os
import posixpath
import stat
import sys
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from importlib.machinery import ModuleSpec
from itertools import islice
from pathlib import Path
from typing import Any

from cuda_ext.cli.terminal import Failure
from cuda_ext.facts.manifest import FILE_NAME
from cuda_ext.filesystem.regular_file import read_of_package
from cuda_ext.formats.quantities import format_size

# The largest file that is read; it is read into memory as a whole.
_MOST = 1 << 30


@dataclass(frozen=True, slots=True)
class Package:
    """A module of kernels: a directory with a manifest. ``module`` is the name in it; empty if it is damaged.

    ``read`` returns the content of a file, ``size`` the number of its bytes as stored. Both raise
    :class:`OSError`, or :class:`Failure` if it is damaged or not a regular file.
    """

    place: str
    module: str
    read: Callable[[str], bytes]
    size: Callable[[str], int]


def read_file(path: Path) -> bytes:
    """Read a regular file. Raises :class:`OSError`, or :class:`Failure` if it is not one, or too large."""
    status = path.stat()
    if not stat.S_ISREG(status.st_mode):
        raise Failure("is neither a regular file nor a directory", where=str(path), remedy="name one of them")
    _check_size(str(path), status.st_size)
    return path.read_bytes()


def packages_in_wheel(wheel: zipfile.ZipFile) -> Iterator[Package]:
    """Find the modules in an open wheel, where files are compressed."""

    def entry(place: str, file: str) -> zipfile.ZipInfo:
        path = posixpath.join(place, file)
        try:
            return wheel.getinfo(path)
        except KeyError:
            raise FileNotFoundError(errno.ENOENT, "is not in the wheel", path) from None

    def read(place: str, file: str) -> bytes:
        member = entry(place, file)
        where = f"{wheel.filename}: {member.filename}"
        _check_size(where, member.file_size)
        try:
            return wheel.read(member)
        except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError) as error:
            raise Failure(
                f"cannot be read: {error}", where=where, remedy="build or download it again"
            ) from None

    def size(place: str, file: str) -> int:
        return entry(place, file).compress_size

    for name in sorted(wheel.namelist()):
        place, _, file = name.rpartition("/")
        if file == FILE_NAME and (package := _package_at(place, partial(read, place), partial(size, place))):
            yield package


def packages_below(
    directory: Path,
    is_searched: Callable[[str], bool] = lambda name: not name.startswith((".", "__pycache__")),
    most: int | None = None,
) -> Iterator[Package]:
    """Find the modules in and below `directory`.

    Of the directories in it, at most `most` whose names `is_searched` accepts are searched; by default all
    that are not hidden.
    """
    for parent, below, files in islice(os.walk(directory), most):
        place = Path(parent).relative_to(directory).as_posix()
        if FILE_NAME in files and (package := package_in(directory, place)):
            yield package
            below.clear()
        below[:] = sorted(filter(is_searched, below))


def package_in(directory: Path, place: str) -> Package | None:
    """Return the module at `place` in `directory`, or ``None``."""
    path = directory / place
    return _package_at(place, lambda file: read_file(path / file), lambda file: (path / file).stat().st_size)


def packages_of_module(name: str) -> Iterator[Package]:
    """Find the module of kernels of that import name, or those in the package of that name."""
    spec = _find_spec(name)
    if spec is None:
        raise Failure(
            "there is no such file, and no such module",
            where=name,
            remedy="name a wheel, a directory, a fatbin, a cubin or PTX, or install the package that has it",
        )
    if spec.origin and spec.has_location and spec.submodule_search_locations is not None:
        loader: Any = spec.loader
        directory = os.path.dirname(spec.origin)  # noqa: PTH120 - it may be within an archive

        def read(file: str) -> bytes:
            try:
                return read_of_package(loader, os.path.join(directory, file))  # noqa: PTH118 - as above
            except OSError as error:
                if not error.errno:  # of zipimport
                    raise FileNotFoundError(errno.ENOENT, "is not in the archive", file) from None
                raise

        with suppress(AttributeError, OSError):  # another kind of module, or an ordinary package
            read(FILE_NAME)
            if package := _package_at(".", read, lambda file: len(read(file))):
                yield package
                return
    for place in spec.submodule_search_locations or ():
        yield from packages_below(Path(place))


def _check_size(path: str, count: int) -> None:
    if count > _MOST:
        raise Failure(
            f"has {format_size(count)}, and at most {format_size(_MOST)} are read",
            where=path,
            remedy="name the file with the compiled code, which is smaller",
        )


def _find_spec(name: str) -> ModuleSpec | None:
    """Find how `name` would be imported, without running the code of its parents."""
    parent, _, last = name.rpartition(".")
    path = None
    if parent:
        above = _find_spec(parent)
        if above is None or above.submodule_search_locations is None:
            return None
        path = list(above.submodule_search_locations)
    for finder in sys.meta_path:
        try:
            spec = finder.find_spec(name, path)
        except KeyError:  # a nested namespace, whose parent would have to be imported
            spec = ModuleSpec(name, None, is_package=True)
            spec.submodule_search_locations = [str(Path(place, last)) for place in path or ()]
        if spec:
            return spec
    return None


def _package_at(place: str, read: Callable[[str], bytes], size: Callable[[str], int]) -> Package | None:
    """Return the module of kernels at `place`, even a damaged one."""
    with suppress(OSError, Failure, ValueError, RecursionError):  # other programs have a manifest.json, too
        match json.loads(read(FILE_NAME)):
            case {"schema": int(), "module": str(module), "units": list()}:
                return Package(place, module, read, size)
    with suppress(OSError, Failure):
        if b"cuda_ext.runtime.module" in read("__init__.py"):
            return Package(place, "", read, size)
    return None
