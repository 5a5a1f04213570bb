"""The modules of kernels that this interpreter could import, found without importing any package.

Distributions list their files. Modules of no distribution lie on ``sys.path``: projects in development,
directories in PYTHONPATH, archives.
"""

from __future__ import annotations

import csv
import difflib
import json
import os
import posixpath
import sys
import zipfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path

from cuda_ext.cli.inspect.places import Package, packages_of_module
from cuda_ext.cli.terminal import Failure
from cuda_ext.manifest import FILE_NAME

__all__ = ["InstalledModule", "installed_modules", "named_modules"]

# The number of directories to search below an entry of sys.path without distributions.
_MOST = 2000


@dataclass(frozen=True, slots=True)
class InstalledModule:
    """A directory with a manifest. ``distribution`` is the one that lists it, such as ``my-package 1.0``.

    ``read`` returns the content of a file, or raises :class:`OSError`; ``has`` tests for one.
    """

    name: str
    place: str
    read: Callable[[str], bytes]
    has: Callable[[str], bool]
    distribution: str = ""


def installed_modules() -> list[InstalledModule]:
    """All modules, sorted by name; of two with the same name, the one that an import would find."""
    modules: dict[str, InstalledModule] = {}
    for entry in _entries():
        for module in _modules_at(entry):
            modules.setdefault(module.name, module)
    return sorted(modules.values(), key=lambda module: module.name)


def named_modules(name: str) -> tuple[list[InstalledModule], str]:
    """The module with that import name, or those in the package of that name; otherwise what to do.

    This includes modules that only an import hook finds.
    """
    installed = installed_modules()
    if modules := [m for m in installed if m.name == name or m.name.startswith(f"{name}.")]:
        return modules, ""
    try:
        packages = list(packages_of_module(name)) if all(map(str.isidentifier, name.split("."))) else []
    except Failure:
        packages = []
    if packages:
        return list(map(partial(_module_of_hook, name), packages)), ""
    close = difflib.get_close_matches(name, [module.name for module in installed], n=1)
    return (
        [],
        f"did you mean {close[0]}?" if close else "install the package that holds it, or set PYTHONPATH",
    )


def _module_of_hook(name: str, package: Package) -> InstalledModule:
    def has(file: str) -> bool:
        try:
            return package.size(file) >= 0
        except (OSError, KeyError):
            return False

    inner = "" if package.place == "." else "." + package.place.replace("/", ".")
    return InstalledModule(name + inner, "found by an import hook", package.read, has)


def _module_in(directory: Path, name: str, distribution: str = "") -> InstalledModule:
    return InstalledModule(
        name,
        str(directory),
        lambda file: (directory / file).read_bytes(),
        lambda file: (directory / file).is_file(),
        distribution,
    )


def _entries() -> Iterator[Path]:
    """The places that imports search, without the standard library."""
    standard = Path(os.path.realpath(os.__file__)).parent
    seen = {str(standard), str(standard / "lib-dynload")}
    for text in (*sys.path, *_mapped()):
        real = os.path.realpath(text or os.curdir)
        if real not in seen:
            seen.add(real)
            yield Path(real)


def _mapped() -> Iterator[str]:
    """The places that editable installs of setuptools map packages to."""
    # No attribute of other modules is read: some import when it is.
    for finder in [module for name, module in sys.modules.items() if name.startswith("__editable__")]:
        mapping = getattr(finder, "MAPPING", None)
        if isinstance(mapping, dict):
            for package, place in mapping.items():
                yield str(Path(place, *[os.pardir] * len(str(package).split("."))))


def _modules_at(entry: Path) -> Iterator[InstalledModule]:
    try:
        if entry.is_file():
            with suppress(zipfile.BadZipFile):
                yield from _modules_in_archive(entry)
            return
        listed = [path for path in entry.iterdir() if path.suffix == ".dist-info"]
    except OSError:
        return  # it does not exist or cannot be read, so nothing is imported from it
    for metadata in listed:
        yield from _modules_of_distribution(entry, metadata)
    if not listed:
        yield from _modules_below(entry)


def _modules_of_distribution(site: Path, metadata: Path) -> Iterator[InstalledModule]:
    try:
        record = (metadata / "RECORD").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return  # a package of the system, or partly removed
    if f"/{FILE_NAME}" not in record:
        return
    title, _, version = metadata.stem.partition("-")
    for row in csv.reader(line for line in record.splitlines() if f"/{FILE_NAME}" in line):
        place, _, file = row[0].rpartition("/")
        if file == FILE_NAME and (name := _import_name(place)) and _is_module(site / place, name):
            yield _module_in(site / place, name, f"{title} {version}".strip())


def _modules_below(entry: Path) -> Iterator[InstalledModule]:
    """The modules in directories that are packages, or could be."""
    for parent, below, files in islice(os.walk(entry), _MOST):
        place = Path(parent).relative_to(entry).as_posix()
        if FILE_NAME in files and (name := _import_name(place)) and _is_module(Path(parent), name):
            yield _module_in(Path(parent), name)
            below.clear()
        below[:] = sorted(n for n in below if n.isidentifier() and n not in ("__pycache__", "node_modules"))


def _modules_in_archive(path: Path) -> Iterator[InstalledModule]:
    with zipfile.ZipFile(path) as archive:
        names = set(archive.namelist())

    def read(place: str, file: str) -> bytes:
        try:
            with zipfile.ZipFile(path) as archive:
                return archive.read(posixpath.join(place, file))
        except (KeyError, zipfile.BadZipFile) as error:
            raise OSError(str(error)) from None

    for listed in sorted(names):
        place, _, file = listed.rpartition("/")
        if file == FILE_NAME and (name := _import_name(place)):
            with suppress(OSError):
                if _module_of_manifest(read(place, FILE_NAME)) == name:
                    has = partial(lambda place, file: posixpath.join(place, file) in names, place)
                    yield InstalledModule(name, f"{path}/{place}", partial(read, place), has)


def _import_name(place: str) -> str:
    """The import name of `place` below an entry of ``sys.path``; empty if it has none."""
    parts = place.split("/")
    return ".".join(parts) if all(part.isidentifier() for part in parts) else ""


def _is_module(directory: Path, name: str) -> bool:
    """Whether the module `name` lies in `directory`, even if it is damaged."""
    try:
        module = _module_of_manifest((directory / FILE_NAME).read_bytes())
    except OSError:
        module = None
    if module is not None:
        return module == name
    try:
        return b"cuda_ext.runtime.module" in (directory / "__init__.py").read_bytes()
    except OSError:
        return False


def _module_of_manifest(manifest: bytes) -> str | None:
    """The module that a manifest describes; ``None`` if it is damaged, or another program's file."""
    try:
        match json.loads(manifest):
            case {"schema": int(), "module": str(module), "units": list()}:
                return module
    except (ValueError, RecursionError):
        pass
    return None
