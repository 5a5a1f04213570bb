"""Where compiled code lies: in wheels, directories and installed packages.

Nothing is imported: import names are followed from package to package by this interpreter's finders alone.
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
from importlib.machinery import ModuleSpec
from pathlib import Path
from typing import Any

from cuda_ext.cli.terminal import Failure
from cuda_ext.formats.quantities import format_size as size
from cuda_ext.manifest import FILE_NAME

__all__ = ["Package", "packages_below", "packages_in_wheel", "packages_of_module", "read_file"]

# Far more than compiled code has; it is read into memory as a whole.
_MOST = 1 << 30


@dataclass(frozen=True, slots=True)
class Package:
    """A directory of files with a manifest. ``size`` tells how large a file is as it lies there.

    Both raise :class:`OSError`, and :class:`Failure` for what is damaged or no file.
    """

    place: str
    read: Callable[[str], bytes]
    size: Callable[[str], int]


def read_file(path: Path) -> bytes:
    """What is in the file at `path`, once it is known to be one, and to have an end.

    Raises :class:`OSError`, and :class:`Failure` for what is not read.
    """
    status = path.stat()
    if not stat.S_ISREG(status.st_mode):
        raise Failure(f"{path}: is neither a file nor a directory; name one of them")
    _check_size(str(path), status.st_size)
    return path.read_bytes()


def _check_size(path: str, count: int) -> None:
    if count > _MOST:
        raise Failure(
            f"{path}: is of {size(count)}, and no more than {size(_MOST)} are read; compiled code is "
            "smaller: name the file that has it"
        )


def packages_in_wheel(wheel: zipfile.ZipFile) -> Iterator[Package]:
    """Those in an open wheel, where files are compressed."""

    def read(path: str) -> bytes:
        try:
            _check_size(f"{wheel.filename}: {path}", wheel.getinfo(path).file_size)
            return wheel.read(path)
        except KeyError:
            raise FileNotFoundError(errno.ENOENT, "is not in the wheel", path) from None
        except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError) as error:
            raise Failure(
                f"{wheel.filename}: {path}: cannot be read: {error}; build or download it again"
            ) from None

    def package(place: str) -> Package:
        return Package(
            place,
            lambda name: read(posixpath.join(place, name)),
            lambda name: wheel.getinfo(posixpath.join(place, name)).compress_size,
        )

    for name in sorted(wheel.namelist()):
        place, _, file = name.rpartition("/")
        if file == FILE_NAME and _is_ours((found := package(place)).read):
            yield found


def packages_below(directory: Path) -> Iterator[Package]:
    """Those in `directory` and below it; what is hidden stays so."""

    def package(place: Path) -> Package:
        return Package(
            place.relative_to(directory).as_posix(),
            lambda name: read_file(place / name),
            lambda name: (place / name).stat().st_size,
        )

    for parent, below, files in os.walk(directory):
        if FILE_NAME in files and _is_ours((found := package(Path(parent))).read):
            yield found
            below.clear()
        below[:] = sorted(name for name in below if not name.startswith((".", "__pycache__")))


def packages_of_module(name: str) -> Iterator[Package]:
    """The module of kernels of that import name, or those in the package of that name."""
    spec = _spec(name)
    if spec is None:
        raise Failure(
            f"{name}: there is no such file, and no such module; name a wheel, a directory, a fatbin, a "
            "cubin or PTX, or install the package that holds the module"
        )
    if spec.origin and spec.has_location:
        loader: Any = spec.loader
        directory = os.path.dirname(spec.origin)  # noqa: PTH120 - it may lie within an archive

        def read(file: str) -> bytes:
            content: bytes = loader.get_data(os.path.join(directory, file))  # noqa: PTH118 - so may this
            return content

        try:
            read(FILE_NAME)
            found = spec.submodule_search_locations is not None and _is_ours(read)
        except (AttributeError, OSError):  # another kind of module, or an ordinary package
            found = False
        if found:
            yield Package(".", read, lambda file: len(read(file)))
            return
    for place in spec.submodule_search_locations or ():
        yield from packages_below(Path(place))


def _spec(name: str) -> ModuleSpec | None:
    """How `name` would be imported, if it is there; the code of its parents is not run for that."""
    parent, _, last = name.rpartition(".")
    path = None
    if parent:
        above = _spec(parent)
        if above is None or above.submodule_search_locations is None:
            return None
        path = list(above.submodule_search_locations)
    for finder in sys.meta_path:
        try:
            spec = finder.find_spec(name, path)
        except KeyError:  # of a namespace in another, which would have to be imported
            spec = ModuleSpec(name, None, is_package=True)
            spec.submodule_search_locations = [str(Path(place, last)) for place in path or ()]
        if spec:
            return spec
    return None


def _is_ours(read: Callable[[str], bytes]) -> bool:
    """Whether what lies there is a module of kernels, be it damaged; others have manifests too."""
    with suppress(OSError, Failure, ValueError, RecursionError):
        match json.loads(read(FILE_NAME)):
            case {"schema": int(), "module": str(), "units": list()}:
                return True
    try:  # the package that a build has generated tells, too
        return b"cuda_ext.runtime.module" in read("__init__.py")
    except (OSError, Failure):
        return False
