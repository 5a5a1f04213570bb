"""Plan a module: gather headers, assign instantiations to translation units, check architectures.

Files are read here, and nothing is compiled. Only architectures need the compiler.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from cuda_ext.builder.config.keys import Settings
from cuda_ext.builder.config.modules import ModuleConfig, Override
from cuda_ext.builder.sources.duplicate_kernels import check_duplicates
from cuda_ext.builder.sources.globs import (
    find_headers,
    find_include_directories,
    find_sources,
    find_tuning,
    kind_of,
)
from cuda_ext.builder.sources.instantiation_owners import assign_instantiations
from cuda_ext.builder.sources.python_imports import gather_imports
from cuda_ext.builder.sources.python_kernels import front_end_of, one_for_each_instantiation
from cuda_ext.builder.sources.tuning_table import TuningTable
from cuda_ext.compiler.architectures import expand, from_cmake, targets_of
from cuda_ext.compiler.compile_options import on_demand_obstacle
from cuda_ext.compiler.front_ends.tile_code import divide, enable_tile
from cuda_ext.compiler.headers import Headers
from cuda_ext.compiler.module_plan import LibraryPlan, ModulePlan, file_stems
from cuda_ext.compiler.spelled_settings import spell_setting
from cuda_ext.compiler.translation_unit import FRONT_ENDS, PYTHON, CompilerInfo, SourceKind, TranslationUnit
from cuda_ext.errors import BuildError, ConfigError, ToolchainError
from cuda_ext.filesystem.regular_file import read_file
from cuda_ext.formats.architecture import Architecture
from cuda_ext.formats.spelling import normalise
from cuda_ext.manifest import Options
from cuda_ext.toolchain.compilers import CompilerChoice

__all__ = ["Sources", "compiler_choice", "native_capabilities", "plan_module", "read_source"]


# Those that CUDA's header of tiles refuses.
_OLD_STANDARDS = ("c++03", "c++11", "c++14", "c++17")


class Sources:
    """The sources of a module by name, read with their headers. Each header is read once."""

    def __init__(self, module: ModuleConfig, root: Path) -> None:
        self.names = find_sources(module, root)
        self.file_stems = file_stems(self.names)
        self._module = module
        self._headers = Headers(root, find_include_directories(module, root))
        self._root = root
        self._units: dict[str, TranslationUnit] = {}
        self._settings: dict[tuple[int, ...], Settings] = {}
        self._options: dict[Settings, Options] = {}

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
        for name in find_headers(self._module, self._root):
            text, reached = self._headers.gather(name)
            found |= {name: text, **reached}
        return found

    def restrict(self, name: str) -> None:
        """Leave out all sources but `name`, unless the others decide on its instantiations or its link."""
        settings = self._module.settings
        if not settings.link and not settings.instantiate:
            self.names = [name]

    def files(self) -> set[str]:
        """Return the names of all sources, and of all headers of the project that they can include."""
        tables = {find_tuning(each, self._root) for each in self._module.overrides if each.tuning}
        units = self.units()
        return {n for unit in units for n in (unit.name, *unit.headers)} | self.headers().keys() | tables

    def settings(self, name: str) -> Settings:
        """Return the settings of a source; the same object for all sources with the same overrides."""
        overrides = enumerate(self._module.overrides)
        applying = tuple(index for index, override in overrides if override.applies_to(name))
        if applying not in self._settings:
            self._settings[applying] = self._module.for_source(name)
        return self._settings[applying]

    def tuning(self, override: Override) -> TuningTable | None:
        """Return the table of configurations of `override`. Raises :class:`BuildError`."""
        if not override.tuning:
            return None
        name = find_tuning(override, self._root)
        return TuningTable.parse(name, read_source(self._root / name, name))

    def _unit(self, name: str) -> TranslationUnit:
        kind = kind_of(name)
        if kind in ("cu", *PYTHON):
            self._refuse_kernels(name)
        if kind != "cu":
            content = read_source(self._root / name, name)
            imported = {}
            if kind in PYTHON:
                imported = gather_imports(self._root, name, content)
                kind = front_end_of(name, content)
            return TranslationUnit(name, content, kind, imported, kernels=self._module.kernels(name))
        settings = self.settings(name)
        text, headers = self._headers.gather(name, settings.pre_include)
        if settings not in self._options:
            self._options[settings] = Options(
                std=settings.std,
                define=dict(sorted(settings.define.items())),
                raw=settings.options,
                pre_include=tuple(map(self._headers.resolve, settings.pre_include)),
                fast_math=settings.fast_math,
                relaxed_constexpr=settings.relaxed_constexpr,
                relocatable=settings.link,
            )
        unit = TranslationUnit(name, text, kind, headers, self._options[settings])
        return enable_tile(unit, keep_standard=self._module.is_written("std", name))

    def _refuse_kernels(self, name: str) -> None:
        for override in self._module.overrides:
            if override.kernels and override.applies_to(name):
                raise ConfigError(
                    f"{name} is compiled, which shows its kernels",
                    where=f"{override.where}.kernels",
                    remedy="describe those of .cubin, .ptx, .fatbin and .ltoir files alone",
                )


def plan_module(
    module: ModuleConfig,
    sources: Sources,
    compiler_of: Callable[[SourceKind], CompilerInfo],
    native: Sequence[int] = (),
    environ: Mapping[str, str] = os.environ,
) -> ModulePlan:
    """Return all that decides the module's bytes; `compiler_of` is asked for the compilers of its sources.

    Raises :class:`BuildError` for an invalid plan.
    """
    units = sources.units()
    check_duplicates(module.name, units)
    assigned = assign_instantiations(module, units, sources.settings, sources.tuning)
    targets: dict[object, tuple[Architecture, ...]] = {}
    libraries: list[LibraryPlan] = []
    divided = [part for source in units for part in divide(source, assigned[source.name])]
    for unit, suffix, may_be_empty in divided:
        settings = sources.settings(unit.name)
        if unit.kind in FRONT_ENDS:
            _check_front_end(module, unit)
        compiler = compiler_of(unit.kind)
        key = settings, compiler.name
        if key not in targets:
            try:
                found = _architectures(module, unit.name, compiler, native, environ)
            except ToolchainError as error:  # of a front-end; the other compilers are there
                error.where = error.where or unit.name
                raise
            targets[key] = targets_of(unit.kind, found)
            if not targets[key]:
                raise ConfigError(
                    f"{unit.name} cannot be compiled to LTO-IR",
                    where=module.key_path("architectures", unit.name),
                    remedy='name others, such as "sm_90", in an override for it',
                )
        if module.settings.link and targets[key] != next(iter(targets.values())):
            raise ConfigError(
                f"a module with {spell_setting('link', True)} is linked as a whole",
                where=module.key_path("architectures", unit.name),
                remedy="take the key out of the override",
            )
        parts = _parts(unit, settings, targets[key])
        for index, (part, architectures) in enumerate(parts):
            libraries.append(
                LibraryPlan(
                    module=module.name,
                    units=(part,),
                    architectures=architectures,
                    compress=module.settings.compress,
                    emit=module.settings.emit,
                    link=module.settings.link,
                    part=index if len(parts) > 1 else None,
                    file_stem=sources.file_stems[unit.name] + suffix,
                    may_be_empty=may_be_empty,
                )
            )
    if units and not libraries:  # a module may consist of headers
        raise ConfigError(
            "the conditions of all instantiations exclude the architectures",
            where=module.key_path("architectures"),
            remedy="add one that they are for, or an instantiation without a condition",
        )
    if module.settings.link:
        linked = tuple(unit for library in libraries for unit in library.units)
        libraries = [replace(libraries[0], units=linked)]
    else:
        libraries = _unite_cubins(libraries)
    obstacles = {unit.name: on_demand_obstacle(unit.options) for unit in units}
    return ModulePlan(
        name=module.name,
        libraries=tuple(libraries),
        compress=module.settings.compress,
        embed=module.settings.jit,
        headers=sources.headers() if module.settings.jit else {},
        obstacles={n: f"it {o}" for n, o in obstacles.items() if o} if module.settings.jit else {},
    )


def _unite_cubins(libraries: Sequence[LibraryPlan]) -> list[LibraryPlan]:
    """Make cubins of the same described kernels one library: they are for different architectures."""
    united: list[LibraryPlan] = []
    for library in libraries:
        names = {kernel.expression for kernel in library.units[0].kernels}
        same = [
            number
            for number, other in enumerate(united)
            if all(unit.kind == "cubin" for unit in (*other.units, *library.units))
            and any(kernel.expression in names for unit in other.units for kernel in unit.kernels)
        ]
        units = [unit for number in same for unit in united[number].units]
        first = united[same[0]] if same else library
        united = [other for number, other in enumerate(united) if number not in same[1:]]
        if same:
            united[same[0]] = replace(first, units=(*units, *library.units))
        else:
            united.append(library)
    return united


def _check_front_end(module: ModuleConfig, unit: TranslationUnit) -> None:
    """Raise :class:`ConfigError` for settings that the kernels of `unit`, a front-end's, do not have."""
    title = {"tile": "CUDA Tile", "cutile": "cuTile", "triton": "Triton"}[unit.kind]
    for key, value in (("compiler", "nvrtc"), ("link", False)):
        if getattr(module.settings, key) != value and (key == "link" or unit.kind == "tile"):
            raise ConfigError(
                f"{unit.name} has kernels of {title}, "
                + ("which cannot be device-linked" if key == "link" else "which NVRTC compiles"),
                where=module.key_path(key),
                remedy=f"give it a module of its own, with {spell_setting(key, value)}",
            )
    if unit.kind == "tile" and unit.options.std in _OLD_STANDARDS:
        raise ConfigError(
            f"{unit.name} has kernels of CUDA Tile, which are C++20",
            where=module.key_path("std", unit.name),
            remedy=f"set {spell_setting('std', 'c++20')} in an override for it",
        )


