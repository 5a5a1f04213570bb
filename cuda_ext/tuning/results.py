"""Files of measurements: an entry is a line, and several programs may add entries to one file."""

from __future__ import annotations

import ast
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

from cuda_ext.errors import ConfigError
from cuda_ext.facts.launches import TRITON_OPTIONS
from cuda_ext.filesystem.atomic_directory import replace_file
from cuda_ext.filesystem.locks import lock
from cuda_ext.filesystem.regular_file import read_file

Entry: TypeAlias = dict[str, Any]


def make_config(constants: Mapping[str, str]) -> dict[str, Any]:
    """Return the `constants` of a kernel, as Python spells them, in the form of ``triton.Config``."""
    values = {name: ast.literal_eval(text) for name, text in constants.items()}
    kwargs = {name: value for name, value in values.items() if name not in TRITON_OPTIONS}
    return {"kwargs": kwargs, **{name: value for name, value in values.items() if name in TRITON_OPTIONS}}


class Results:
    """The entries in the file `path`, for the integers `key`."""

    def __init__(self, path: Path, key: Sequence[str]) -> None:
        self._path = path
        self._key = key

    def find(self, entries: Sequence[Entry]) -> dict[int, Entry]:
        """Return what was measured of `entries`, by their positions: of the same source, and complete."""
        written = self._read()["tuned"]
        measured = {_identity(each, "source"): each for each in written if _is_complete(each)}
        found = ((number, measured.get(_identity(each, "source"))) for number, each in enumerate(entries))
        return {number: entry for number, entry in found if entry}

    def add(self, entries: Sequence[Entry]) -> None:
        """Write `entries` at once, in place of older ones. Those that others wrote meanwhile stay."""
        own = {*map(_identity, entries)}
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with lock(self._path.parent):
            table = self._read()
            kept = [each for each in table.pop("tuned") if _identity(each) not in own]
            lines = ",\n".join(f"  {json.dumps(each)}" for each in sorted([*kept, *entries], key=_order))
            rest = {**table, "key": list(self._key)}
            head = "".join(f" {json.dumps(name)}: {json.dumps(value)},\n" for name, value in rest.items())
            replace_file(self._path, f'{{\n{head} "tuned": [\n{lines}\n ]\n}}\n'.encode())

    def _read(self) -> dict[str, Any]:
        if not self._path.exists():
            return {"tuned": []}
        try:
            table: dict[str, Any] = json.loads(read_file(str(self._path)))
            sorted(table.setdefault("tuned", []), key=_order)
        except (ValueError, TypeError, AttributeError, RecursionError) as error:
            problem = f"is no measurement: {error}"
            raise ConfigError(problem, where=str(self._path), remedy="correct it") from None
        return table


def _is_complete(entry: Entry) -> bool:
    """Return True for what this program writes; lines of others may lack something."""
    numbers = entry.get("time"), entry.get("runs")
    return isinstance(entry.get("failed"), str) or all(isinstance(each, int | float) for each in numbers)


def _order(entry: Entry) -> tuple[object, ...]:
    """Return the sort key of an entry: the kernel, the GPU, the sizes, and the configuration."""
    numbers = [each if isinstance(each, int) else 0 for each in entry.get("key", ())]
    return str(entry.get("kernel")), str(entry.get("device")), numbers, _identity(entry)


def _identity(entry: Entry, *more: str) -> str:
    return json.dumps([entry.get(name) for name in ("kernel", "device", "key", "when", "config", *more)])
