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


def spell_configuration(constants: Mapping[str, str]) -> dict[str, Any]:
    """Return the `constants` of a kernel, as Python spells them, in the form of ``triton.Config``."""
    values = {name: ast.literal_eval(text) for name, text in constants.items()}
    kwargs = {name: value for name, value in values.items() if name not in TRITON_OPTIONS}
    return {"kwargs": kwargs, **{name: value for name, value in values.items() if name in TRITON_OPTIONS}}


class Results:
    """The entries in the file `path`, for the integers `key`."""

    def __init__(self, path: Path, key: Sequence[str]) -> None:
        self.path = path
        self._key = key
        self._own: dict[str, Entry] = {}
        self._known = _by_source(self._read()["tuned"])

    def find(self, entry: Entry) -> Entry | None:
        """Return the entry of the same kernel, GPU, case and configuration, and of the same source."""
        return self._known.get(_source_of(entry))

    def add(self, entry: Entry) -> None:
        """Write `entry`, in place of an older one. Entries of others that were written meanwhile stay."""
        self._own[_identity(entry)] = entry
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with lock(self.path.parent):
            table = self._read()
            kept = [each for each in table.pop("tuned") if _identity(each) not in self._own]
            entries = sorted([*kept, *self._own.values()], key=_order)
            self._known = _by_source(entries)
            lines = ",\n".join(f"  {json.dumps(each)}" for each in entries)
            rest = {**table, "key": list(self._key)}
            head = "".join(f" {json.dumps(name)}: {json.dumps(value)},\n" for name, value in rest.items())
            replace_file(self.path, f'{{\n{head} "tuned": [\n{lines}\n ]\n}}\n'.encode())

    def _read(self) -> dict[str, Any]:
        if not self.path.exists():
            return {"tuned": []}
        try:
            table: dict[str, Any] = json.loads(read_file(str(self.path)))
        except (ValueError, RecursionError) as error:
            where = str(self.path)
            raise ConfigError(f"is not valid JSON: {error}", where=where, remedy="correct it") from None
        is_table = isinstance(table, dict) and isinstance(table.setdefault("tuned", []), list)
        if not is_table or not all(isinstance(each, dict) for each in table["tuned"]):
            raise ConfigError("is not a table of measurements", where=str(self.path), remedy="correct it")
        return table


def _order(entry: Entry) -> tuple[object, ...]:
    """Return the sort key of an entry: the kernel, the GPU, the sizes, and the configuration."""
    key = entry.get("key")
    numbers = [each if isinstance(each, int) else 0 for each in key] if isinstance(key, list) else []
    return str(entry.get("kernel")), str(entry.get("device")), numbers, _identity(entry)


def _by_source(entries: Sequence[Entry]) -> dict[str, Entry]:
    """Return the `entries` by what they measure; the first of those that measure the same."""
    return {_source_of(each): each for each in reversed(entries)}


def _source_of(entry: Entry) -> str:
    return f"{_identity(entry)} {json.dumps(entry.get('source'))}"


def _identity(entry: Entry) -> str:
    return json.dumps([entry.get(name) for name in ("kernel", "device", "key", "when", "config")])
