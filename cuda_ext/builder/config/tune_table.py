"""The key ``tune``: kernels with candidates, which differ in constants, and of which measurements choose."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from math import prod
from typing import Any, NamedTuple

from cuda_ext.builder.config.instantiations import (
    EXPRESSION_PATTERN,
    VALUES,
    check_placeholders,
    multiply_out,
)
from cuda_ext.builder.config.kinds import (
    C_NAME,
    Kind,
    array,
    expect,
    key_path,
    map_schema,
    scalar,
    show,
    string,
    table,
)
from cuda_ext.compiler.front_ends.kernel_description import LIMITS
from cuda_ext.compiler.translation_unit import MOST_INSTANTIATIONS
from cuda_ext.compiler.tuned_kernels import spell_values
from cuda_ext.errors import ConfigError
from cuda_ext.facts.launches import FixedLaunch
from cuda_ext.text.brackets import split_arguments
from cuda_ext.text.expressions import evaluate

_PLACEHOLDER = re.compile(r"\{(\w+)\}")
_EXAMPLE = 'a table such as { kernel = "gemm<{TILE}>", TILE = [64, 128], key = ["n"], block = "TILE * 2" }'


class Option(NamedTuple):
    """A candidate: what is instantiated, its constants as Python spells them, and its launch."""

    text: str
    configuration: Mapping[str, str]
    launch: FixedLaunch | None


@dataclass(frozen=True)
class Tune:
    """The candidates of ``function``, by the names of the kernels that they stand for, the default first.

    A function in Python has one name, and no candidates if they are those of its decorator. ``when`` holds
    for those that are built. ``key`` is empty if the decorator has it.
    """

    where: str = field(compare=False)
    function: str
    candidates: Mapping[str, Sequence[Option]]
    is_python: bool
    when: str = ""
    key: tuple[str, ...] = ()
    default: Mapping[str, str] = field(default_factory=dict)
    grid: tuple[str, ...] = ()
    arrays: Mapping[str, str] = field(default_factory=dict)
    inputs: str = ""
    tolerance: float = 0.0

    @property
    def base(self) -> str:
        """Its name without namespaces, which its file has."""
        return self.function.rpartition("::")[2]

    @property
    def file(self) -> str:
        """The file of its measurements within the project."""
        return f"tuning/{self.base}.json"

    def keeps(self, configuration: Mapping[str, str]) -> bool:
        """Return True if ``when`` holds for the constants of a candidate."""
        return not self.when or bool(_evaluate(self.when, configuration, f"{self.where}.when"))


def _evaluate(text: str, configuration: Mapping[str, str], where: str) -> Any:
    values = {name: evaluate(value, {}) for name, value in configuration.items()}
    try:
        return evaluate(text, values)
    except ValueError as error:
        remedy = f"write an expression of {', '.join(values)}, such as {next(iter(values), 'N')} * 4"
        raise ConfigError(f"{show(text)}: {error}", where=where, remedy=remedy) from None


def _check_tune(value: object, where: str) -> Tune:
    whole = expect(value, dict, where, _EXAMPLE)
    given = _KNOWN.check({name: each for name, each in whole.items() if name in _KEYS}, where)
    values = {n: VALUES.check(each, key_path(where, n)) for n, each in whole.items() if n not in _KEYS}
    pattern = given.pop("kernel")
    block, shared = given.pop("block", ()), given.pop("shared", "0")
    default = {name: _spell(text) for name, text in given.pop("default", {}).items()}
    check_placeholders(pattern, [*values], where)
    function = re.split(r"[<(]", pattern)[0].strip()
    is_python = "<" not in pattern
    made = Tune(where, function, {}, is_python, default=default, **given)
    tuned = {name for name, texts in values.items() if all(_is_constant(text) for text in texts)}
    if is_python and (other := [name for name in values if name not in tuned]):
        problem = "candidates of a function in Python differ in integers and booleans"
        raise ConfigError(
            problem, where=key_path(where, other[0]), remedy="write other constants into kernel"
        )
    groups: dict[str, list[Option]] = {}
    for chosen, text in multiply_out(pattern, values) if values else ():
        name = function if is_python else _name_of(pattern, chosen, tuned)
        configuration = {each: _spell(chosen[each]) for each in values if each in tuned}
        if made.keeps(configuration):
            launch = None if is_python else _launch(block, shared, configuration, where)
            groups.setdefault(name, []).append(Option(text, configuration, launch))
        if sum(map(len, groups.values())) > MOST_INSTANTIATIONS:
            raise ConfigError(f"stands for more than {MOST_INSTANTIATIONS:,} candidates", where=where)
    if not is_python and (not groups or not made.key):
        problem = "has no candidate" if made.key else "is missing"
        remedy = (
            "list values of its constants" if made.key else "name the integers that the choice depends on"
        )
        raise ConfigError(problem, where=where if made.key else f"{where}.key", remedy=remedy)
    return replace(made, candidates={n: _default_first(each, default, where) for n, each in groups.items()})


def _default_first(options: list[Option], default: Mapping[str, str], where: str) -> list[Option]:
    if default and default not in [option.configuration for option in options]:
        raise ConfigError(
            "is none of the candidates", where=f"{where}.default", remedy="give each constant a listed value"
        )
    return sorted(options, key=lambda option: bool(default) and option.configuration != default)


def _is_constant(text: str) -> bool:
    return text in ("true", "false") or text.removeprefix("-").isdecimal()


def _spell(text: str) -> str:
    """Spell a value of the table as Python does."""
    return text.title() if text in ("true", "false") else text if _is_constant(text) else repr(text)


def _name_of(pattern: str, values: Mapping[str, str], tuned: Set[str]) -> str:
    """Return the name of the kernel `pattern`: without the arguments that contain `tuned` constants."""
    name, _, arguments = pattern.strip().removesuffix(">").partition("<")
    kept = [each for each in split_arguments(arguments) if not tuned & {*_PLACEHOLDER.findall(each)}]
    text = f"{name}<{', '.join(kept)}>" if kept else name
    return _PLACEHOLDER.sub(lambda match: values[match[1]], text)


def _launch(block: Sequence[str], shared: str, configuration: Mapping[str, str], where: str) -> FixedLaunch:
    extents = [_evaluate(each, configuration, f"{where}.block") for each in block]
    memory = _evaluate(shared, configuration, f"{where}.shared")
    if not block or not all(isinstance(each, int) for each in extents):
        problem = "expected up to three integers, or expressions of the constants"
        raise ConfigError(problem, where=f"{where}.block", remedy="write the threads of a block")
    if not isinstance(memory, int):
        raise ConfigError("expected an integer", where=f"{where}.shared", remedy="write a number of bytes")
    launch = FixedLaunch(tuple(extents), memory)
    most, what = LIMITS["block"]
    if not launch.is_possible or prod(extents) > most:
        remedy = f"a block has at most {most:,} {what}: exclude the candidate by when"
        raise ConfigError(
            f"{spell_values(configuration)} makes {launch}", where=f"{where}.block", remedy=remedy
        )
    return launch


_EXPRESSION = scalar("an integer or an expression")
_EXPRESSIONS = array(_EXPRESSION, "an array of integers and expressions")


def _check_extents(value: object, where: str) -> tuple[str, ...]:
    return _EXPRESSIONS.check(value, where) if isinstance(value, list) else (_EXPRESSION.check(value, where),)


def _check_tolerance(value: object, where: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1:
        raise ConfigError(f"expected a number from 0 to below 1, found {show(value)}", where=where)
    return float(value)


def _check_table(item: Kind) -> Kind:
    def check(value: object, where: str) -> dict[str, Any]:
        pairs = expect(value, dict, where, "a table").items()
        return {name: item.check(each, key_path(where, name)) for name, each in pairs}

    return Kind(check, map_schema(".", item.schema))


_EXTENTS = Kind(_check_extents, {"anyOf": [_EXPRESSION.schema, _EXPRESSIONS.schema]})
_FUNCTION = string('a function such as "my_package.inputs:gemm"', "name one", pattern=r"^[\w.]+:\w+$")
_ONE = Kind(lambda value, where: VALUES.check([value], where)[0], VALUES.schema["items"])
_KEYS = {
    "kernel": EXPRESSION_PATTERN,
    "key": array(string(), "an array of names", "name the integers that the choice depends on"),
    "when": string('an expression such as "TILE * STAGES <= 512"', "take it out"),
    "default": _check_table(_ONE).described(
        "The constants of the default candidate. Without them, it is the first one."
    ),
    "block": _EXTENTS.described("The threads of a block: numbers or expressions of the constants."),
    "shared": _EXPRESSION.described(
        "The dynamic shared memory of a block in bytes: a number or an expression."
    ),
    "grid": _EXTENTS.described("The grid of measurements: expressions of arguments and constants."),
    "arrays": _check_table(_EXPRESSION).described("The number of elements of each array in measurements."),
    "inputs": _FUNCTION.described("A function that makes the arguments of a measurement."),
    "tolerance": Kind(_check_tolerance, {"type": "number", "minimum": 0, "exclusiveMaximum": 1}),
}
_KNOWN = table(_KEYS, _EXAMPLE, {"kernel": "name the kernel, with a placeholder for each constant"})
_SCHEMA = {
    **map_schema(rf"^{C_NAME}$", VALUES.schema),
    "properties": _KNOWN.schema["properties"],
    "required": ["kernel"],
}


def _check_apart(entries: Sequence[Tune], where: str) -> Sequence[Tune]:
    """Check that no two of `entries` have one file of measurements."""
    first: dict[str, int] = {}
    for number, entry in enumerate(entries):
        if (other := first.setdefault(entry.base, number)) != number:
            raise ConfigError(
                f"lists candidates of {entry.base!r}, as {where}[{other}] does",
                where=f"{where}[{number}]",
                remedy=f"unite the two: {entry.file} has the measurements of one",
            )
    return entries


TUNE = array(Kind(_check_tune, _SCHEMA), f"an array of tables, each {_EXAMPLE}").then(_check_apart)
