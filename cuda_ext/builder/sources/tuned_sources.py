"""Candidates of the kernels in ``tune``, and what was measured of them: one table for each function."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from cuda_ext.builder.config.modules import ModuleConfig, Override
from cuda_ext.builder.config.tune_table import Candidate, Tune
from cuda_ext.builder.sources.globs import find_tuning
from cuda_ext.compiler.file_tree import FileTree
from cuda_ext.compiler.front_ends.instantiation import Instantiation
from cuda_ext.compiler.front_ends.kernel_description import DTYPES
from cuda_ext.compiler.front_ends.python_functions import PythonFunction
from cuda_ext.compiler.headers import read_project_file
from cuda_ext.compiler.translation_unit import TranslationUnit
from cuda_ext.compiler.tuned_kernels import Configuration, Landscape, TunedInstantiation
from cuda_ext.errors import ConfigError
from cuda_ext.facts.candidates import Tuning

if TYPE_CHECKING:
    from cuda_ext.builder.sources.tuning_table import TuningTable

_DIGITS = 16  # of the digest of a source
# The names of dtypes in keys.
_TORCH = {dtype.triton: f"torch.{dtype.torch}" for dtype in DTYPES}


class TunedSources:
    """The tables of a module by function, and the instantiations among candidates that were ``found``.

    If it ``is_complete``, all candidates are built.
    """

    def __init__(self, module: ModuleConfig, root: Path, is_complete: bool) -> None:
        self.found: dict[tuple[str, str], TunedInstantiation] = {}
        self.templates = [entry for entry in module.settings.tune if not entry.is_python]
        self._functions = {entry.function: entry for entry in module.settings.tune if entry.is_python}
        self._root = root
        self._is_complete = is_complete
        self._tables: dict[str, TuningTable] = {}
        self._pruned: dict[str, None] = {}

    @property
    def notes(self) -> Iterator[str]:
        """Messages of the build."""
        yield from self._pruned
        for table in self._tables.values():
            yield from table.describe()

    @property
    def landscapes(self) -> Iterator[Landscape]:
        """The measurements of each kernel on each GPU."""
        for table in self._tables.values():
            yield from table.landscapes.values()

    def add_template(self, entry: Tune, unit: TranslationUnit) -> list[str]:
        """Return the instantiations of `entry` to build from `unit`, each once."""
        texts: dict[str, None] = {}
        table = self._table(entry.tuning.file, unit)
        tuning = _with_key(entry.tuning, table, entry.where)
        for name, candidates in entry.candidates.items():
            configurations = [each.configuration for each in candidates]
            choices = table.choose(name, tuning.key, configurations, is_complete=self._is_complete)
            for each in candidates:
                own = {i: choice for i, choice in enumerate(choices) if choice[0] == each.configuration}
                if own:
                    found = TunedInstantiation(entry.where, tuning, own, name, each.launch)
                    self.found[unit.name, each.text] = found
                    texts[each.text] = None
        return [*texts]

    def configure(
        self, unit: TranslationUnit, function: PythonFunction, each: Instantiation, override: Override | None
    ) -> list[tuple[Instantiation, TunedInstantiation | None]]:
        """Return `each`, of a `function`, in every configuration to build; the default is last.

        Raises :class:`ConfigError` if the candidates or the default cannot be read.
        """
        configurations: list[Configuration] = []
        if entry := self._functions.get(each.function):
            table = self._table(entry.tuning.file, unit)
            entry, configurations = self._decorated(entry, unit)
            where, tuning = entry.where, entry.tuning
        elif override and override.tuning:
            table = self._table(find_tuning(override, FileTree(self._root)), unit)
            where, tuning = table.name, Tuning(table.name, table.key)
        else:
            return [(each, None)]
        tuning = _with_key(tuning, table, where)
        pointers = {p.argument: p.type.removeprefix("*") for p in each.parameters if p.type[0] == "*"}
        types = {name: element.removeprefix("k") for name, element in pointers.items()}
        dtypes = [_TORCH.get(types[name], types[name]) for name in function.parameters if name in types]
        own = configurations, each.constants, dtypes, self._is_complete
        choices = table.choose(each.function, tuning.key, *own)
        return [
            (
                replace(each, configuration=choice.configuration, when=choice.when),
                TunedInstantiation(where, tuning, {position: choice}),
            )
            for position, choice in enumerate(choices)
        ]

    def _decorated(self, entry: Tune, unit: TranslationUnit) -> tuple[Tune, list[Configuration]]:
        """Return `entry` with its key, and the configurations; both may be those of the decorator."""
        if entry.candidates:
            (candidates,) = entry.candidates.values()
            return entry, [each.configuration for each in candidates]
        from cuda_ext.compiler.front_ends.autotune_configs import read_autotune  # few sources have one

        try:
            found = read_autotune(unit.source, entry.function)
        except ValueError as error:
            problem = f"the configurations of {entry.function} in {unit.name} cannot be read: {error}"
            pattern = f'kernel = "{entry.function}(BLOCK={{BLOCK}}, num_warps={{W}})"'
            raise ConfigError(problem, where=entry.where, remedy=f"list values here: {pattern}") from None
        kept = entry.select([Candidate("", each) for each in found.configurations])
        if found.prunes:
            note = f"{unit.name}: prune_configs_by of {entry.function} is not run: {len(kept)} configurations"
            self._pruned[f"{note} are candidates; `when` excludes others"] = None
        entry = replace(entry, tuning=entry.tuning._replace(key=entry.tuning.key or found.key))
        return entry, [each.configuration for each in kept]

    def _table(self, name: str, unit: TranslationUnit) -> TuningTable:
        """Return the table in the file `name`; an empty one if there is none. Raises :class:`BuildError`."""
        from cuda_ext.builder.sources.tuning_table import TuningTable  # few modules have one

        if name not in self._tables:
            path, digest = self._root / name, unit.sha256[:_DIGITS]
            content = read_project_file(path, name) if path.exists() else b"{}"
            self._tables[name] = TuningTable.parse(name, content, digest)
        return self._tables[name]


def _with_key(tuning: Tuning, table: TuningTable, where: str) -> Tuning:
    """Return `tuning` with the key and the source of its `table`. Raises ConfigError for another key."""
    if table.key and tuning.key and table.key != tuning.key:
        problem = f"is {', '.join(tuning.key)}, and {table.name} has the key {', '.join(table.key)}"
        raise ConfigError(problem, where=f"{where}.key", remedy="remove this file, and measure again")
    return tuning._replace(key=table.key or tuning.key, source=table.digest)
