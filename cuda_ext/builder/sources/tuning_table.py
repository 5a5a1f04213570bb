"""Tables of measured configurations, of which launches take the fastest.

They are JSON. The entries under ``tuned`` are lines that ``cuda-ext tune`` wrote, or cache files of
``triton.autotune`` or Kernel Tuner, with the GPU of the measurement.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf, isfinite
from typing import Any, NamedTuple

from cuda_ext.builder.config.kinds import check_values, show
from cuda_ext.builder.config.variant_table import check_condition
from cuda_ext.builder.sources import measured_choices
from cuda_ext.builder.sources.measured_choices import Point, is_capability
from cuda_ext.compiler.front_ends.autotune_configs import spell_configuration
from cuda_ext.compiler.front_ends.instantiation import parse_constant
from cuda_ext.compiler.tuned_kernels import Choice, Configuration, Label, Landscape
from cuda_ext.errors import ConfigError
from cuda_ext.facts.candidates import Term
from cuda_ext.formats.quantities import format_count
from cuda_ext.formats.variant_conditions import CANDIDATE, GPU_NAME, Condition

# What reading raises for data of another form.
_DAMAGE = (ValueError, TypeError, LookupError, AttributeError, ArithmeticError, RecursionError)


class Entry(NamedTuple):
    """The ``time`` of a configuration on a GPU, of this name or capability, for the values ``key``.

    Dtypes follow the values of parameters. If the configuration ``failed``, it has no time. Instead of a key,
    it may have a condition ``when``. ``source`` is the digest of what was measured.
    """

    where: str
    device: str
    sm: int
    configuration: Configuration
    time: float
    key: tuple[object, ...] = ()
    when: Condition = ()
    runs: int = 0
    kernel: str = ""
    failed: str = ""
    source: str = ""


@dataclass
class TuningTable:
    """The names in keys, the entries, and the configuration for all else.

    ``used`` are the positions of the entries that fit a kernel of this build, whose source has the
    ``digest``. The ``landscapes`` show their times.
    """

    name: str
    digest: str
    key: tuple[str, ...] = ()
    entries: Sequence[Entry] = ()
    default: Configuration | None = None
    used: set[int] = field(default_factory=set)
    landscapes: dict[tuple[str, str], Landscape] = field(default_factory=dict)

    @classmethod
    def parse(cls, name: str, content: bytes, digest: str) -> TuningTable:
        """Read the file `name`. Raises :class:`ConfigError` with the path within it."""
        where, entries = f"{name}: table", list[Entry]()
        try:
            table = json.loads(content)
            check_values(table, where)
            key = tuple(map(str, table.get("key", ())))
            default = _read_configuration(table["default"]) if "default" in table else None
            for number, raw in enumerate(table.get("tuned", ())):
                where = f"{name}: table.tuned[{number}]"
                found = [_read_entry(each, where) for each in _normalise(raw)]
                if not found:
                    raise ValueError("there is no configuration with a time")
                entries += found
        except _DAMAGE as error:
            what = f"there is no {error}" if isinstance(error, KeyError) else str(error)
            remedy = "write what cuda-ext tune writes, or a cache file"
            raise ConfigError(f"is no measurement: {what}", where=where, remedy=remedy) from None
        return cls(name, digest, key, entries, default)

    def describe(self) -> Iterator[str]:
        """Yield messages about the entries: which were used, fit nothing, or are of another source."""
        used = [entry for number, entry in enumerate(self.entries) if number in self.used]
        unused = [entry for number, entry in enumerate(self.entries) if number not in self.used]
        stale = [entry for entry in used if entry.source not in ("", self.digest)]
        if self.entries:
            yield f"{self.name}: {len(used)} of {format_count(len(self.entries), 'entry', 'entries')} used"
        for entries, what in (
            (unused, "of no kernel, candidate or type in this build"),
            (stale, "measured before the source changed; cuda-ext tune measures again"),
        ):
            if entries:
                place = entries[0].where.rpartition(".")[2]
                yield f"{self.name}: {format_count(len(entries), 'entry', 'entries')} {what}: {place}"

    def choose(
        self,
        kernel: str,
        key: Sequence[str],
        candidates: Sequence[Configuration],
        constants: Mapping[str, str] = {},
        dtypes: Sequence[str] = (),
        is_complete: bool = False,
    ) -> list[Choice]:
        """Choose among `candidates` for a `kernel` with these `constants` and `dtypes`; the default is last.

        The first candidate is the default. Without candidates, the choices hold for the measured sizes alone,
        else for the nearest ones. If the build `is_complete`, it has all candidates, and launches take the
        default. Raises :class:`ConfigError` if there is no default.
        """
        sizes = [name for name in key if name not in constants]
        conditional: list[Choice] = []
        measured: dict[tuple[int, str], dict[Point, dict[Label, tuple[int, float]]]] = {}
        for number, entry in enumerate(self.entries):
            values = dict(zip(key, entry.key, strict=False))
            fixed = {name: repr(values[name]) for name in constants if name in values}
            if entry.kernel not in ("", kernel) or not fixed.items() <= constants.items():
                continue
            if entry.key[len(key) :] not in ((), (*dtypes,)):
                continue
            same = [each for each in candidates or [entry.configuration] if each == entry.configuration]
            if not same:
                continue
            self.used.add(number)
            if entry.when:
                device = measured_choices.on_device(entry.device, entry.sm)
                conditional.append(Choice(same[0], (device + entry.when,)))
            elif not entry.failed:
                point = tuple(_integer(values.get(name), name, entry) for name in sizes)
                own = measured.setdefault((entry.sm, entry.device), {}).setdefault(point, {})
                own.setdefault(tuple(same[0].items()), (entry.runs, entry.time))
        sized = [*measured_choices.choose_by_gpu(measured, sizes, are_exact=not candidates)]
        spelled = " ".join([kernel, *dict.fromkeys(dtypes)]).replace("torch.", "")
        title = f"{spelled}, {', '.join(sizes)}:"
        for (_, gpu), points in measured.items():
            times = {point: {c: time for c, (_, time) in points[point].items()} for point in sorted(points)}
            cases = ((each, case) for each in sized for case in each.measured if case.device == gpu)
            chosen = {case.key: tuple(choice.configuration.items()) for choice, case in cases}
            if max(map(len, times.values())) > 1:
                self.landscapes[title, gpu] = Landscape(title, gpu, times, chosen)
        # The author of candidates says that each is right for all sizes. Others may be too small for some.
        rest = measured_choices.merge_neighbours(conditional)
        choices = [*rest, *sized] if candidates else [*sized, *rest]
        if is_complete and candidates:
            choices = [Choice(c, ((Term(CANDIDATE, "==", i),),)) for i, c in enumerate(candidates[1:])]
        default = candidates[0] if candidates else self.default
        if default is None:
            remedy = "give the configuration for other sizes and GPUs"
            raise ConfigError("is missing", where=f"{self.name}: table.default", remedy=remedy)
        return [*choices, Choice(default)]


def _normalise(raw: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return `raw`, or the configurations of a cache file that have a time, which is in milliseconds."""
    if "cache" in raw:  # of Kernel Tuner. Its records begin with the constants, whose values are their keys
        records = [(each, [*each][: text.count(",") + 1]) for text, each in raw["cache"].items()]
        timed = [({"kwargs": {n: each[n] for n in names}}, each.get("time")) for each, names in records]
    elif "configs_timings" in raw:  # of triton.autotune
        timed = [(c, time[0] if isinstance(time, list) else time) for c, time, *_ in raw["configs_timings"]]
    else:
        return [raw]
    device = {"device": raw["device"] if "device" in raw else raw["device_name"]}
    # Those that failed have a text, or infinity.
    valid = [(config, time) for config, time in timed if isinstance(time, int | float) and 0 < time < inf]
    return [{**raw, **device, "config": config, "time": 1000 * time} for config, time in valid]


