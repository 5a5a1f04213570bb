"""Find the sources that define each kernel of a module, as far as the texts show.

Each instantiation goes to the source that defines its kernel. Two sources that define one kernel are refused
before anything is compiled, if the texts leave no doubt: macros, overloads and conditional code are left to
the compiler, and afterwards the kernels of all images are compared.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import cache, cached_property

from cuda_ext.builder.config.modules import ModuleConfig
from cuda_ext.builder.sources.module_sources import Sources
from cuda_ext.builder.sources.tuned_sources import TunedSources
from cuda_ext.compiler.front_ends.python_functions import find_functions
from cuda_ext.compiler.module_plan import defined_twice
from cuda_ext.compiler.spelled_settings import spell_override
from cuda_ext.compiler.translation_unit import PYTHON, TranslationUnit
from cuda_ext.errors import BuildError, ConfigError, closest_name, shorten
from cuda_ext.formats.spelling import base_name, normalise, template_name
from cuda_ext.text.declarations import find_declarations, kernel_names
from cuda_ext.text.lexer import read_text


def assign_instantiations(
    module: ModuleConfig, sources: Sources, tuned: TunedSources
) -> dict[str, list[str]]:
    """Give each instantiation of the module to the one of its `sources` that defines its kernel.

    Those among the candidates of a kernel are added to `tuned`.
    """
    units = sources.units()
    assigned: dict[str, list[str]] = {u.name: [] for u in units}
    for unit in units:
        for override in module.overrides:
            if override.applies_to(unit.name) and (wanted := override.settings.get("instantiate")):
                if unit.kind in PYTHON:
                    from cuda_ext.builder.sources.python_kernels import check_instantiations

                    where = f"{override.where}.instantiate"
                    wanted = check_instantiations(unit, dict(enumerate(wanted)), where, tuned, override)
                elif unit.kind != "cu":
                    raise ConfigError(
                        f"{unit.name} has no templates",
                        where=f"{override.where}.instantiate",
                        remedy="only .cu sources do: name those",
                    )
                assigned[unit.name] += wanted
    if module.settings.instantiate or tuned.templates:
        owners = _Owners([u for u in units if u.kind == "cu"], sources)
        _assign_of_module(module, units, owners, assigned, tuned)
        for entry in tuned.templates:
            owner = _owner(f"{entry.function}<...>", owners, module, f"{entry.where}.kernel")
            assigned[owner] += tuned.add_template(entry, sources.unit(owner))
    return assigned


def _assign_of_module(
    module: ModuleConfig,
    units: Sequence[TranslationUnit],
    owners: _Owners,
    assigned: dict[str, list[str]],
    tuned: TunedSources,
) -> None:
    """Add the instantiations of all sources to `assigned`. `owners` are those of kernels in CUDA C++."""
    where = module.key_path("instantiate")
    functions = _functions(unit for unit in units if unit.kind in PYTHON)
    of_functions: dict[str, dict[int, str]] = {}
    for number, expression in enumerate(module.settings.instantiate):
        function = expression.partition("(")[0].strip()
        if function in functions and function not in owners.kernels:
            of_functions.setdefault(function, {})[number] = expression
        else:
            assigned[_owner(expression, owners, module, where)].append(expression)
    for function, texts in of_functions.items():
        from cuda_ext.builder.sources.python_kernels import check_instantiations

        unit, *others = functions[function]
        if others:
            raise _ambiguous(function, function, [each.name for each in functions[function]], module, where)
        assigned[unit.name] += check_instantiations(unit, texts, where, tuned)


def _functions(units: Iterable[TranslationUnit]) -> dict[str, list[TranslationUnit]]:
    """Return the `units` that define each function in Python."""
    found: dict[str, list[TranslationUnit]] = {}
    for unit in units:
        for function in find_functions(unit.source):
            found.setdefault(function.name, []).append(unit)
    return found


def _ambiguous(
    expression: str, kernel: str, names: Iterable[str], module: ModuleConfig, where: str
) -> ConfigError:
    return ConfigError(
        f"{shorten(expression)!r}: {' and '.join(names)} each define {shorten(kernel)!r}",
        where=where,
        remedy=f"give the instantiation to one of them in {spell_override(module.where)}",
    )


def _owner(expression: str, owners: _Owners, module: ModuleConfig, where: str) -> str:
    """Return the name of the unit that defines the kernel of `expression`."""
    name = template_name(normalise(expression))
    kernel = name.rpartition("::")[2]
    found = owners.of(kernel)
    if len(found) > 1:
        found = owners.exactly_of(name, found) or found
    if len(found) > 1:
        raise _ambiguous(expression, kernel, found, module, where)
    if not found:
        close = closest_name(kernel, owners.kernels)
        hint = f"they define {', '.join(owners.kernels) or 'none'}"
        if close:
            meant = normalise(expression).replace(name, owners.qualify(close), 1)
            hint = f"did you mean {shorten(meant)!r}?"
        raise ConfigError(
            f"{shorten(expression)!r}: no source defines a kernel {shorten(kernel)!r}",
            where=where,
            remedy=hint,
        )
    return found[0]


class _Owners:
    """The units that define each kernel, as far as their text shows."""

    def __init__(self, units: Sequence[TranslationUnit], sources: Sources) -> None:
        self._units = units
        self._sources = sources

    @cached_property
    def _in_sources(self) -> dict[str, list[str]]:
        found: dict[str, list[str]] = {}
        for unit in self._units:
            for kernel in kernel_names(unit.source):
                found.setdefault(kernel, []).append(unit.name)
        return found

    @property
    def kernels(self) -> list[str]:
        return sorted(self._in_sources)

    def qualify(self, kernel: str) -> str:
        """Return the name of `kernel` with its namespaces."""
        for unit in self._units:
            for declared in find_declarations((unit.source, *unit.headers.values())).kernels:
                if base_name(declared.name) == kernel:
                    return declared.name
        return kernel

    def of(self, kernel: str) -> list[str]:
        """List the units that have `kernel` in their own text, or else in a header, or else in a macro.

        Of those that have it from the same headers, and the same settings, it is the first alone.
        """
        if len(self._units) == 1 and not self._lacks(kernel):
            return [self._units[0].name]
        if kernel in self._in_sources:
            return self._in_sources[kernel]
        defines = cache(lambda header: kernel in kernel_names(header))
        first: dict[object, str] = {}
        for unit in self._units:
            if headers := frozenset(name for name, text in unit.headers.items() if defines(text)):
                settings = replace(self._sources.settings(unit.name), instantiate=())
                first.setdefault((headers, repr(settings)), unit.name)
        word = re.compile(rb"\b" + re.escape(kernel.encode()) + rb"\b")
        return list(first.values()) or [u.name for u in self._units if word.search(u.source)]

    def exactly_of(self, name: str, sources: Sequence[str]) -> list[str]:
        """Select the `sources` whose text defines a kernel of this `name`, with all its namespaces."""
        return [
            unit.name
            for unit in self._units
            if unit.name in sources
            and any(kernel.name == name for kernel in find_declarations([unit.source]).kernels)
        ]

    def _lacks(self, kernel: str) -> bool:
        """Return True if the only unit certainly does not define `kernel`, by a macro or in other headers."""
        (unit,) = self._units
        texts = [unit.source, *unit.headers.values(), *map(str.encode, unit.options.define.values())]
        hiding = re.compile(rb"##|<(?:cub|thrust|cuda)/|\b%b\b" % re.escape(kernel.encode()))
        return not unit.options.raw and not any(hiding.search(text) for text in texts)


def check_duplicates(module: str, units: Sequence[TranslationUnit]) -> None:
    """Raise :class:`~cuda_ext.errors.BuildError` if two of `units` define a kernel that is no template."""
    defining: dict[str, list[TranslationUnit]] = {}
    for unit in units:
        if unit.kind == "cu":
            for name in sorted(kernel_names(unit.source)):
                defining.setdefault(name, []).append(unit)
    for name, several in defining.items():
        owners: dict[str, str] = {}
        for unit in several if len(several) > 1 else ():
            if (qualified := _definition(unit, name)) is None:
                continue
            if (owner := owners.setdefault(qualified, unit.name)) != unit.name:
                error = defined_twice(qualified, owner, unit.name)
                raise BuildError(f"{module}:\n{error.problem}", remedy=error.remedy)


def _definition(unit: TranslationUnit, name: str) -> str | None:
    """Return the qualified name of the only kernel `name` in `unit`; ``None`` where there may be others."""
    options = map(str.encode, (*unit.options.define, *unit.options.raw))
    uncertain = [*unit.headers.values(), *options, read_text(unit.source).directives]
    if any(re.search(rb"\b%b\b" % name.encode(), part) for part in uncertain):
        return None
    found = [k for k in find_declarations([unit.source]).kernels if base_name(k.name) == name]
    return found[0].name if len(found) == 1 and found[0].is_plain and found[0].is_definition else None
