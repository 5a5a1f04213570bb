"""Generated packages in a project's source tree, among the packages that the author wrote."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from cuda_ext.builder.config.modules import ModuleConfig
from cuda_ext.errors import ConfigError

if TYPE_CHECKING:
    from cuda_ext.builder.package.generate import Package
    from cuda_ext.builder.project import Project

__all__ = ["check_place", "check_places", "add_gitignore", "remove_others"]


def check_place(module: ModuleConfig, place: Path) -> None:
    """The package of `module` replaces no files of others in `place`. Raises :class:`ConfigError`."""
    from cuda_ext.builder.package.generate import find_obstacle

    if found := find_obstacle(place):
        raise ConfigError(f"{found} is where it would be generated", where=module.where, remedy="rename one")


def check_places(
    project: Project, packages: Iterable[str], directory_of: Callable[[str], Path], tool: str
) -> None:
    """Check that each module lies in one of `packages`, those that the build tool `tool` ships.

    `directory_of` gives the directory of a package in the source tree. Raises :class:`ConfigError`.
    """
    tops = sorted({name.partition(".")[0] for name in packages})
    for module in project.modules:
        if module.name.partition(".")[0] not in tops:
            remedy = f"it has {', '.join(tops)}; begin the name with one" if tops else f"{tool} found none"
            raise ConfigError("is not in a package of this project", where=module.where, remedy=remedy)
        check_place(module, directory_of(module.name))


def remove_others(directory: Path, wanted: Iterable[Path]) -> None:
    """Remove generated packages below `directory`, but for `wanted`: those of modules that were renamed.

    A package that holds files of others stays. Raises :class:`OSError`.
    """
    from cuda_ext.filesystem.ownership import foreign, is_generated
    from cuda_ext.manifest import FILE_NAME

    kept = set(wanted)
    # Packages within others go first.
    for place in sorted((file.parent for file in directory.rglob(FILE_NAME)), reverse=True):
        if place in kept or not is_generated(place) or foreign(place):
            continue
        shutil.rmtree(place)
        with suppress(OSError):  # it is not empty
            while (place := place.parent) != directory:
                place.rmdir()


def add_gitignore(package: Package) -> Package:
    """Return `package` as it lies in a source tree: ignored by version control."""
    return replace(package, files={**package.files, ".gitignore": b"*\n"})