def _read_entry(raw: Mapping[str, Any], where: str) -> Entry:
    device, words = raw["device"], r"\b(?:and|or|not|if)\b"
    is_name = re.fullmatch(GPU_NAME, device) and not re.search(words, device) and device[:3] != "sm_"
    if not is_name and not is_capability(device):
        raise ValueError(f"{device!r} is not a compute capability such as sm_90, or the name of a GPU")
    sm = int(device[3:] if is_capability(device) else raw.get("sm", 0))
    measured_choices.on_device(device, sm)  # raises an error for what is no capability
    time = float(raw.get("time", 1))
    if not 0 < time < inf:
        raise ValueError("expected a positive number as the time")
    when = check_condition(raw["when"], f"{where}.when") if "when" in raw else ()
    key = () if when else tuple(raw["key"])
    texts = {name: str(raw[name]) for name in ("kernel", "failed", "source") if name in raw}
    config = _read_configuration(raw["config"])
    return Entry(where, device, sm, config, time, key, when, int(raw.get("runs", 0)), **texts)


def _read_configuration(config: Mapping[str, Any]) -> Configuration:
    kwargs = {name: _tuples(value) for name, value in config.get("kwargs", {}).items()}
    texts = spell_configuration(kwargs, config)
    return {name: parse_constant(name, text) for name, text in texts.items()}


def _tuples(value: object) -> object:
    """Return `value` with tuples for arrays."""
    if isinstance(value, float) and not isfinite(value):
        raise ValueError(f"{value} is no constant")
    return tuple(map(_tuples, value)) if isinstance(value, list) else value


def _integer(value: object, name: str, entry: Entry) -> int:
    if type(value) is not int:
        raise ConfigError(f"expected an integer for {name}, found {show(value)}", where=f"{entry.where}.key")
    return value