def _parts(
    unit: TranslationUnit, settings: Settings, architectures: tuple[Architecture, ...]
) -> list[tuple[TranslationUnit, tuple[Architecture, ...]]]:
    """`unit`, or one unit for each of its instantiations, and what each is compiled for.

    The first part has the kernels that are no templates.
    """
    instantiate = unit.instantiate
    if unit.kind in PYTHON:
        return one_for_each_instantiation(unit, architectures)
    if not settings.split_instantiations or settings.link:
        return [(unit, architectures)]
    plain = tuple(written for written in instantiate if not normalise(written).endswith(">"))
    templates = [written for written in instantiate if written not in plain]
    parts = [(*plain, *templates[:1]), *((each,) for each in templates[1:])]
    return [(unit.replace(instantiate=part), architectures) for part in parts]


def compiler_choice(settings: Settings, root: Path) -> CompilerChoice:
    """Return which compiler the project in `root` uses for sources with these `settings`."""
    executable = str(root / settings.nvcc) if settings.nvcc else None
    return CompilerChoice(settings.compiler, executable, settings.launcher)


def native_capabilities(module: ModuleConfig, environ: Mapping[str, str]) -> list[int]:
    """Return the compute capabilities of this machine's GPUs, if the module builds for ``native``."""
    asked = {*module.settings.architectures}
    for override in module.overrides:
        asked.update(override.settings.get("architectures", ()))
    if "native" not in asked and "native" not in environ.get("CUDAARCHS", ""):
        return []
    from cuda_ext.toolchain.cuda_libraries import gpu_capabilities

    return gpu_capabilities()


