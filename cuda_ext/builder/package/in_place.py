"""The places of generated packages: a project's source tree, or the directory of another tool."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from cuda_ext.builder.config.modules import ModuleConfig
from cuda_ext.cache.dependencies import read_record
from cuda_ext.cache.open_store import open_local_store
from cuda_ext.errors import ConfigError, StoreError
from cuda_ext.facts import codec
from cuda_ext.facts.manifest import FILE_NAME
from cuda_ext.facts.sha256 import sha256
from cuda_ext.filesystem.ownership import find_package, foreign, is_generated
from cuda_ext.filesystem.regular_file import read_file

if TYPE_CHECKING:
    from cuda_ext.builder.package.generate import Package
    from cuda_ext.builder.project import Project


def check_place(module: ModuleConfig, place: Path, renamed: Collection[Path] = ()) -> None:
    """Check that the package of `module` in `place` replaces no files of others, and is in no other package.

    `renamed` are packages that are removed before. Raises :class:`ConfigError`.
    """
    from cuda_ext.builder.package.generate import find_obstacle

    outer = find_package(place.parent.resolve())
    if outer and outer not in renamed:
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
            remedy = f"it has {', '.join(tops)}; begin the name with one" if tops else f"{tool} found none"
            raise ConfigError("is not in a package of this project", where=module.where, remedy=remedy)
        check_place(module, directory_of(module.name))


class _Written(NamedTuple):
    """The packages that a build wrote: the digest of each manifest by import name."""

    digests: Mapping[str, str] = {}


class Output:
    """The directory of another tool that a project's packages are written to.

    Other projects may write there too, also into the same namespace. So the cache remembers what the last
    build of the project in `root` wrote; without it, nothing is removed.
    """

    def __init__(self, root: Path, directory: Path) -> None:
        self.directory = directory.resolve()
        self._store = open_local_store(os.environ, lambda _: None)
        self._key = codec.key_of("output", str(root), str(self.directory))

    def remove_renamed(self, wanted: Collection[str]) -> None:
        """Remove the packages of the last build but `wanted`, unless they have changed. Raises OSError."""
        for place in self.find_renamed(wanted):
            with suppress(FileNotFoundError):
                shutil.rmtree(place)
                with suppress(OSError):  # it is not empty
                    while (place := place.parent) != self.directory:
                        place.rmdir()

    def find_renamed(self, wanted: Collection[str]) -> Iterator[Path]:
        """Find the packages of the last build but `wanted`, unless they have changed."""
        written = read_record(self._store, self._key, _Written())
        # Packages within others go first.
        for name in sorted(written.digests.keys() - set(wanted), reverse=True):
            place = self.directory.joinpath(*name.split("."))
            if not all(map(str.isidentifier, name.split("."))) or place.resolve() != place:
                continue
            with suppress(FileNotFoundError):
                try:
                    digest = sha256(read_file(f"{place}/{FILE_NAME}")).hex()
                except OSError:  # it is not the manifest that was written
                    continue
                if digest == written.digests[name] and foreign(place) is None:
                    yield place

    def remember(self, packages: Iterable[Package]) -> None:
        """Remember what was written."""
        digests = {package.name: sha256(package.files[FILE_NAME]).hex() for package in packages}
        with suppress(StoreError):
            self._store.put(self._key, codec.encode(_Written(digests)))


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
