"""Candidates of the kernels in ``tune``, and what was measured of them: one table for each function."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING

from cuda_ext.builder.config.modules import ModuleConfig, Override
from cuda_ext.builder.config.tune_table import Tune
from cuda_ext.builder.sources.globs import find_tuning
from cuda_ext.compiler.file_tree import FileTree
from cuda_ext.compiler.front_ends.python_functions import PythonFunction
from cuda_ext.compiler.headers import read_project_file
from cuda_ext.compiler.translation_unit import TranslationUnit
from cuda_ext.compiler.tuned_kernels import Choice, Landscape, TunedInstantiation, spell_values
from cuda_ext.errors import ConfigError
from cuda_ext.facts.candidates import Measured, Tuning
from cuda_ext.facts.launches import FixedLaunch

if TYPE_CHECKING:
    from cuda_ext.builder.sources.tuning_table import TuningTable

_DIGITS = 16  # of the digest of a source


class TunedSources:
    """The tables of a module by function, and the instantiations among candidates that were found.

    If it ``is_complete``, all candidates are built. ``notes`` are messages of the build.
    """

    def __init__(self, module: ModuleConfig, root: Path, is_complete: bool) -> None:
        self.found: dict[tuple[str, str], TunedInstantiation] = {}
        self._entries = {entry.base: entry for entry in module.settings.tune}
        self._root = root
        self._is_complete = is_complete
        self._tables: dict[object, tuple[TuningTable, str]] = {}
        self._said: list[str] = []

    @property
    def notes(self) -> Iterator[str]:
        yield from dict.fromkeys(self._said)
        for table, digest in self._tables.values():
            yield from table.describe(digest)

    @property
    def landscapes(self) -> Iterator[Landscape]:
        """The measurements of each kernel on each GPU."""
        chosen = {
            (instantiation.tuning.file, case): spell_values(choice.configuration)
            for instantiation in self.found.values()
            for choice in instantiation.choices
            for case in choice.measured
        }
        for table, _ in self._tables.values():
            for (kernel, device), times in _times(table).items():
                cases = sorted({case for of_case in times.values() for case in of_case})
                yield Landscape(
                    f"{kernel}, {', '.join(table.key)}:",
                    device,
                    tuple(", ".join(map(str, case)) for case in cases),
                    {each: tuple(of_case.get(case) for case in cases) for each, of_case in times.items()},
                    tuple(chosen.get((table.name, Measured(device, case)), "") for case in cases),
                )

    @cached_property
    def templates(self) -> Sequence[Tune]:
        """The entries for templates in C++."""
        return [entry for entry in self._entries.values() if not entry.is_python]

    def add_template(self, entry: Tune, unit: TranslationUnit) -> list[str]:
        """Return the instantiations of `entry` to build from `unit`, each once."""
        texts: dict[str, None] = {}
        for name, options in entry.candidates.items():
            table = self._table(entry, unit, [option.configuration for option in options])
            choices = table.choose(partial(table.values_in, name), entry.key)
            for option in options:
                if own := tuple(c for c in choices if c.configuration == option.configuration):
                    self._add(unit, option.text, name, entry, table, own, option.launch)
                    texts[option.text] = None
        return [*texts]

    def of_function(
        self, unit: TranslationUnit, function: PythonFunction, override: Override | None = None
    ) -> TuningTable | None:
        """Return the table of a `function` in Python; ``None`` if it has no candidates."""
        entry = self._entries.get(function.name)
        if not entry or not entry.is_python:
            if not override or not override.tuning:
                return None
            if override.where not in self._tables:
                table = self._read(find_tuning(override, FileTree(self._root)))
                self._tables[override.where] = table, _digest(unit)
            return self._tables[override.where][0]
        if entry.candidates:
            (options,) = entry.candidates.values()
            return self._table(entry, unit, [option.configuration for option in options])
        entry, decorated = self._decorated(entry, unit)
        return self._table(entry, unit, decorated)

    def add_function(
        self, unit: TranslationUnit, text: str, function: str, table: TuningTable, choice: Choice
    ) -> None:
        """Remember that the instantiation `text` of a `function` is the `choice` of `table`."""
        entry = self._entries.get(function, Tune("", function, {}, True))
        self._add(unit, text, "", entry, table, (choice,), None)

    def _add(
        self,
        unit: TranslationUnit,
        text: str,
        name: str,
        entry: Tune,
        table: TuningTable,
        choices: tuple[Choice, ...],
        launch: FixedLaunch | None,
    ) -> None:
        how = entry.grid, entry.arrays, entry.inputs, entry.tolerance
        tuning = Tuning(table.name, table.key, *how, _digest(unit))
        self.found[unit.name, text] = TunedInstantiation(name, entry.where, tuning, choices, launch)

    def _decorated(self, entry: Tune, unit: TranslationUnit) -> tuple[Tune, list[Mapping[str, str]]]:
        """Return `entry` with the key of the decorator, and the configurations that are candidates."""
        from cuda_ext.compiler.front_ends.autotune_configs import read_autotune  # few sources have one

        found = read_autotune(unit.source, entry.function)
        if found is None or found.obstacle:
            problem = f"the configurations of {entry.function} in {unit.name} cannot be read"
            problem += f": {found.obstacle}" if found else ": it has no decorator triton.autotune"
            pattern = f'kernel = "{entry.function}(BLOCK={{BLOCK}}, num_warps={{W}})"'
            raise ConfigError(problem, where=entry.where, remedy=f"list values here: {pattern}")
        kept = [each for each in found.configurations if entry.keeps(each)]
        if entry.default and entry.default not in kept:
            configurations = "; ".join(map(spell_values, kept))
            raise ConfigError(
                "is none of the candidates", where=f"{entry.where}.default", remedy=configurations
            )
        if found.prunes:
            self._said.append(
                f"{unit.name}: prune_configs_by of {entry.function} is not run: {len(kept)} configurations "
                "are candidates; `when` excludes others"
            )
        return replace(entry, key=entry.key or found.key), kept

    def _table(
        self, entry: Tune, unit: TranslationUnit, candidates: Sequence[Mapping[str, str]]
    ) -> TuningTable:
        if not candidates:
            raise ConfigError("excludes all candidates", where=f"{entry.where}.when", remedy="correct it")
        key = entry.base, tuple(tuple(each.items()) for each in candidates)
        if key not in self._tables:
            table = self._read(entry.file)
            table = table.restrict(candidates, entry.key, entry.default, self._is_complete)
            self._tables[key] = table, _digest(unit)
        return self._tables[key][0]

    def _read(self, name: str) -> TuningTable:
        """Read the table in the file `name`; an empty one if there is none. Raises :class:`BuildError`."""
        from cuda_ext.builder.sources.tuning_table import TuningTable  # few modules have one

        path = self._root / name
        return TuningTable.parse(name, read_project_file(path, name)) if path.exists() else TuningTable(name)


def _times(table: TuningTable) -> dict[tuple[str, str], dict[str, dict[tuple[int, ...], float]]]:
    """Return the times in `table` by kernel with its dtypes and GPU, by configuration, and by case."""
    found: dict[tuple[str, str], dict[str, dict[tuple[int, ...], float]]] = {}
    for entry in table.tuned:
        if entry.time and entry.key is not None:
            numbers, dtypes = entry.key[: len(table.key)], entry.key[len(table.key) :]
            kernel = " ".join([entry.kernel or table.name, *map(str, dict.fromkeys(dtypes))])
            of_kernel = found.setdefault((kernel.replace("torch.", ""), entry.device), {})
            of_configuration = of_kernel.setdefault(spell_values(entry.configuration), {})
            of_configuration[tuple(n for n in numbers if isinstance(n, int))] = entry.time
    return found


def _digest(unit: TranslationUnit) -> str:
    return unit.sha256[:_DIGITS]
