"""Tables of measured configurations, of which launches take the fastest.

They are JSON. The entries under ``tuned`` are lines that ``cuda-ext tune`` wrote, or cache files of
``triton.autotune`` or Kernel Tuner, with the GPU of the measurement.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import isfinite
from typing import Any, NamedTuple

from cuda_ext.builder.config.kinds import Kind, array, check_values, expect, mapping, show, string, table
from cuda_ext.builder.config.variant_table import WHEN
from cuda_ext.builder.sources.kernel_tuner_cache import convert_cache
from cuda_ext.builder.sources.measured_choices import (
    Label,
    Point,
    choose_by_gpu,
    is_capability,
    label_of,
    longest,
    merge_neighbours,
    on_device,
)
from cuda_ext.compiler.front_ends.instantiation import Instantiation, TypedParameter
from cuda_ext.compiler.front_ends.kernel_description import DTYPES
from cuda_ext.compiler.front_ends.python_functions import PythonFunction
from cuda_ext.compiler.tuned_kernels import Choice
from cuda_ext.errors import ConfigError, did_you_mean, shorten
from cuda_ext.facts.candidates import Term
from cuda_ext.facts.launches import TRITON_OPTIONS
from cuda_ext.formats.quantities import format_count
from cuda_ext.formats.variant_conditions import (
    CANDIDATE,
    GPU_NAME,
    LAST,
    SM,
    Condition,
    is_about_gpu,
)

# Values of parameters and options in Python's spelling.
_Configuration = Mapping[str, str]
# Triton's names of PyTorch's dtypes.
_DTYPES = {dtype.torch: dtype.triton for dtype in DTYPES}
_DEEPEST = 8  # the limit of arrays within arrays
_INTEGER = r"[iu](?:nt)?(?:8|16|32|64)"
_COMPARED = rf"{_INTEGER}|\*.*"


class _Entry(NamedTuple):
    """A configuration on a device: for the values ``key`` of parameters, or if ``when`` holds.

    ``device`` is the name of a GPU, of the capability ``sm``, or a capability such as ``sm_90``. Without a
    ``time``, it is the best; with a reason why it ``failed``, it is none. ``source`` is the digest of what
    was measured.
    """

    where: str
    device: str
    configuration: _Configuration
    key: tuple[object, ...] | None = None
    when: Condition = ()
    sm: int = 0
    kernel: str = ""
    time: float = 0.0
    runs: int = 0
    failed: str = ""
    source: str = ""


@dataclass(frozen=True)
class TuningTable:
    """The parameters in keys, the configurations in their order, and the one for all other cases.

    With ``candidates``, it has no others, and the nearest measured size counts; else only equal ones do. If
    it ``is_complete``, candidates that were not chosen are built, too. ``used`` are the entries of use.
    """

    name: str
    key: tuple[str, ...] = ()
    tuned: tuple[_Entry, ...] = ()
    default: _Configuration | None = None
    candidates: tuple[_Configuration, ...] = ()
    is_complete: bool = False
    used: set[int] = field(default_factory=set, compare=False)

    @classmethod
    def parse(cls, name: str, content: bytes) -> TuningTable:
        """Read the file `name`. Raises :class:`ConfigError` with the path within it."""
        try:
            data = json.loads(content)
        except (ValueError, RecursionError) as error:
            raise ConfigError(f"is not valid JSON: {error}", where=name, remedy="correct it") from None
        check_values(data, f"{name}: table")
        values = _TABLE.check(data, f"{name}: table")
        return cls(name, values.get("key", ()), values.get("tuned", ()), values.get("default"))

    def restrict(
        self,
        candidates: Sequence[_Configuration],
        key: Sequence[str],
        default: _Configuration,
        is_complete: bool,
    ) -> TuningTable:
        """Return the table for these `candidates` and no others."""
        return replace(
            self,
            key=self.key or tuple(key),
            default=default or self.default or candidates[0],
            candidates=tuple(candidates),
            is_complete=is_complete,
        )

    def describe(self, digest: str) -> Iterator[str]:
        """Yield messages about the entries: which were used, fit nothing, or are of another source."""
        if not self.tuned:
            return
        unused = [entry for number, entry in enumerate(self.tuned) if number not in self.used]
        stale = [entry for number, entry in enumerate(self.tuned) if number in self.used]
        stale = [entry for entry in stale if entry.source and entry.source != digest]
        yield f"{self.name}: {len(self.used)} of {format_count(len(self.tuned), 'entry', 'entries')} used"
        for entries, what in (
            (unused, "of no kernel, candidate or type in this build"),
            (stale, "measured before the source changed; cuda-ext tune measures again"),
        ):
            if entries:
                first = entries[0].where.partition(": ")[2].removeprefix("table.")
                yield f"{self.name}: {format_count(len(entries), 'entry', 'entries')} {what}: {first}"

    def configure(self, each: Instantiation, function: PythonFunction) -> list[tuple[Instantiation, Choice]]:
        """Return `each` in every configuration that is the best for its types in some case, the default last.

        Raises :class:`ConfigError` for a configuration that does not fit the function.
        """
        if self.default is None:
            remedy = "give the configuration for other sizes and GPUs"
            raise ConfigError("is missing", where=f"{self.name}: table.default", remedy=remedy)
        for name in self.key:
            check_parameter(name, function, f"{self.name}: table.key")
        for entry in self.tuned:
            _check_configuration(entry.configuration, each, function, entry.where)
        choices = self.choose(
            lambda entry: self._values(entry, each, function),
            [name for name in self.key if name not in each.constants],
        )
        for choice in choices:
            _check_configuration(choice.configuration, each, function, f"{self.name}: table.default")
        return [
            (replace(each, configuration=choice.configuration, when=choice.when), choice)
            for choice in choices
        ]

    def choose(self, values_of: Callable[[_Entry], Point | None], names: Sequence[str]) -> list[Choice]:
        """Choose configurations, the default last; `names` are the integers in the key.

        `values_of` returns their values in an entry; ``None`` if it is of another kernel.
        """
        conditional: list[Choice] = []
        measured: dict[tuple[int, str], dict[Point, dict[Label, tuple[int, float]]]] = {}
        for number, entry in enumerate(self.tuned):
            is_known = not self.candidates or entry.configuration in self.candidates
            if not is_known or (values := values_of(entry)) is None:
                continue
            self.used.add(number)
            if entry.key is None:
                device = on_device(entry.device, entry.sm)
                conditional.append(Choice(entry.configuration, (device + entry.when,)))
            elif not entry.failed:
                sm = entry.sm or (int(entry.device[3:]) if is_capability(entry.device) else 0)
                own = measured.setdefault((sm, entry.device), {}).setdefault(values, {})
                if entry.time or not own:
                    own.setdefault(label_of(entry.configuration), (entry.runs, entry.time or 1.0))
        times = {gpu: {p: longest(own) for p, own in points.items()} for gpu, points in measured.items()}
        spelled = {
            label_of(each): each for each in (*(e.configuration for e in self.tuned), *self.candidates)
        }
        # The author of candidates says that each is right for all sizes. Others may be too small for some.
        are_exact = not self.candidates
        by_gpu = choose_by_gpu(times, names, are_exact)
        sized = [choice._replace(configuration=spelled[label]) for label, choice in by_gpu]
        rest = merge_neighbours(conditional)
        choices = [*sized, *rest] if are_exact else [*rest, *sized]
        default = self.default or {}
        if self.is_complete:
            taken = [default, *(choice.configuration for choice in choices)]
            others = ((i, each) for i, each in enumerate(self.candidates) if each not in taken)
            choices += (Choice(each, ((Term(CANDIDATE, "==", i),),)) for i, each in others)
        return [*choices, Choice(default)]

    def values_in(self, kernel: str, entry: _Entry) -> Point | None:
        """Return the values of an `entry` of the key of a `kernel` in C++; ``None`` if it is of another."""
        if entry.kernel not in ("", kernel):
            return None
        self._check_length(entry)
        where = f"{entry.where}.key"
        return tuple(expect(value, int, where, "integers") for value in (entry.key or ())[: len(self.key)])

    def _check_length(self, entry: _Entry) -> None:
        if entry.key is not None and len(entry.key) < len(self.key):
            raise ConfigError(
                f"has {len(entry.key)} values, and the key of the table has {len(self.key)}",
                where=f"{entry.where}.key",
                remedy=f"give values of {', '.join(self.key)}",
            )

    def _values(self, entry: _Entry, each: Instantiation, function: PythonFunction) -> Point | None:
        """Return the values of the key that `each` compares; ``None`` if its types or constants differ."""
        types = {parameter.argument: parameter.type for parameter in each.parameters}
        if entry.kernel not in ("", each.function):
            return None
        if entry.key is None:
            for term in entry.when:
                check_comparable(term, each.parameters, f"{entry.where}.when")
            return ()
        self._check_length(entry)
        values, dtypes = entry.key[: len(self.key)], entry.key[len(self.key) :]
        pointers = [types[name] for name in function.parameters if types.get(name, "").startswith("*")]
        elements = [pointer.removeprefix("*k" if pointer.startswith("*k") else "*") for pointer in pointers]
        if dtypes and elements != [_DTYPES.get(str(dtype).removeprefix("torch."), "") for dtype in dtypes]:
            return None
        compared: list[int] = []
        for number, (name, value) in enumerate(zip(self.key, values, strict=True)):
            if name in each.constants:
                if each.constants[name] != repr(value):
                    return None
                continue
            here = f"{entry.where}.key[{number}]"
            compared.append(expect(value, int, here, "an integer"))
            check_comparable(Term(name, "==", compared[-1]), each.parameters, here)
        return tuple(compared)


def check_parameter(name: str, function: PythonFunction, where: str) -> None:
    """Check that `function` has a parameter `name`, which the key path `where` gives. Raises ConfigError."""
    if name not in function.parameters:
        raise ConfigError(
            f"{function.name} has no parameter {shorten(name)!r}",
            where=where,
            remedy=did_you_mean(name, function.parameters)
            or f"its parameters: {', '.join(function.parameters)}",
        )


def check_comparable(term: Term, parameters: Sequence[TypedParameter], where: str) -> None:
    """Check that a launch can compare `term`: a parameter, or a shape or stride of one."""
    name = term.name
    types = {parameter.argument: parameter.type for parameter in parameters}
    argument, _, extent = name.partition(".")
    if is_about_gpu(term) or (argument in types and (extent or re.fullmatch(_COMPARED, types[argument]))):
        return
    integers = [each for each, type_ in types.items() if re.fullmatch(_INTEGER, type_)]
    is_typed = argument in types
    raise ConfigError(
        f"{shorten(name)!r} is {types[name]}"
        if is_typed
        else f"no parameter {shorten(argument)!r} has a type",
        where=where,
        remedy=f"conditions compare integers: {', '.join([*integers, SM])}",
    )


def _check_configuration(
    configuration: _Configuration, each: Instantiation, function: PythonFunction, where: str
) -> None:
    given = {parameter.name for parameter in each.parameters} | each.constants.keys()
    for name in configuration:
        if name in given:
            raise ConfigError(
                f"{shorten(name)!r} is given by the instantiation, too: {each}",
                where=where,
                remedy="take it out of one of them",
            )
        if name not in TRITON_OPTIONS:
            check_parameter(name, function, where)


def _check_constant(value: object, where: str, depth: int = 0) -> str:
    if isinstance(value, list) and depth < _DEEPEST:
        items = [_check_constant(item, f"{where}[{i}]", depth + 1) for i, item in enumerate(value)]
        return f"({', '.join(items)}{',' * (len(items) == 1)})"
    if value is None or isinstance(value, bool | int | str) or (isinstance(value, float) and isfinite(value)):
        return repr(value)
    raise ConfigError("expected a number, a string, true, false, null or an array of these", where=where)


def _check_unset(value: object, where: str) -> None:
    if value is not None:
        raise ConfigError(
            f"is {show(value)}, which means nothing to a build", where=where, remedy="take it out"
        )


def _check_count(value: object, where: str) -> int | None:
    if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 1):
        raise ConfigError(f"expected an integer from 1 on, found {show(value)}", where=where)
    return value


_COUNT = Kind(_check_count, {})
_UNSET = Kind(_check_unset, {})
# The attributes of triton.Config, and their defaults.
_CONFIG = table(
    {
        "kwargs": mapping("", lambda _, __: None, Kind(_check_constant, {}), "a table of values"),
        **dict.fromkeys(TRITON_OPTIONS, _COUNT),
        "pre_hook": _UNSET,
        "ir_override": _UNSET,
    },
    'a configuration such as {"kwargs": {"BLOCK": 1024}, "num_warps": 8}',
).then(
    lambda keys, _: {
        **keys.get("kwargs", {}),
        **{name: str(keys[name]) for name in TRITON_OPTIONS if keys.get(name) is not None},
    }
)


def _check_timing(value: object, where: str) -> tuple[_Configuration, Sequence[float]]:
    what = "a configuration and its times, as triton.autotune caches them"
    pair = expect(value, list, where, what)
    times = pair[1] if len(pair) == 2 and isinstance(pair[1], list) else pair[1:]
    if not times or not all(isinstance(time, int | float) for time in times):
        raise ConfigError(f"expected {what}", where=where)
    return _CONFIG.check(pair[0], f"{where}[0]"), times


def _check_entry(keys: dict[str, Any], where: str) -> _Entry:
    for one, other in (("key", "when"), ("config", "configs_timings")):
        if (one in keys) == (other in keys):
            raise ConfigError(f"expected either {one!r} or {other!r}", where=where)
    timings = keys.get("configs_timings", ())
    best = min(timings, key=lambda pair: pair[1])[0] if timings else keys["config"]
    return _Entry(where, keys["device"], best, **{name: keys[name] for name in _FACTS if name in keys})


def _check_device(name: str, where: str) -> str:
    if not re.fullmatch(GPU_NAME, name) or re.search(r"\b(?:and|or|not|if)\b", name):
        raise ConfigError(
            f"{shorten(name)!r} is neither a compute capability such as sm_90 nor the name of a GPU",
            where=where,
        )
    if name.startswith("sm_") and not is_capability(name):
        raise ConfigError(f"{shorten(name)!r} is not a compute capability such as sm_90", where=where)
    return name


def _check_number(value: object, where: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < 1e12:
        raise ConfigError(f"expected a positive number, found {show(value)}", where=where)
    return float(value)


def _integer(least: int, most: int, what: str) -> Kind:
    def check(value: object, where: str) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
            raise ConfigError(f"expected {what}, found {show(value)}", where=where)
        return value

    return Kind(check, {})


_IGNORED = Kind(lambda value, _: value, {})
_FACTS = ("key", "when", "sm", "kernel", "time", "runs", "failed", "source")
_ENTRY = table(
    {
        "device": string("a compute capability such as sm_90, or a name").then(_check_device),
        "sm": _integer(10, LAST, "a compute capability such as 90"),
        "runs": _integer(1, 1 << 31, "a number of measurements"),
        "kernel": string("a name"),
        "time": Kind(_check_number, {}),
        "failed": string("a reason"),
        "source": string("a digest"),
        **dict.fromkeys(("cold", "spread", "driver", "compiler"), _IGNORED),
        "key": Kind(lambda value, where: tuple(expect(value, list, where, "an array")), {}),
        "when": WHEN,
        "config": _CONFIG,
        "configs_timings": array(
            Kind(_check_timing, {}), "an array of configurations and times", "measure some"
        ),
    },
    "a table with a device and a configuration",
    {"device": "name the GPU that it was measured on, such as sm_90"},
).then(_check_entry)
_TABLE = table(
    {
        "key": array(string("the name of a parameter"), "an array of names"),
        "default": _CONFIG,
        "tuned": array(
            Kind(lambda value, where: _ENTRY.check(convert_cache(value, where), where), _ENTRY.schema),
            "an array of tables",
        ),
    },
    "an object with key, tuned and default",
)
