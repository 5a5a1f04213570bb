"""The build hook ``cuda-ext`` of hatchling.

An empty table ``[tool.hatch.build.hooks.cuda-ext]`` enables it; all settings are in ``[tool.cuda_ext]``. For
a wheel the packages are written to a temporary directory, for an editable install to the source tree, and an
sdist contains the device sources. Generated packages in the source tree are never shipped.

Needs hatchling 1.27 or newer.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Mapping
from functools import cached_property
from pathlib import Path, PurePath
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from hatchling.builders.config import BuilderConfig
from hatchling.builders.hooks.plugin.interface import BuildHookInterface
from hatchling.plugin import hookimpl

from cuda_ext.errors import ConfigError
from cuda_ext.integrations.backend import build_environment, build_packages, exit_with_error

if TYPE_CHECKING:
    from hatchling.builders.wheel import WheelBuilder

    from cuda_ext.builder.package.generate import Package
    from cuda_ext.builder.project import Project

_TABLE = "tool.hatch.build.hooks.cuda-ext"
# The keys that hatchling itself reads from the table of a hook.
_KEYS = {"dependencies", "enable-by-default", "require-runtime-dependencies", "require-runtime-features"}


@hookimpl  # type: ignore[untyped-decorator]
def hatch_register_build_hook() -> type[CudaExtBuildHook]:
    return CudaExtBuildHook


class CudaExtBuildHook(BuildHookInterface[BuilderConfig]):  # type: ignore[misc]
    """Compile the project's device sources into importable packages."""

    PLUGIN_NAME = "cuda-ext"

    _scratch: TemporaryDirectory[str] | None = None  # removed with this object, even if the build fails

    @exit_with_error()
    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Set the files that hatchling adds, and those that it leaves out."""
        if self.target_name not in ("sdist", "wheel"):
            return
        environ = build_environment()
        project = self._project()
        self._exclude_generated()
        added = build_data["force_include"]
        if self.target_name == "sdist":
            added.update((str(Path(self.root, path)), str(path)) for path in project.source_files())
            return
        from cuda_ext.builder.package.in_place import check_places, write_in_place

        check_places(project, self._directories, self._source_directory, "hatchling")
        editable = version == "editable"
        place = self._source_directory
        packages = build_packages(project, self.app.display_info, environ, place, editable=editable)
        if editable:
            write_in_place(project, packages, {package.name: place(package.name) for package in packages})
        else:
            added.update(self._build_apart(packages))

    def finalize(self, _version: str, _build_data: dict[str, Any], _artifact: str) -> None:
        """Remove the temporary packages."""
        if self._scratch is not None:
            self._scratch.cleanup()

    @exit_with_error()
    def clean(self, _versions: list[str]) -> None:
        """Remove generated packages from the source tree."""
        from cuda_ext.filesystem.atomic_directory import remove_remains
        from cuda_ext.filesystem.ownership import foreign

        for directory in self._generated:
            if foreign(directory) is None:
                shutil.rmtree(directory)
        for name, directory in self._directories.items():
            if "." not in name:
                remove_remains(directory)

    @cached_property
    def _wheel(self) -> WheelBuilder:
        from hatchling.builders.wheel import WheelBuilder

        if isinstance(self.build_config.builder, WheelBuilder):
            return self.build_config.builder
        return WheelBuilder(self.root, metadata=self.metadata, app=self.app)

    @cached_property
    def _directories(self) -> Mapping[str, Path]:
        """The import packages of the wheel, namespaces included, and their directories in the source tree."""
        directories: dict[str, Path] = {}
        for file in self._wheel.recurse_selected_project_files():
            if not file.relative_path.endswith(".py"):
                continue
            directory = Path(file.path).parent
            parts = PurePath(file.distribution_path).parts[:-1]
            while parts and ".".join(parts) not in directories:
                directories[".".join(parts)] = directory
                parts, directory = parts[:-1], directory.parent
        return directories

    @cached_property
    def _generated(self) -> list[Path]:
        """The generated packages among the files that hatchling selects from the source tree."""
        from cuda_ext.filesystem.ownership import is_generated

        files = (Path(file.path) for file in self.build_config.builder.recurse_selected_project_files())
        return [file.parent for file in files if file.name == "__init__.py" and is_generated(file.parent)]

    def _project(self) -> Project:
        from cuda_ext.builder.project import Project

        for key in self.config:
            if key not in _KEYS:
                raise ConfigError(
                    "unknown key",
                    where=f"{_TABLE}.{key}",
                    remedy="settings of the build are in [tool.cuda_ext]",
                )
        packages = [name for name, directory in self._directories.items() if directory not in self._generated]
        return Project.required(Path(self.root), packages)

    def _source_directory(self, package: str) -> Path:
        """Return the directory of `package` in the source tree, which need not exist."""
        if package in self._directories:
            return self._directories[package]
        parent, _, name = package.rpartition(".")
        return self._source_directory(parent) / name

    def _exclude_generated(self) -> None:
        from cuda_ext.builder.package.build_outputs import build_output_filter

        is_build_output = build_output_filter()
        for file in self.build_config.builder.recurse_selected_project_files():
            if is_build_output(Path(file.path)):
                # Reserved paths exclude files whatever the configuration selects.
                self.build_config.build_reserved_paths.add(file.distribution_path)

    def _build_apart(self, packages: Iterable[Package]) -> dict[str, str]:
        """Write `packages` to a temporary directory; return their files by their paths in the tree."""
        self._scratch = TemporaryDirectory(prefix="cuda_ext-")
        files = {}
        for package in packages:
            built = Path(self._scratch.name, package.name)
            # hatchling maps paths in the source tree to paths in the wheel.
            place = self._source_directory(package.name).relative_to(self.root)
            for file in package.write(built):
                files[str(file)] = str(place / file.relative_to(built))
        return files
