"""The modules of kernels that this interpreter could import, found without importing anything.

Distributions list their files; what is not of one lies on ``sys.path``: projects in development, directories
in PYTHONPATH, archives.
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

from cuda_ext.cli.failure import Failure
from cuda_ext.cli.inspect.places import Package, packages_of_module
from cuda_ext.manifest import FILE_NAME

__all__ = ["InstalledModule", "installed_modules", "named_modules"]

# Directories that are looked at below an entry of sys.path that no distribution lists.
_MOST = 2000


@dataclass(frozen=True, slots=True)
class InstalledModule:
    """A directory with a manifest of ours. ``distribution`` is what brought it, such as ``my-package 1.0``.

    ``read`` gives the content of its files, and raises :class:`OSError`; ``has`` says whether one is there.
    """

    name: str
    place: str
    read: Callable[[str], bytes]
    has: Callable[[str], bool]
    distribution: str = ""


def installed_modules() -> list[InstalledModule]:
    """All of them, by name; of two of one name, the one that an import would find."""
    found: dict[str, InstalledModule] = {}
    for entry in _entries():
        for module in _modules_at(entry):
            found.setdefault(module.name, module)
    return sorted(found.values(), key=lambda module: module.name)


def named_modules(name: str) -> tuple[list[InstalledModule], str]:
    """The module of that import name, or those in the package of that name; otherwise what to do.

    One that no distribution lists, and that is nowhere near ``sys.path``, is found too, as imports find it.
    """
    modules = installed_modules()
    if found := [m for m in modules if m.name == name or m.name.startswith(f"{name}.")]:
        return found, ""
    try:
        packages = list(packages_of_module(name)) if all(map(str.isidentifier, name.split("."))) else []
    except Failure:
        packages = []
    for package in packages:
        inner = "" if package.place == "." else "." + package.place.replace("/", ".")
        found.append(InstalledModule(name + inner, "found by an import hook", package.read, _has(package)))
    close = difflib.get_close_matches(name, [module.name for module in modules], n=1)
    remedy = f"did you mean {close[0]}?" if close else "install the package that holds it, or set PYTHONPATH"
    return found, "" if found else remedy


def _has(package: Package) -> Callable[[str], bool]:
    def has(file: str) -> bool:
        try:
            return package.size(file) >= 0
        except (OSError, KeyError):
            return False

    return has


def _module_in(directory: Path, name: str, distribution: str = "") -> InstalledModule:
    return InstalledModule(
        name,
        str(directory),
        lambda file: (directory / file).read_bytes(),
        lambda file: (directory / file).is_file(),
        distribution,
    )


def _entries() -> Iterator[Path]:
    """Where imports are looked up, without the standard library."""
    standard = Path(os.path.realpath(os.__file__)).parent
    seen = {str(standard), str(standard / "lib-dynload")}
    for text in (*sys.path, *_mapped()):
        real = os.path.realpath(text or os.curdir)
        if real not in seen:
            seen.add(real)
            yield Path(real)


def _mapped() -> Iterator[str]:
    """Where editable installs of setuptools lead to that are not on ``sys.path``."""
    # Other modules are not asked for anything: some import when they are.
    for finder in [module for name, module in sys.modules.items() if name.startswith("__editable__")]:
        mapping = getattr(finder, "MAPPING", None)
        if isinstance(mapping, dict):
            for package, place in mapping.items():
                yield str(Path(place, *[os.pardir] * len(str(package).split("."))))


def _modules_at(entry: Path) -> Iterator[InstalledModule]:
    try:
        if entry.is_file():
            with suppress(zipfile.BadZipFile):
                yield from _in_archive(entry)
            return
        listed = [path for path in entry.iterdir() if path.suffix == ".dist-info"]
    except OSError:
        return  # it is not there, or closed to this user, so that nothing is imported from it
    for metadata in listed:
        yield from _of_distribution(entry, metadata)
    if not listed:
        yield from _below(entry)


def _of_distribution(site: Path, metadata: Path) -> Iterator[InstalledModule]:
    """What the distribution with that metadata lists."""
    try:
        record = (metadata / "RECORD").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return  # of a system's packages, or half removed
    if f"/{FILE_NAME}" not in record:
        return
    title, _, version = metadata.stem.partition("-")
    for row in csv.reader(line for line in record.splitlines() if f"/{FILE_NAME}" in line):
        place, _, file = row[0].rpartition("/")
        if file == FILE_NAME and (name := _import_name(place)):
            directory = site / place
            module = _module_in(directory, name, f"{title} {version}".strip())
            if _is_ours(directory, name):
                yield module


def _below(entry: Path) -> Iterator[InstalledModule]:
    """What lies in directories that are packages, or could be; what is hidden stays so."""
    for parent, below, files in islice(os.walk(entry), _MOST):
        place = Path(parent).relative_to(entry).as_posix()
        if FILE_NAME in files and (name := _import_name(place)) and _is_ours(Path(parent), name):
            yield _module_in(Path(parent), name)
            below.clear()
        below[:] = sorted(n for n in below if n.isidentifier() and n not in ("__pycache__", "node_modules"))


def _in_archive(path: Path) -> Iterator[InstalledModule]:
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
                if _named(read(place, FILE_NAME)) == name:
                    has = partial(lambda place, file: posixpath.join(place, file) in names, place)
                    yield InstalledModule(name, f"{path}/{place}", partial(read, place), has)


def _import_name(place: str) -> str:
    """What lies at `place` below an entry of ``sys.path`` is imported as; empty if it cannot be."""
    parts = place.split("/")
    return ".".join(parts) if all(part.isidentifier() for part in parts) else ""


def _is_ours(directory: Path, name: str) -> bool:
    """Whether the module `name` lies there, be it damaged."""
    try:
        named = _named((directory / FILE_NAME).read_bytes())
    except OSError:
        named = None
    return _is_bound(directory) if named is None else named == name


def _named(manifest: bytes) -> str | None:
    """The module that it is of; others have files of that name too, and there are damaged ones."""
    try:
        match json.loads(manifest):
            case {"schema": int(), "module": str(module), "units": list()}:
                return module
    except (ValueError, RecursionError):
        pass
    return None


def _is_bound(directory: Path) -> bool:
    """Whether the package beside a damaged manifest is one that a build has generated."""
    try:
        return b"cuda_ext.runtime.module" in (directory / "__init__.py").read_bytes()
    except OSError:
        return False
