"""The modules of kernels that this interpreter could import, found without importing any package.

Distributions list their files. Modules of no distribution lie on ``sys.path``: projects in development,
directories in PYTHONPATH, archives.
"""

from __future__ import annotations

import csv
import os
import sys
import zipfile
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from cuda_ext.cli.inspect.places import (
    Package,
    package_in,
    packages_below,
    packages_in_wheel,
    packages_of_module,
)
from cuda_ext.cli.terminal import Failure
from cuda_ext.errors import did_you_mean
from cuda_ext.facts.manifest import FILE_NAME

# The number of directories to search below an entry of sys.path without distributions.
_MOST = 2000


@dataclass(frozen=True, slots=True)
class InstalledModule:
    """A module of kernels by its import name. ``distribution`` lists it, such as ``my-package 1.0``."""

    name: str
    place: str
    package: Package
    distribution: str = ""


def installed_modules() -> list[InstalledModule]:
    """Return all modules, sorted by name; of two with the same name, the one that an import would find."""
    modules: dict[str, InstalledModule] = {}
    for entry in _search_path():
        for module in _modules_at(entry):
            modules.setdefault(module.name, module)
    return sorted(modules.values(), key=lambda module: module.name)


def named_modules(name: str) -> tuple[list[InstalledModule], str]:
    """Return the module with that import name, or those in the package of that name; otherwise what to do.

    This includes modules that only an import hook finds.
    """
    installed = installed_modules()
    if modules := [m for m in installed if m.name == name or m.name.startswith(f"{name}.")]:
        return modules, ""
    if all(map(str.isidentifier, name.split("."))):
        with suppress(Failure):
            if modules := list(_named(packages_of_module(name), "found by an import hook", name)):
                return modules, ""
    suggestion = did_you_mean(name, [module.name for module in installed])
    return [], suggestion or "install the package that holds it, or set PYTHONPATH"


def _search_path() -> list[Path]:
    """Return the places that imports search, without the standard library."""
    standard = os.path.realpath(Path(os.__file__).parent)
    places = dict.fromkeys(os.path.realpath(place or os.curdir) for place in (*sys.path, *_mapped()))
    return [Path(place) for place in places if place not in (standard, str(Path(standard, "lib-dynload")))]


def _mapped() -> Iterator[str]:
    """Yield the places that editable installs of setuptools map packages to."""
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
                yield from _named(packages_in_wheel(zipfile.ZipFile(entry)), str(entry))
            return
        listed = [path for path in entry.iterdir() if path.suffix == ".dist-info"]
    except OSError:
        return  # it does not exist or cannot be read, so nothing is imported from it
    for metadata in listed:
        title, _, version = metadata.stem.partition("-")
        packages = filter(None, (package_in(entry, place) for place in _listed_places(metadata)))
        yield from _named(packages, str(entry), distribution=f"{title} {version}".strip())
    if not listed:
        yield from _named(packages_below(entry, _is_package_name, _MOST), str(entry))


def _named(
    packages: Iterable[Package], root: str, prefix: str = "", distribution: str = ""
) -> Iterator[InstalledModule]:
    """Yield the packages whose place in `root`, after `prefix`, is the import name in their manifest."""
    for package in packages:
        inner = "" if package.place == "." else package.place.replace("/", ".")
        name = ".".join(filter(None, (prefix, inner)))
        if all(map(str.isidentifier, name.split("."))) and package.module in ("", name):
            yield InstalledModule(name, str(Path(root, package.place)), package, distribution)


def _listed_places(metadata: Path) -> Iterator[str]:
    """Yield the directories of manifests that a distribution lists."""
    try:
        record = (metadata / "RECORD").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return  # a package of the system, or partly removed
    for row in csv.reader(line for line in record.splitlines() if f"/{FILE_NAME}" in line):
        place, _, file = row[0].rpartition("/")
        if file == FILE_NAME:
            yield place


def _is_package_name(directory: str) -> bool:
    return directory.isidentifier() and directory not in ("__pycache__", "node_modules")
