"""The door for hatchling: the build hook ``cuda-ext``.

An empty table ``[tool.hatch.build.hooks.cuda-ext]`` opens it; all else stands in ``[tool.cuda_ext]``, as with
every other build tool. A wheel gets the packages without a trace in the source tree, an editable install has
them in the source tree, and an sdist gets what they are compiled from. What in-place builds have left in the
source tree is never shipped.

Needs hatchling 1.27 or newer.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path, PurePath
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from hatchling.builders.config import BuilderConfig
from hatchling.builders.hooks.plugin.interface import BuildHookInterface
from hatchling.plugin import hookimpl

from cuda_ext.errors import ConfigError
from cuda_ext.integrations.exit_with_error import check_names, one_message

if TYPE_CHECKING:
    from hatchling.builders.wheel import WheelBuilder

    from cuda_ext.builder.project import Project

__all__ = ["CudaExtBuildHook", "hatch_register_build_hook"]

_TABLE = "tool.hatch.build.hooks.cuda-ext"
# What hatchling itself reads from the table of a hook.
_KEYS = {"dependencies", "enable-by-default", "require-runtime-dependencies", "require-runtime-features"}


@hookimpl  # type: ignore[untyped-decorator]
def hatch_register_build_hook() -> type[CudaExtBuildHook]:
    return CudaExtBuildHook


class CudaExtBuildHook(BuildHookInterface[BuilderConfig]):  # type: ignore[misc]
    """Compile the project's device sources into importable packages."""

    PLUGIN_NAME = "cuda-ext"

    _scratch: TemporaryDirectory[str] | None = None  # removed with this object, whatever becomes of the build

    @one_message()
    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Tell hatchling which files to add, and which to leave out."""
        if self.target_name not in ("sdist", "wheel"):
            return
        project = self._project()
        self._leave_out_generated()
        added = build_data["force_include"]
        if self.target_name == "sdist":
            added.update((str(Path(self.root, path)), str(path)) for path in project.source_files())
            return
        check_names(project, self._directories, self._source_directory, "hatchling")
        if version == "editable":
            self._in_source_tree(project)
        else:
            added.update(self._aside(project))

    def finalize(self, _version: str, _build_data: dict[str, Any], _artifact: str) -> None:
        """Remove what was only made to be put into the wheel."""
        if self._scratch is not None:
            self._scratch.cleanup()

    @one_message()
    def clean(self, _versions: list[str]) -> None:
        """Remove the packages that in-place builds and editable installs have put into the source tree."""
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
        """The import packages that a wheel gets from the source tree, and where they lie; namespaces too."""
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
        """The packages that builds of ours have made, among what would be taken from the source tree."""
        from cuda_ext.filesystem.ownership import is_generated

        files = (Path(file.path) for file in self.build_config.builder.recurse_selected_project_files())
        return [file.parent for file in files if file.name == "__init__.py" and is_generated(file.parent)]

    def _project(self) -> Project:
        from cuda_ext.builder.project import Project

        for key in self.config:
            if key not in _KEYS:
                raise ConfigError(f"{_TABLE}.{key}: unknown key; what is built stands in [tool.cuda_ext]")
        packages = [name for name, directory in self._directories.items() if directory not in self._generated]
        return Project.required(Path(self.root), packages)

    def _source_directory(self, package: str) -> Path:
        """Where `package` lies in the source tree, or would."""
        if package in self._directories:
            return self._directories[package]
        parent, _, name = package.rpartition(".")
        return self._source_directory(parent) / name

    def _leave_out_generated(self) -> None:
        # Above all that the configuration says is what hatchling reserves for files from elsewhere.
        for directory in self._generated:
            for file in directory.rglob("*"):
                path = self.build_config.get_distribution_path(str(file.relative_to(self.root)))
                self.build_config.build_reserved_paths.add(path)

    def _aside(self, project: Project) -> dict[str, str]:
        """Write the packages where nobody else looks: their files, and where they would be in the tree."""
        from cuda_ext.toolchain.process import ending_in_order

        self._scratch = TemporaryDirectory(prefix="cuda_ext-")
        with ending_in_order():
            packages = list(project.build(self.app.display_info))
        files = {}
        for package in packages:
            built = Path(self._scratch.name, package.name)
            # hatchling turns paths in the tree into paths in the wheel.
            place = self._source_directory(package.name).relative_to(self.root)
            for file in package.write(built):
                files[str(file)] = str(place / file.relative_to(built))
        return files

    def _in_source_tree(self, project: Project) -> None:
        """Write the packages into the source tree, which an editable install imports from."""
        from cuda_ext.builder.package.editable import build_editable
        from cuda_ext.builder.package.in_place import in_place
        from cuda_ext.toolchain.process import ending_in_order

        with ending_in_order():
            packages = build_editable(project, self._source_directory, self.app.display_info)
        for package in packages:
            in_place(package).write(self._source_directory(package.name))
