"""Compare recorded launches with what the table of a project builds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from cuda_ext.builder.config.modules import ModuleConfig
from cuda_ext.builder.project import Project
from cuda_ext.builder.sources.kernel_owners import assign_instantiations
from cuda_ext.builder.sources.module_sources import Sources
from cuda_ext.builder.sources.tuned_sources import TunedSources
from cuda_ext.compiler.file_tree import FileTree
from cuda_ext.compiler.front_ends.instantiation import Instantiation, parse_instantiation
from cuda_ext.compiler.front_ends.python_functions import PythonFunction, find_functions
from cuda_ext.compiler.translation_unit import PYTHON
from cuda_ext.formats.spelling import base_name, normalise
from cuda_ext.recording.needed_kernels import needed_by, takes, unite
from cuda_ext.recording.records import Launch, RecordError
from cuda_ext.text.declarations import find_declarations, kernel_names

# A constant with more values than these had better be a parameter, or derived from one.
_MANY_VALUES = 8


@dataclass
class Missing:
    """Launches of kernels in the unit `source` that its `module` does not build, and what would build them.

    Each of the ``instantiations`` is for one or more launches. ``notes`` say what is left out.
    """

    module: ModuleConfig
    source: str
    launches: list[Launch] = field(default_factory=list)
    instantiations: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


class _Module:
    """A module of the project: the kernels of its units by name, and what a build instantiates."""

    def __init__(self, config: ModuleConfig, project: Project) -> None:
        self._config = config
        self._functions: dict[str, dict[str, PythonFunction]] = {}
        self._kernels: dict[str, set[str]] = {}
        self._built: dict[tuple[str, str], list[Instantiation]] = {}
        self._expressions: set[str] = set()
        sources = Sources(config, FileTree(project.root))
        tuned = TunedSources(config, project.root, is_complete=True)
        for name, texts in assign_instantiations(config, sources, tuned).items():
            unit = sources.unit(name)
            if unit.kind in PYTHON:
                self._functions[name] = {each.name: each for each in find_functions(unit.source)}
                self._kernels[name] = {*self._functions[name]}
                for each in map(parse_instantiation, texts):
                    self._built.setdefault((name, each.function), []).append(each)
            else:
                declared = find_declarations([unit.source]).kernels
                self._expressions |= {normalise(t) for t in (*texts, *(d.instantiation for d in declared))}
                texts_of_unit = (unit.source, *unit.headers.values()) if unit.kind == "cu" else ()
                self._kernels[name] = {kernel for text in texts_of_unit for kernel in kernel_names(text)}

    def unit_of(self, launch: Launch) -> str:
        """Find the unit that defines the kernel of a launch; empty if there is none."""
        if launch.kind == "module" and launch.module != self._config.name:
            return ""
        is_python, path = launch.source.endswith(".py"), f"/{launch.module.replace('.', '/')}.py"
        units = [
            name
            for name, kernels in self._kernels.items()
            if base_name(launch.kernel) in kernels
            and (name in self._functions) == is_python
            and (not is_python or name == launch.source or f"/{name}".endswith(path))
        ]
        if launch.source in self._kernels and not is_python:
            units.append(launch.source)  # a macro may define it
        return launch.source if launch.source in units else next(iter(units), "")

    def find_missing(self, unit: str, launches: Sequence[Launch]) -> Missing:
        """Find what is missing of a unit for the `launches` of its kernels."""
        missing = Missing(self._config, unit)
        wanted: dict[str, Counter[str]] = {}
        for launch in launches:
            if function := self._functions.get(unit, {}).get(launch.kernel):
                needed = needed_by(launch, function)
                built = self._built.get((unit, launch.kernel), ())
                if any(takes(each, needed, launch, function) for each in built):
                    continue
                wanted.setdefault(launch.kernel, Counter())[str(needed)] += launch.times
            else:
                text = normalise(launch.instantiation)
                if not text.endswith(">") or text in self._expressions:
                    continue
                missing.instantiations += [text] * (text not in missing.instantiations)
            missing.launches.append(launch)
        for kernel, texts in wanted.items():
            built = self._built.get((unit, kernel), ())
            for each in unite(texts, built, self._functions[unit][kernel]):
                (missing.notes if isinstance(each, str) else missing.instantiations).append(str(each))
        return missing


def compare(project: Project, launches: Sequence[Launch]) -> tuple[list[Missing], list[Launch]]:
    """Return what is missing for `launches` in each unit of the project, and those that no unit defines.

    Raises :class:`~cuda_ext.errors.BuildError` as a build does for a mistake in the configuration, and
    :class:`RecordError` for damaged records.
    """
    missing: list[Missing] = []
    unknown = dict.fromkeys(launches)
    for module in (_Module(config, project) for config in project.modules):
        by_unit: dict[str, list[Launch]] = {}
        for launch in launches:
            if unit := module.unit_of(launch):
                by_unit.setdefault(unit, []).append(launch)
                unknown.pop(launch, None)
        try:
            missing += (module.find_missing(unit, own) for unit, own in by_unit.items())
        except ValueError as error:
            remedy = "remove the records, and record again"
            raise RecordError(f"a record has what no kernel can have: {error}", remedy=remedy) from None
    return [each for each in missing if each.launches], [*unknown]


def describe_variation(launches: Sequence[Launch]) -> list[str]:
    """Describe constants of functions in Python that have many values."""
    values: dict[str, set[str]] = {}
    for launch in launches:
        if launch.source.endswith(".py"):
            for name, text in parse_instantiation(launch.instantiation).constants.items():
                values.setdefault(f"{launch.kernel} in {launch.source}: {name}", set()).add(text)
    advice = "make it a parameter, or derive it from one, as in {next_power_of_2(n)}"
    many = {name: len(texts) for name, texts in values.items() if len(texts) > _MANY_VALUES}
    return [f"{name} has {count} values; {advice}" for name, count in many.items()]
