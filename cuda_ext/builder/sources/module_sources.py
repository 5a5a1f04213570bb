"""The sources of a module: read with their headers, and their settings.

Modules for sources in Python are imported where there is one.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from cuda_ext.builder.config.keys import Settings
from cuda_ext.builder.config.modules import ModuleConfig
from cuda_ext.builder.sources.globs import (
    find_headers,
    find_include_directories,
    find_sources,
    find_tuning,
    kind_of,
)
from cuda_ext.compiler.file_tree import FileTree
from cuda_ext.compiler.front_ends.tile_code import enable_tile
from cuda_ext.compiler.headers import Headers, read_project_file
from cuda_ext.compiler.module_plan import file_stems
from cuda_ext.compiler.translation_unit import NAMED, PYTHON, TranslationUnit
from cuda_ext.errors import ConfigError
from cuda_ext.facts.sources import Options
from cuda_ext.text.directives import definitions_of

if TYPE_CHECKING:
    from cuda_ext.builder.sources.python_kernels import ProjectImports


class Sources:
    """The sources of a module by name, in the project of ``tree``, read with their headers.

    Each header is read once.
    """

    def __init__(self, module: ModuleConfig, tree: FileTree) -> None:
        self.names = find_sources(module, tree)
        self.file_stems = file_stems(self.names)
        self._module = module
        self._headers = Headers(tree, find_include_directories(module, tree))
        self.tree = tree
        self._imports: ProjectImports | None = None
        self._units: dict[str, TranslationUnit] = {}
        self._settings: dict[tuple[int, ...], Settings] = {}
        self._options: dict[Settings, Options] = {}

    @property
    def root(self) -> Path:
        """The directory of the project."""
        return Path(self.tree.root)

    def units(self) -> list[TranslationUnit]:
        """Return each source as a unit without instantiations. Raises :class:`BuildError`."""
        return [self.unit(name) for name in self.names]

    def unit(self, name: str) -> TranslationUnit:
        """Return the source of that name as a unit. Raises :class:`BuildError`."""
        if name not in self._units:
            self._units[name] = self._unit(name)
        return self._units[name]

    def headers(self) -> dict[str, bytes]:
        """Return the headers of the key ``headers``, and all that these can include, by name."""
        found: dict[str, bytes] = {}
        for name in find_headers(self._module, self.tree):
            text, reached = self._headers.gather(name)
            found |= {name: text, **reached}
        return found

    def files(self) -> set[str]:
        """Return the names of all sources, and of all headers of the project that they can include."""
        tables = {find_tuning(each, self.tree) for each in self._module.overrides if each.tuning}
        tables |= {
            each.tuning.file for each in self._module.settings.tune if (self.root / each.tuning.file).exists()
        }
        units = self.units()
        names = {n for unit in units for n in (unit.name, *unit.headers)} | self.headers().keys()
        return {name for name in names if not name.startswith(NAMED)} | tables

    def settings(self, name: str) -> Settings:
        """Return the settings of a source; the same object for all sources with the same overrides."""
        overrides = enumerate(self._module.overrides)
        applying = tuple(index for index, override in overrides if override.applies_to(name))
        if applying not in self._settings:
            self._settings[applying] = self._module.for_source(name)
        return self._settings[applying]

    def _unit(self, name: str) -> TranslationUnit:
        kind = kind_of(name)
        if kind in ("cu", *PYTHON):
            self._refuse_kernels(name)
        is_generated = name in self.tree.generated
        if is_generated and kind != "cu":
            return TranslationUnit(name, b"", "cu")  # until it exists, all that is known
        if kind != "cu":
            content = read_project_file(self.tree.path(name), name)
            imported = {}
            if kind in PYTHON:
                from cuda_ext.builder.sources.python_kernels import ProjectImports, front_end_of
                from cuda_ext.compiler.front_ends.python_functions import kernels_in_strings

                content = kernels_in_strings(content)
                self._imports = self._imports or ProjectImports(self.root)
                imported = self._imports.gather(name, content)
                kind = front_end_of(name, content)
            return TranslationUnit(name, content, kind, imported, kernels=self._module.kernels(name))
        settings = self.settings(name)
        given = definitions_of(settings.define, settings.options)
        text, headers = self._headers.gather(name, settings.pre_include, b"" if is_generated else None, given)
        if settings not in self._options:
            self._options[settings] = Options(
                std=settings.std,
                define=dict(sorted(settings.define.items())),
                raw=settings.options,
                pre_include=tuple(map(self._headers.resolve, settings.pre_include)),
                fast_math=settings.fast_math,
                relaxed_constexpr=settings.relaxed_constexpr,
                relocatable=settings.link,
                std_headers=settings.std_headers,
                skip_host_code=settings.host_code == "skip",
            )
        unit = TranslationUnit(name, text, kind, headers, self._options[settings])
        return enable_tile(unit, keep_standard=self._module.is_written("std", name))

    def _refuse_kernels(self, name: str) -> None:
        for override in self._module.overrides:
            if override.kernels and override.applies_to(name):
                raise ConfigError(
                    f"the build compiles {name}, and finds its kernels itself",
                    where=f"{override.where}.kernels",
                    remedy="describe only kernels of .cubin, .ptx, .fatbin and .ltoir files",
                )
