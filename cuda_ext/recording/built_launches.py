"""Compare recorded launches with what the table of a project builds."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from cuda_ext.builder.config.modules import ModuleConfig
from cuda_ext.builder.project import Project
from cuda_ext.builder.sources.kernel_owners import assign_instantiations
from cuda_ext.builder.sources.module_sources import Sources
from cuda_ext.builder.sources.tuned_sources import TunedSources
from cuda_ext.compiler.file_tree import FileTree
from cuda_ext.compiler.front_ends.instantiation import parse_instantiation
from cuda_ext.compiler.front_ends.python_functions import PythonFunction, find_functions
from cuda_ext.compiler.translation_unit import PYTHON
from cuda_ext.formats.spelling import base_name, normalise
from cuda_ext.recording.needed_kernels import needed_by, takes, unite
from cuda_ext.recording.records import Launch, RecordError
from cuda_ext.text.declarations import find_declarations, kernel_names

# A constant with more values than these had better be a parameter, or derived from one.
_MANY_VALUES = 8


class Missing(NamedTuple):
    """Launches of a kernel in the unit `source` that its `module` does not build, and what would build them.

    Each of the ``instantiations`` is for one or more launches. ``notes`` say what is left out.
    """

    module: ModuleConfig
    source: str
    launches: Sequence[Launch]
    instantiations: Sequence[str]
    notes: Sequence[str] = ()


class _Module:
    """A module of the project: the kernels of its units by name, and what a build instantiates."""

    def __init__(self, config: ModuleConfig, project: Project) -> None:
        self._config = config
        self._kernels: dict[str, Mapping[str, PythonFunction | None]] = {}
        self._built: dict[str, list[str]] = {}
        self._texts: dict[str, bytes] = {}
        sources = Sources(config, FileTree(project.root))
        tuned = TunedSources(config, project.root, is_complete=True)
        for name, built in assign_instantiations(config, sources, tuned).items():
            unit = sources.unit(name)
            texts = (unit.source, *unit.headers.values()) if unit.kind == "cu" else ()
            self._texts[name] = b" ".join([*texts, *map(str.encode, unit.options.define.values())])
            self._kernels[name] = dict.fromkeys(kernel for text in texts for kernel in kernel_names(text))
            if unit.kind in PYTHON:
                self._kernels[name] = {each.name: each for each in find_functions(unit.source)}
            elif unit.kind == "cu":
                built += (each.instantiation for each in find_declarations([unit.source]).kernels)
            self._built[name] = built

    def unit_of(self, launch: Launch) -> str:
        """Find the unit that defines the kernel of a launch; empty if there is none."""
        if launch.kind == "module" and launch.module != self._config.name:
            return ""
        suffix = f"/{launch.module.replace('.', '/')}.py" if launch.is_python else ""
        units = [
            name
            for name, kernels in self._kernels.items()
            if base_name(launch.kernel) in kernels
            and name.endswith(".py") == launch.is_python
            and (name == launch.source or f"/{name}".endswith(suffix))
        ]
        if not units and not launch.is_python and launch.source in self._kernels:
            word = rb"##|\b%b\b" % re.escape(base_name(launch.kernel).encode())
            # A macro defines it, or it was renamed.
            return launch.source if re.search(word, self._texts[launch.source]) else ""
        return launch.source if launch.source in units else next(iter(units), "")

    def find_missing(self, unit: str, launches: Sequence[Launch]) -> Missing:
        """Find what is missing for the `launches` of one kernel of a unit."""
        function = self._kernels[unit].get(launches[0].kernel)
        if function is None:
            of_units = (texts for name, texts in self._built.items() if not name.endswith(".py"))
            built = {normalise(text) for texts in of_units for text in texts}
            named = {each: normalise(each.instantiation) for each in launches}
            own = [each for each, text in named.items() if text.endswith(">") and text not in built]
            return Missing(self._config, unit, own, [*dict.fromkeys(named[each] for each in own)])
        instantiations = [parse_instantiation(text) for text in self._built[unit]]
        of_kernel = [each for each in instantiations if each.function == function.name]
        wanted: Counter[str] = Counter()
        left: list[Launch] = []
        for launch in launches:
            needed = needed_by(launch, function)
            if not any(takes(each, needed, launch, function) for each in of_kernel):
                wanted[str(needed)] += launch.times
                left.append(launch)
        return Missing(self._config, unit, left, *unite(wanted, of_kernel, function))


def compare(project: Project, launches: Sequence[Launch]) -> tuple[list[Missing], list[Launch]]:
    """Return what is missing for `launches` of each kernel of the project, and those that no unit defines.

    Raises :class:`~cuda_ext.errors.BuildError` as a build does for a mistake in the configuration, and
    :class:`RecordError` for damaged records.
    """
    missing: list[Missing] = []
    unknown = dict.fromkeys(launches)
    for module in (_Module(config, project) for config in project.modules):
        by_kernel: dict[tuple[str, str], list[Launch]] = {}
        for launch in launches:
            if unit := module.unit_of(launch):
                by_kernel.setdefault((unit, launch.kernel), []).append(launch)
                unknown.pop(launch, None)
        try:
            missing += (module.find_missing(unit, own) for (unit, _), own in by_kernel.items())
        except ValueError as error:
            remedy = "remove the records, and record again"
            raise RecordError(f"a record has what no kernel can have: {error}", remedy=remedy) from None
    return [each for each in missing if each.launches], [*unknown]


def describe_variation(launches: Sequence[Launch]) -> list[str]:
    """Describe constants of functions in Python that have many values."""
    values: dict[str, set[str]] = {}
    for launch in launches:
        if launch.is_python:
            for name, text in parse_instantiation(launch.instantiation).constants.items():
                values.setdefault(f"{launch.kernel} in {launch.source}: {name}", set()).add(text)
    advice = "make it a parameter, or derive it from one, as in {next_power_of_2(n)}"
    many = {name: len(texts) for name, texts in values.items() if len(texts) > _MANY_VALUES}
    return [f"{name} has {count} values; {advice}" for name, count in many.items()]
