"""Compare recorded launches with what the table of a project builds, and add to it what is missing."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from cuda_ext.builder.config.modules import ModuleConfig, parse_table
from cuda_ext.builder.project import Project
from cuda_ext.builder.sources.kernel_owners import assign_instantiations
from cuda_ext.builder.sources.module_sources import Sources
from cuda_ext.builder.sources.tuned_sources import TunedSources
from cuda_ext.compiler.file_tree import FileTree
from cuda_ext.compiler.front_ends.instantiation import Instantiation, parse_instantiation
from cuda_ext.compiler.front_ends.python_functions import PythonFunction, find_functions
from cuda_ext.compiler.translation_unit import PYTHON, TranslationUnit
from cuda_ext.errors import ConfigError, ToolchainError
from cuda_ext.filesystem.regular_file import read_file
from cuda_ext.formats.spelling import base_name, normalise
from cuda_ext.recording.folding import fold, spell
from cuda_ext.recording.needed_kernels import instantiate, takes, unite
from cuda_ext.recording.records import Launch, RecordError
from cuda_ext.text.declarations import find_declarations, kernel_names


@dataclass
class Missing:
    """The launches of the unit `source` of a module that its table does not build, and what would build them.

    Each of the ``instantiations`` is for one or more launches. ``notes`` say what is left out.
    """

    module: ModuleConfig
    source: str
    launches: list[Launch]
    instantiations: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def where(self) -> str:
        """The key path of the array to which the instantiations belong; that of overrides without one."""
        for override in self.module.overrides:
            if override.sources == (self.source,) and not override.tuning:
                return f"{override.where}.instantiate"
        if self.source.endswith(".py"):
            return f"{self.module.where}.overrides"
        return self.module.key_path("instantiate")


class _Module:
    """A module of the project: its units, and their instantiations as a build assigns them."""

    def __init__(self, config: ModuleConfig, root: Path) -> None:
        self.config = config
        sources = Sources(config, FileTree(root))
        self.units = {unit.name: unit for unit in sources.units()}
        assigned = assign_instantiations(config, sources, TunedSources(config, root, is_complete=True))
        self._built: dict[str, dict[str, list[Instantiation]]] = {}
        self.functions: dict[str, dict[str, PythonFunction]] = {}
        self._expressions: set[str] = set()
        for name, texts in assigned.items():
            if self.units[name].kind in PYTHON:
                by_name = self._built.setdefault(name, {})
                for each in map(parse_instantiation, texts):
                    by_name.setdefault(each.function, []).append(each)
                self.functions[name] = {each.name: each for each in find_functions(self.units[name].source)}
            else:
                declared = find_declarations([self.units[name].source]).kernels
                self._expressions |= {normalise(t) for t in (*texts, *(d.instantiation for d in declared))}

    def unit_of(self, launch: Launch) -> TranslationUnit | None:
        """Find the unit that defines the kernel of a launch."""
        if launch.kind in PYTHON:
            path = f"{launch.module.replace('.', '/')}.py"
            names = [n for n in self.units if n == launch.source] or [
                n for n in self.units if f"/{n}".endswith(f"/{path}")
            ]
            return next((self.units[n] for n in names if launch.kernel in self.functions.get(n, ())), None)
        if launch.kind == "cuda" and launch.module != self.config.name:
            return None
        kernel = base_name(launch.kernel)
        for unit in self.units.values():
            texts = (unit.source, *unit.headers.values())
            if unit.kind == "cu" and any(kernel in kernel_names(text) for text in texts):
                return unit
        return self.units.get(launch.source)

    def builds(self, launch: Launch, unit: TranslationUnit) -> bool:
        """Return True if a build of the module has a kernel for the launch."""
        if unit.kind in PYTHON:
            function = self.functions[unit.name][launch.kernel]
            built = self._built[unit.name].get(launch.kernel, ())
            return any(takes(each, launch, function) for each in built)
        return not launch.kernel.endswith(">") or normalise(launch.kernel) in self._expressions

    def find_missing(self, launches: Sequence[Launch]) -> Iterator[Missing]:
        """Yield what is missing in each unit, of `launches` of this module."""
        by_unit: dict[str, list[Launch]] = {}
        for launch in launches:
            unit = self.unit_of(launch)
            if unit and not self.builds(launch, unit):
                by_unit.setdefault(unit.name, []).append(launch)
        for name, own in by_unit.items():
            missing = Missing(self.config, name, own)
            if self.units[name].kind not in PYTHON:
                missing.instantiations += dict.fromkeys(normalise(launch.kernel) for launch in own)
                yield missing
                continue
            wanted: dict[str, Counter[str]] = {}
            for launch in own:
                text = str(instantiate(launch, self.functions[name][launch.kernel]))
                wanted.setdefault(launch.kernel, Counter())[text] += launch.times
            for kernel, texts in wanted.items():
                built = self._built[name].get(kernel, ())
                for each in unite(texts, built, self.functions[name][kernel]):
                    (missing.notes if isinstance(each, str) else missing.instantiations).append(str(each))
            yield missing


class Comparison(NamedTuple):
    """The launches that no module builds, by module and source, and those that no source defines."""

    missing: list[Missing]
    unknown: list[Launch]


def compare(modules: Sequence[ModuleConfig], root: Path, launches: Sequence[Launch]) -> Comparison:
    """Compare `launches` with what the `modules` of the project in `root` build.

    Raises :class:`~cuda_ext.errors.BuildError` as a build does for a mistake in the configuration, and
    :class:`RecordError` for damaged records.
    """
    planned = [_Module(module, root) for module in modules]
    try:
        missing = [each for module in planned for each in module.find_missing(launches)]
    except ValueError as error:
        remedy = "remove the records, and record again"
        raise RecordError(f"a record has what no kernel can have: {error}", remedy=remedy) from None
    unknown = [each for each in launches if not any(module.unit_of(each) for module in planned)]
    return Comparison(missing, unknown)


def add_to_table(project: Project, missing: Sequence[Missing]) -> bytes:
    """Return pyproject.toml with instantiations for what is `missing`; all else stays as it is.

    Raises :class:`~cuda_ext.errors.ToolchainError` without tomlkit, and :class:`ConfigError` for a file that
    cannot be extended.
    """
    try:
        import tomlkit
    except ModuleNotFoundError:
        remedy = 'install "cuda-ext[record]"'
        raise ToolchainError("tomlkit, which keeps comments, is not installed", remedy=remedy) from None
    document = tomlkit.parse(read_file(str(project.root / "pyproject.toml")).decode())
    for each in missing:
        if each.instantiations:
            _add(document, each)
    modules, _ = parse_table(document.unwrap()["tool"]["cuda_ext"], project.modules[0].name)
    complete = [launch for each in missing if not each.notes for launch in each.launches]
    for left in compare(modules, project.root, complete).missing:
        raise ConfigError("cannot be extended", where=left.where, remedy=f"add {left.instantiations}")
    return tomlkit.dumps(document).encode()


def _add(document: Any, missing: Missing) -> None:
    from tomlkit import aot, array, inline_table, table, value
    from tomlkit.items import Array

    *parents, key = _split(missing.where)
    place = document
    for parent in parents:
        if not isinstance(parent, int) and parent not in place:
            place[parent] = table(is_super_table=parent == "modules")
        place = place[parent]
    items: Any = array().multiline(True)
    if key == "overrides":
        before = (place[key][-1] if key in place else place).as_string()
        of_tables = not isinstance(place.setdefault(key, aot()), Array)
        override: Any = table() if of_tables else inline_table()
        place[key].append(override.append("sources", [missing.source]).append("instantiate", items))
        items = place[key][-1]["instantiate"]
        if of_tables:
            place[key][-1].trivia.indent = "" if before.endswith("\n\n") else "\n"
    else:
        items = place.setdefault(key, items)
    for item in fold(missing.instantiations):
        if isinstance(items, Array):
            items.append(value(spell(item)))
        else:
            items.append(item if isinstance(item, dict) else {"kernel": item})


def _split(where: str) -> list[str | int]:
    """Divide a key path, ``tool.cuda_ext.modules."p.kernels".overrides[0]``, into keys and indices."""
    parts = re.findall(r'"((?:[^"\\]|\\.)*)"|\[(\d+)\]|([\w-]+)', where)
    return [int(index) if index else quoted or plain for quoted, index, plain in parts]
