"""Files of measurements: an entry is a line, and several programs may add entries to one file."""

from __future__ import annotations

import ast
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

from cuda_ext.errors import ConfigError
from cuda_ext.filesystem.atomic_directory import replace_file
from cuda_ext.filesystem.locks import lock
from cuda_ext.filesystem.regular_file import read_file

Entry: TypeAlias = dict[str, Any]

# Options of launches, which stand beside the other constants of a configuration.
_OPTIONS = ("num_warps", "num_stages", "num_ctas", "maxnreg")


def spell_configuration(constants: Mapping[str, str]) -> dict[str, Any]:
    """Return the `constants` of a kernel, as Python spells them, in the form of ``triton.Config``."""
    values = {name: ast.literal_eval(text) for name, text in constants.items()}
    kwargs = {name: value for name, value in values.items() if name not in _OPTIONS}
    return {"kwargs": kwargs, **{name: value for name, value in values.items() if name in _OPTIONS}}


class Results:
    """The entries in the file `path`, for the integers `key`."""

    def __init__(self, path: Path, key: Sequence[str]) -> None:
        self.path = path
        self._key = key
        self._own: list[Entry] = []
        self.entries: list[Entry] = self._read()["tuned"]

    def find(self, entry: Entry) -> Entry | None:
        """Return the entry of the same kernel, GPU, case and configuration, and of the same source."""
        identity = _identity(entry)
        for each in self.entries:
            if _identity(each) == identity and each.get("source") == entry.get("source"):
                return each
        return None

    def add(self, entry: Entry) -> None:
        """Write `entry`, in place of an older one. Entries of others that were written meanwhile stay."""
        self._own = [each for each in self._own if _identity(each) != _identity(entry)] + [entry]
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with lock(self.path.parent):
            table = self._read()
            own = {_identity(each): each for each in self._own}
            kept = [each for each in table["tuned"] if _identity(each) not in own]
            self.entries = sorted([*kept, *own.values()], key=_order)
            lines = ",\n".join(f"  {json.dumps(each)}" for each in self.entries)
            rest = {
                name: value for name, value in {**table, "key": list(self._key)}.items() if name != "tuned"
            }
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


def _identity(entry: Entry) -> str:
    return json.dumps([entry.get(name) for name in ("kernel", "device", "key", "when", "config")])
