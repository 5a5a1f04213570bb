"""The places of generated packages: a project's source tree, or the directory of another tool."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from cuda_ext.builder.config.modules import ModuleConfig
from cuda_ext.errors import ConfigError
from cuda_ext.facts.manifest import FILE_NAME
from cuda_ext.filesystem.ownership import find_package, foreign, is_generated
from cuda_ext.filesystem.regular_file import read_file

if TYPE_CHECKING:
    from cuda_ext.builder.package.generate import Package
    from cuda_ext.builder.project import Project


def check_place(module: ModuleConfig, place: Path) -> None:
    """Check that the package of `module` in `place` replaces no files of others, and is in no other package.

    Raises :class:`ConfigError`.
    """
    from cuda_ext.builder.package.generate import find_obstacle

    if outer := find_package(place.parent.resolve()):
        raise ConfigError(
            f"{outer} is a generated package, within which it would be generated",
            where=module.where,
            remedy="rename the module; if no project builds that package any more, remove it",
        )
    if obstacle := find_obstacle(place):
        problem = f"{obstacle[0]} is where it would be generated"
        raise ConfigError(problem, where=module.where, remedy=obstacle[1])


def check_outside(where: str, file: Path, places: Iterable[Path]) -> None:
    """Check that `file`, which `where` names, lies in no generated package, and in none of `places`.

    Raises :class:`ConfigError`.
    """
    real = file.parent.resolve() / file.name
    inside = [place for place in map(Path.resolve, places) if real.is_relative_to(place)]
    if package := next(iter(inside), None) or find_package(real.parent):
        raise ConfigError(
            f"{file} would lie in the generated package {package}",
            where=where,
            remedy="name a file elsewhere",
        )


def check_places(
    project: Project, packages: Iterable[str], directory_of: Callable[[str], Path], tool: str
) -> None:
    """Check that each module lies in one of `packages`, those that the build tool `tool` ships.

    `directory_of` gives the directory of a package in the source tree. Raises :class:`ConfigError`.
    """
    tops = sorted({name.partition(".")[0] for name in packages})
    for module in project.modules:
        if module.name.partition(".")[0] not in tops:
            remedy = f"it has {', '.join(tops)}; begin the name with one"
            if not tops:
                remedy = f"{tool} found none; {project.advise_package(module.name)}"
            raise ConfigError("is not in a package of this project", where=module.where, remedy=remedy)
        check_place(module, directory_of(module.name))


# What version control ignores in a package of the source tree.
_GITIGNORE = {".gitignore": b"*\n"}


def write_in_place(project: Project, packages: Iterable[Package], places: Mapping[str, Path]) -> None:
    """Write `packages` to their `places` in the source tree, and remove those that no module describes now.

    Raises :class:`~cuda_ext.errors.BuildError`.
    """
    for package in packages:
        replace(package, files={**package.files, **_GITIGNORE}).write(places[package.name])
    for place in stale_packages(project, places.values()):
        shutil.rmtree(place, ignore_errors=True)


def stale_packages(project: Project, places: Iterable[Path]) -> list[Path]:
    """Find the packages that builds put into the source tree, except those in `places`.

    What ``cuda_ext.save`` wrote, or a build with other files in it, is none of them.
    """
    wanted = {place.resolve() for place in places}
    tops = {
        place.resolve()
        for module in project.modules
        for place in project.package_places(module.name.partition(".")[0])
    }
    found = {file.parent for top in tops for file in top.rglob(FILE_NAME)}
    return sorted(place for place in found - wanted if _was_built_in_place(place))


def _was_built_in_place(place: Path) -> bool:
    if not is_generated(place) or foreign(place) is not None:
        return False
    try:
        return {name: read_file(f"{place}/{name}") for name in _GITIGNORE} == _GITIGNORE
    except OSError:
        return False
