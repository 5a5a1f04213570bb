"""Plan a module: assign instantiations to translation units, check architectures, divide it into libraries.

Nothing is compiled. Only architectures need the compiler.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from cuda_ext.builder.config.keys import Settings
from cuda_ext.builder.config.modules import ModuleConfig
from cuda_ext.builder.sources.kernel_owners import assign_instantiations, check_duplicates
from cuda_ext.builder.sources.module_sources import Sources
from cuda_ext.builder.sources.tuned_sources import TunedSources
from cuda_ext.compiler.architectures import expand, from_cmake, targets_of
from cuda_ext.compiler.compile_options import on_demand_obstacle
from cuda_ext.compiler.front_ends.tile_code import divide
from cuda_ext.compiler.module_plan import LibraryPlan, ModulePlan
from cuda_ext.compiler.spelled_settings import spell_override, spell_setting
from cuda_ext.compiler.translation_unit import (
    FRONT_ENDS,
    PYTHON,
    TITLES,
    CompilerInfo,
    SourceKind,
    TranslationUnit,
)
from cuda_ext.compiler.tuned_kernels import Tuned, find_tuned
from cuda_ext.errors import ConfigError, ToolchainError
from cuda_ext.facts.architecture import Architecture
from cuda_ext.formats.spelling import normalise
from cuda_ext.text.macros import WORD
from cuda_ext.toolchain.compilers import CompilerChoice
from cuda_ext.toolchain.cuda_libraries import gpu_capabilities

# The C++ standards that CUDA's header for tiles refuses.
_OLD_STANDARDS = ("c++03", "c++11", "c++14", "c++17")


def plan_module(
    module: ModuleConfig,
    sources: Sources,
    compiler_of: Callable[[SourceKind], CompilerInfo],
    environ: Mapping[str, str] = os.environ,
) -> ModulePlan:
    """Return everything that determines the module's bytes; `compiler_of` returns the compiler of a kind.

    Raises :class:`BuildError` for an invalid plan.
    """
    units = sources.units()
    check_duplicates(module.name, units)
    tuned = TunedSources(module, sources.root, environ.get("CUDA_EXT_CANDIDATES", "0") not in ("", "0"))
    assigned = assign_instantiations(module, sources, tuned)
    constants = _assign_constants(module.settings.constants, units)
    targets: dict[object, tuple[Architecture, ...]] = {}
    libraries: list[LibraryPlan] = []
    asked = [unit.replace(constants=constants[unit.name]) for unit in units]
    divided = [part for source in asked for part in divide(source, assigned[source.name])]
    for unit, suffix, may_be_empty in divided:
        settings = sources.settings(unit.name)
        if unit.kind in FRONT_ENDS:
            _check_front_end(module, unit)
        compiler = compiler_of(unit.kind)
        key = settings, compiler.name
        if key not in targets:
            try:
                found = _architectures(module, unit.name, compiler, environ)
            except ToolchainError as error:
                if unit.kind in FRONT_ENDS:  # the other compilers may exist
                    error.where = error.where or unit.name
                raise
            targets[key] = targets_of(unit.kind, found)
            if not targets[key]:
                raise ConfigError(
                    f"{unit.name} cannot be compiled to LTO-IR",
                    where=module.key_path("architectures", unit.name),
                    remedy=f'name others, such as "sm_90", in {spell_override()} for it',
                )
        if module.settings.link and targets[key] != next(iter(targets.values())):
            raise ConfigError(
                f"a module with {spell_setting('link', True)} is linked as a whole",
                where=module.key_path("architectures", unit.name),
                remedy="take the key out of the override",
            )
        parts = _parts(unit, settings, targets[key], tuned.found)
        for index, (part, architectures) in enumerate(parts):
            candidate = find_tuned(part.name, part.instantiate, tuned.found)
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
                    launch=candidate.launch if candidate else None,
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
        tuned=tuned.found,
        notes=tuple(tuned.notes),
        landscapes=tuple(tuned.landscapes),
    )


def _assign_constants(
    constants: Sequence[str], units: Sequence[TranslationUnit]
) -> dict[str, tuple[str, ...]]:
    """Assign each of `constants` to the units whose text has all its words, or else to all units.

    A unit that lacks a constant is compiled twice.
    """
    words = {unit.name: set[str]() for unit in units}
    if constants:
        for unit in units:
            for text in (unit.source, *unit.headers.values()):
                words[unit.name] |= set(WORD.findall(text.decode(errors="replace")))
    asked: dict[str, list[str]] = {name: [] for name in words}
    for constant in constants:
        needed = set(WORD.findall(constant)) & set().union(*words.values())
        owners = [name for name, own in words.items() if needed and needed <= own]
        for name in owners or words:
            asked[name].append(constant)
    return {name: tuple(found) for name, found in asked.items()}


def _unite_cubins(libraries: Sequence[LibraryPlan]) -> list[LibraryPlan]:
    """Unite cubins of the same described kernels, for different architectures, in one library."""
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
    """Raise :class:`ConfigError` for settings that kernels of a front-end, in `unit`, do not have."""
    title = TITLES[unit.kind]
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
            remedy=f"set {spell_setting('std', 'c++20')} in {spell_override()} for it",
        )


def _parts(
    unit: TranslationUnit,
    settings: Settings,
    architectures: tuple[Architecture, ...],
    tuned: Tuned,
) -> list[tuple[TranslationUnit, tuple[Architecture, ...]]]:
    """Return `unit`, or the parts into which its instantiations are divided, with the architectures of each.

    The first part has the kernels that are not templates. Each candidate in `tuned` is a part.
    """
    if unit.kind in PYTHON:
        from cuda_ext.builder.sources.python_kernels import one_for_each_instantiation

        return one_for_each_instantiation(unit, architectures)
    candidates = [text for text in unit.instantiate if (unit.name, text) in tuned]
    others = [text for text in unit.instantiate if text not in candidates]
    # Without others, the part of the first candidate has the kernels that are no templates.
    parts = _divide(unit, others, settings) if others or not candidates else []
    parts += [unit.replace(instantiate=(text,)) for text in candidates]
    return [(each, architectures) for each in parts]


def _divide(unit: TranslationUnit, texts: Sequence[str], settings: Settings) -> list[TranslationUnit]:
    if not settings.split_instantiations or settings.link:
        return [unit.replace(instantiate=tuple(texts))]
    plain = [written for written in texts if not normalise(written).endswith(">")]
    templates = [written for written in texts if written not in plain]
    each = settings.split_instantiations is True
    number = len(templates) if each else min(settings.split_instantiations, len(templates))
    first, *others = _deal(templates, max(number, 1))
    return [unit.replace(instantiate=tuple(part)) for part in (plain + first, *others)]


def _deal(templates: Sequence[str], number: int) -> list[list[str]]:
    """Divide `templates` into `number` parts, whose lengths differ by at most one.

    One more at the end changes one part. Two parts are the Thue-Morse sequence, and more its generalization:
    in turn, one part would get all combinations with the last value of a table, such as the largest block.

    >>> _deal(["f<0>", "f<1>", "f<2>", "f<3>", "f<4>"], 2)
    [['f<0>', 'f<3>'], ['f<1>', 'f<2>', 'f<4>']]
    """
    if number == 1:
        return [[*templates]]
    parts: list[list[str]] = [[] for _ in range(number)]
    for index, template in enumerate(templates):
        parts[_sum_of_digits(index, number) % number].append(template)
    return parts


def _sum_of_digits(value: int, base: int) -> int:
    total = 0
    while value:
        value, digit = divmod(value, base)
        total += digit
    return total


def compiler_choice(settings: Settings, root: Path) -> CompilerChoice:
    """Return the compiler that the project in `root` uses for sources with these `settings`."""
    executable = str(root / settings.nvcc) if settings.nvcc else None
    return CompilerChoice(settings.compiler, executable, settings.launcher)


def _architectures(
    module: ModuleConfig,
    source: str,
    compiler: CompilerInfo,
    environ: Mapping[str, str],
) -> tuple[Architecture, ...]:
    names: Sequence[str] = module.for_source(source).architectures
    where = module.key_path("architectures", source)
    overridden = any("architectures" in o.settings and o.applies_to(source) for o in module.overrides)
    if not overridden and (archs := from_cmake(environ.get("CUDAARCHS", ""))):
        names, where = archs, "CUDAARCHS"
    found = expand(names, compiler, where, gpu_capabilities() if "native" in names else ())
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
