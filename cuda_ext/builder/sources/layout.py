"""Where the Python packages of a project lie in its source tree, and generated ones among them."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from cuda_ext.errors import ConfigError

if TYPE_CHECKING:
    from cuda_ext.builder.config.keys import ModuleConfig
    from cuda_ext.builder.package.generate import Package
    from cuda_ext.builder.project import Project

__all__ = ["check_place", "in_place", "package_places", "remove_others", "source_directory"]

# The directories that projects keep their packages in, the likeliest first; the empty one is the root.
_BASES = ("src", "", "python", "lib")


def package_places(root: Path, package: str, package_dir: Mapping[str, str]) -> Iterator[Path]:
    """Where `package` may lie, the likeliest first. `package_dir` is what setuptools calls so."""
    known, inner = package, ""
    while known and known not in package_dir:
        known, _, last = known.rpartition(".")
        inner = f"{last}/{inner}"
    bases = [package_dir[known]] if known in package_dir else _BASES
    yield from (root / base / inner for base in bases)


def source_directory(project: Project, name: str) -> Path:
    """Where the generated package `name` goes in the source tree: into its parent package.

    Raises :class:`ConfigError` if there is none.
    """
    places = list(package_places(project.root, name, project.package_dir))
    parents = [place.parent for place in places]
    for is_one in (lambda parent: (parent / "__init__.py").is_file(), Path.is_dir):
        for place in places:
            if is_one(place.parent):
                return place
    where = next(module.where for module in project.modules if module.name == name)
    looked = ", ".join(str(parent.relative_to(project.root)) for parent in parents)
    package = name.rpartition(".")[0]
    raise ConfigError(
        f"there is no package {package!r} to put it into; looked for the directories {looked}", where=where
    )


def check_place(module: ModuleConfig, place: Path) -> None:
    """The package of `module` would replace nothing of others in `place`. Raises :class:`ConfigError`."""
    from cuda_ext.builder.package.generate import obstacle

    if found := obstacle(place):
        raise ConfigError(f"{module.where}: {found} is where it would be generated; rename one")


def remove_others(directory: Path, wanted: Iterable[Path]) -> None:
    """Remove what was generated below `directory`, but for `wanted`: of modules that had another name.

    A package in which somebody has put files of their own stays. Raises :class:`OSError`.
    """
    from cuda_ext.filesystem.ownership import foreign, is_generated
    from cuda_ext.manifest import FILE_NAME

    kept = set(wanted)
    # What lies within another goes first.
    for place in sorted((file.parent for file in directory.rglob(FILE_NAME)), reverse=True):
        if place in kept or not is_generated(place) or foreign(place):
            continue
        shutil.rmtree(place)
        with suppress(OSError):  # it is not empty
            while (place := place.parent) != directory:
                place.rmdir()


def in_place(package: Package) -> Package:
    """`package` as it lies in a source tree: ignored by version control, as caches are."""
    return replace(package, files={**package.files, ".gitignore": b"*\n"})
