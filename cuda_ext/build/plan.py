"""From configuration to translation units: headers gathered, instantiations assigned, architectures checked.

Reading is all that happens here; no compiler is needed until architectures are asked for.
"""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Sequence
from pathlib import Path

from cuda_ext.build.config import ModuleConfig
from cuda_ext.build.files import KINDS, find_sources, include_directories
from cuda_ext.compiler import headers
from cuda_ext.compiler.architectures import Architecture, expand
from cuda_ext.compiler.module import ModulePlan, UnitPlan
from cuda_ext.compiler.names import kernel_names, normalise, split_template
from cuda_ext.compiler.translation_unit import Compiler, Options, TranslationUnit
from cuda_ext.errors import BuildError, ConfigError

__all__ = ["gather_unit", "native_capabilities", "plan_module"]


def gather_unit(module: ModuleConfig, source: Path, root: Path) -> TranslationUnit:
    """Read one source and its headers. Instantiations are the override's own; see :func:`plan_module`."""
    name = source.relative_to(root).as_posix()
    settings = module.for_source(name)
    kind = KINDS[source.suffix]
    if kind != "cu":
        return TranslationUnit(name, _read(source, name), kind)
    include_dirs = include_directories(module, root)
    text, found = headers.gather(source, root, include_dirs, settings.pre_include)
    options = Options(
        std=settings.std,
        define=settings.define,
        raw=settings.options,
        pre_include=tuple(headers.resolve(h, root, include_dirs) for h in settings.pre_include),
        fast_math=settings.fast_math,
        relaxed_constexpr=settings.relaxed_constexpr,
        relocatable=settings.link,
    )
    return TranslationUnit(name, text, kind, found, options)


def plan_module(
    module: ModuleConfig, root: Path, compiler: Compiler, native: Sequence[int] = ()
) -> ModulePlan:
    """Everything that decides the module's bytes. Raises :class:`BuildError` for what cannot work."""
    units = [gather_unit(module, source, root) for source in find_sources(module, root)]
    assigned = _assign_instantiations(module, units)
    plans: list[UnitPlan] = []
    for unit in units:
        targets = _architectures(module, unit.name, compiler, native)
        if module.settings.link and plans and targets != plans[0].architectures:
            raise ConfigError(
                f"{module.key_path('architectures', unit.name)}: a module with link = true is linked as a "
                "whole; take the key out of the override"
            )
        plans.append(UnitPlan(_with_instantiations(unit, assigned[unit.name]), targets))
    settings = module.settings
    return ModulePlan(
        name=module.name,
        units=tuple(plans),
        compress=settings.compress,
        emit=settings.emit,
        link=settings.link,
        embed=settings.jit,
    )


def native_capabilities(module: ModuleConfig) -> list[int]:
    """The compute capabilities of the GPUs in this machine, if the module asks for them."""
    asked = {*module.settings.architectures}
    for override in module.overrides:
        asked.update(override.settings.get("architectures", ()))
    if "native" not in asked and "native" not in os.environ.get("CUDAARCHS", ""):
        return []
    from cuda_ext.devices import capabilities

    return capabilities()


def _with_instantiations(unit: TranslationUnit, instantiate: Sequence[str]) -> TranslationUnit:
    unique = {normalise(expression): expression for expression in instantiate}
    return TranslationUnit(
        unit.name, unit.source, unit.kind, unit.headers, unit.options, tuple(unique.values())
    )


def _architectures(
    module: ModuleConfig, source: str, compiler: Compiler, native: Sequence[int]
) -> tuple[Architecture, ...]:
    names: Sequence[str] = module.for_source(source).architectures
    where = module.key_path("architectures", source)
    overridden = any("architectures" in o.settings and o.applies_to(source) for o in module.overrides)
    if not overridden and (archs := _from_cmake(os.environ.get("CUDAARCHS", ""))):
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
                raise ConfigError(f'{where}: emit = "cubin" needs a real architecture, such as "sm_90"')
    return found


def _from_cmake(text: str) -> list[str]:
    """``CUDAARCHS`` in CMake's spelling: ``90`` is both, ``90-real`` the cubin, ``90-virtual`` the PTX."""
    names: list[str] = []
    for item in filter(None, re.split(r"[;,\s]+", text)):
        number, _, kind = item.partition("-")
        if not re.fullmatch(r"\d+[af]?", number) or kind not in ("", "real", "virtual"):
            names.append(item)
            continue
        names += [f"sm_{number}"] if kind != "virtual" else []
        names += [f"compute_{number}"] if kind != "real" else []
    return names


def _assign_instantiations(module: ModuleConfig, units: Sequence[TranslationUnit]) -> dict[str, list[str]]:
    """Give each instantiation of the module to the unit that defines its kernel."""
    assigned: dict[str, list[str]] = {u.name: [] for u in units}
    for unit in units:
        for override in module.overrides:
            if override.applies_to(unit.name) and (wanted := override.settings.get("instantiate")):
                if unit.kind != "cu":
                    raise ConfigError(
                        f"{override.where}.instantiate: {unit.name} has no templates; only .cu sources do"
                    )
                assigned[unit.name] += wanted
    sources = [u for u in units if u.kind == "cu"]
    where = module.key_path("instantiate")
    for expression in module.settings.instantiate:
        kernel = split_template(normalise(expression))[0].rpartition("::")[2]
        owners = _defining(kernel, sources)
        if len(owners) > 1:
            raise ConfigError(
                f"{where}: {expression!r}: {' and '.join(u.name for u in owners)} each define {kernel!r}; "
                f"give the instantiation to one of them in [[{module.where}.overrides]]"
            )
        if not owners:
            known = sorted({name for u in sources for name in kernel_names(u.source)})
            close = difflib.get_close_matches(kernel, known, n=1)
            hint = (
                f"did you mean {expression.replace(kernel, close[0], 1)!r}?"
                if close
                else f"they define {', '.join(known) or 'none'}"
            )
            raise ConfigError(f"{where}: {expression!r}: no source defines a kernel {kernel!r}; {hint}")
        assigned[owners[0].name].append(expression)
    return assigned


def _defining(kernel: str, units: Sequence[TranslationUnit]) -> list[TranslationUnit]:
    """The units that define `kernel`: in their own text, else in a header, else through a macro."""
    if len(units) == 1:
        return list(units)
    word = re.compile(rb"\b" + re.escape(kernel.encode()) + rb"\b")
    return (
        [u for u in units if kernel in kernel_names(u.source)]
        or [u for u in units if any(kernel in kernel_names(h) for h in u.headers.values())]
        or [u for u in units if word.search(u.source)]
    )


def _read(path: Path, name: str) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise BuildError(f"{name}: cannot be read: {error.strerror}") from None
