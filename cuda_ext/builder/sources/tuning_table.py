"""Tables of measured configurations: each entry becomes an instantiation for the case of its measurement.

They are JSON. The entries under ``tuned`` are cache files of ``triton.autotune``, with the GPU of the
measurement.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile
from math import isfinite
from typing import Any, NamedTuple

from cuda_ext.builder.config.kinds import Kind, array, expect, mapping, show, string, table
from cuda_ext.builder.config.variant_table import WHEN, check_condition
from cuda_ext.compiler.front_ends.instantiation import Instantiation, TypedParameter
from cuda_ext.compiler.front_ends.kernel_description import DTYPES
from cuda_ext.compiler.front_ends.python_functions import PythonFunction
from cuda_ext.errors import ConfigError, did_you_mean, shorten
from cuda_ext.facts.candidates import Term
from cuda_ext.formats.variant_conditions import SM, Condition, is_about_gpu, parse

# Values of parameters and options in Python's spelling.
_Configuration = Mapping[str, str]
# Triton's names of PyTorch's dtypes.
_DTYPES = {dtype.torch: dtype.triton for dtype in DTYPES}
_DEEPEST = 8  # the limit of arrays within arrays
_INTEGER = r"[iu](?:nt)?(?:8|16|32|64)"
_COMPARED = rf"{_INTEGER}|\*.*"


class _Entry(NamedTuple):
    """The best configuration on a device: for the values ``key`` of parameters, or if ``when`` holds."""

    where: str
    device: Condition
    configuration: _Configuration
    key: tuple[object, ...] | None
    when: Condition


class _Group(NamedTuple):
    """Conditions under which a configuration is the best; if it ``is_keyed``, they are values of the key."""

    device: Condition
    configuration: _Configuration
    is_keyed: bool
    conditions: list[Condition]

    @property
    def when(self) -> tuple[Condition, ...]:
        conditions = [()] if () in self.conditions else self.conditions
        return tuple(self.device + condition for condition in conditions)


@dataclass(frozen=True)
class TuningTable:
    """The parameters in keys, the configurations in their order, and the one for all other cases."""

    name: str
    key: tuple[str, ...]
    tuned: tuple[_Entry, ...]
    default: _Configuration

    @classmethod
    def parse(cls, name: str, content: bytes) -> TuningTable:
        """Read the file `name`. Raises :class:`ConfigError` with the path within it."""
        try:
            data = json.loads(content)
        except (ValueError, RecursionError) as error:
            raise ConfigError(f"is no JSON: {error}", where=name, remedy="correct it") from None
        values = _TABLE.check(data, f"{name}: table")
        return cls(name, values.get("key", ()), values.get("tuned", ()), values["default"])

    def configure(self, each: Instantiation, function: PythonFunction) -> list[Instantiation]:
        """Return `each` in every configuration that is the best for its types in some case, the default last.

        Raises :class:`ConfigError` for a configuration that does not fit the function.
        """
        for name in self.key:
            check_parameter(name, function, f"{self.name}: table.key")
        groups: list[_Group] = []
        for entry in self.tuned:
            _check_configuration(entry.configuration, each, function, entry.where)
            condition = self._condition(entry, each, function)
            if condition is None:
                continue
            new = _Group(entry.device, entry.configuration, entry.key is not None, [condition])
            # Values of one key exclude each other, so their order does not matter.
            last = takewhile(lambda group: group.is_keyed, reversed(groups)) if new.is_keyed else ()
            same = next((group for group in last if group[:2] == new[:2]), new)
            if same is new:
                groups.append(new)
            else:
                same.conditions.append(condition)
        _check_configuration(self.default, each, function, f"{self.name}: table.default")
        tuned = (replace(each, configuration=group.configuration, when=group.when) for group in groups)
        return [*tuned, replace(each, configuration=self.default)]

    def _condition(self, entry: _Entry, each: Instantiation, function: PythonFunction) -> Condition | None:
        """Return the condition of `entry` for `each`; ``None`` if its types or constants are others."""
        types = {parameter.argument: parameter.type for parameter in each.parameters}
        if entry.key is None:
            for term in entry.when:
                check_comparable(term, each.parameters, f"{entry.where}.when")
            return entry.when
        values, dtypes = entry.key[: len(self.key)], entry.key[len(self.key) :]
        if len(values) < len(self.key):
            raise ConfigError(
                f"has {len(values)} values, and the key of the table has {len(self.key)}",
                where=f"{entry.where}.key",
                remedy=f"give values of {', '.join(self.key)}",
            )
        pointers = [types[name] for name in function.parameters if types.get(name, "").startswith("*")]
        elements = [pointer.removeprefix("*k" if pointer.startswith("*k") else "*") for pointer in pointers]
        if dtypes and elements != [_DTYPES.get(str(dtype).removeprefix("torch."), "") for dtype in dtypes]:
            return None
        condition: Condition = ()
        for number, (name, value) in enumerate(zip(self.key, values, strict=True)):
            if name in each.constants:
                if each.constants[name] != repr(value):
                    return None
                continue
            here = f"{entry.where}.key[{number}]"
            (term,) = check_condition(f"{name} == {expect(value, int, here, 'an integer')}", here)
            check_comparable(term, each.parameters, here)
            condition += (term,)
        return condition


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
        else f"no parameter {shorten(argument)!r} is given a type",
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
        if name not in _OPTIONS:
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
            f"is {show(value)}, which a build has no use for", where=where, remedy="take it out"
        )


def _check_count(value: object, where: str) -> int | None:
    if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 1):
        raise ConfigError(f"expected an integer from 1 on, found {show(value)}", where=where)
    return value


_OPTIONS = ("num_warps", "num_stages", "num_ctas", "maxnreg")
_COUNT = Kind(_check_count, {})
_UNSET = Kind(_check_unset, {})
# The attributes of triton.Config, and their defaults.
_CONFIG = table(
    {
        "kwargs": mapping("", lambda _, __: None, Kind(_check_constant, {}), "a table of values"),
        **dict.fromkeys(_OPTIONS, _COUNT),
        "pre_hook": _UNSET,
        "ir_override": _UNSET,
    },
    'a configuration such as {"kwargs": {"BLOCK": 1024}, "num_warps": 8}',
).then(
    lambda keys, _: {
        **keys.get("kwargs", {}),
        **{name: str(keys[name]) for name in _OPTIONS if keys.get(name) is not None},
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
    return _Entry(where, keys["device"], best, keys.get("key"), keys.get("when", ()))


def _check_device(name: str, where: str) -> Condition:
    if not re.fullmatch(r"sm_[1-9]\d{1,2}", name):
        raise ConfigError(f"{shorten(name)!r} is no compute capability such as sm_90", where=where)
    return parse(name)


_TABLE = table(
    {
        "key": array(string("the name of a parameter"), "an array of names"),
        "default": _CONFIG,
        "tuned": array(
            table(
                {
                    "device": string("a compute capability such as sm_90").then(_check_device),
                    "key": Kind(lambda value, where: tuple(expect(value, list, where, "an array")), {}),
                    "when": WHEN,
                    "config": _CONFIG,
                    "configs_timings": array(
                        Kind(_check_timing, {}), "an array of configurations and times", "measure some"
                    ),
                },
                "a table with a device and a configuration",
                {"device": "name the GPU that it was measured on, such as sm_90"},
            ).then(_check_entry),
            "an array of tables",
        ),
    },
    "an object with key, tuned and default",
    {"default": "give the configuration for other sizes and GPUs"},
)