def _architectures(
    module: ModuleConfig,
    source: str,
    compiler: CompilerInfo,
    native: Sequence[int],
    environ: Mapping[str, str],
) -> tuple[Architecture, ...]:
    names: Sequence[str] = module.for_source(source).architectures
    where = module.key_path("architectures", source)
    overridden = any("architectures" in o.settings and o.applies_to(source) for o in module.overrides)
    if not overridden and (archs := from_cmake(environ.get("CUDAARCHS", ""))):
        names, where = archs, "CUDAARCHS"
    found = expand(names, compiler, where, native)
    match module.settings.emit:
        case "ptx":
            return tuple(sorted({a.as_kind("ptx") for a in found}))
        case "ltoir":
            return tuple(sorted({a.as_kind("ltoir") for a in found}))
        case "cubin":
            found = tuple(a for a in found if a.kind == "cubin")
            if not found:
                raise ConfigError(
                    f"{spell_setting('emit', 'cubin')} needs a real architecture",
                    where=where,
                    remedy='add one, such as "sm_90"',
                )
    return found


def read_source(path: Path, name: str) -> bytes:
    """Read the file `path`, called `name` in errors. Raises :class:`BuildError`."""
    try:
        return read_file(str(path))
    except OSError as error:
        raise BuildError(
            f"cannot be read: {error.strerror}", where=name, remedy="make it a file that you can read"
        ) from None
