"""The key ``tune``: kernels with candidates, which differ in constants, and of which measurements choose."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from functools import partial
from math import prod
from typing import NamedTuple

from cuda_ext.builder.config import kinds
from cuda_ext.builder.config.instantiations import (
    EXPRESSION_PATTERN,
    VALUE,
    VALUES,
    check_placeholders,
    multiply_out,
)
from cuda_ext.builder.config.kinds import Kind, array, key_path, show
from cuda_ext.compiler.front_ends.kernel_description import LIMITS
from cuda_ext.compiler.translation_unit import MOST_INSTANTIATIONS
from cuda_ext.compiler.tuned_kernels import Configuration, spell_values
from cuda_ext.errors import ConfigError
from cuda_ext.facts.candidates import Tuning
from cuda_ext.facts.launches import FixedLaunch
from cuda_ext.text.brackets import split_arguments
from cuda_ext.text.expressions import evaluate

_BOOLEANS = {"true": "True", "false": "False"}
_PLACEHOLDER = re.compile(r"\{(\w+)\}")
_EXAMPLE = 'a table such as { kernel = "gemm<{TILE}>", TILE = [64, 128], key = ["n"], block = "TILE * 2" }'


class Candidate(NamedTuple):
    """An instantiation, its constants, and in C++ its launch."""

    text: str
    configuration: Configuration
    launch: FixedLaunch | None = None


@dataclass(frozen=True)
class Tune:
    """The candidates of ``function``, by the names of the kernels that they stand for.

    A function in Python has one name, and no candidates if they are those of its decorator.
    """

    where: str = field(compare=False)
    function: str
    tuning: Tuning
    is_python: bool
    when: str = ""
    default: Configuration = field(default_factory=dict)
    candidates: Mapping[str, Sequence[Candidate]] = field(default_factory=dict)

    def select(self, candidates: Iterable[Candidate]) -> list[Candidate]:
        """Return those of `candidates` for which ``when`` holds, the default first. Raises ConfigError."""
        kept = [each for each in candidates if not self.when or self._evaluate("when", self.when, each)]
        if not kept:
            raise ConfigError("has no candidate", where=self.where, remedy="list values of its constants")
        if self.default and self.default not in [each.configuration for each in kept]:
            where, remedy = f"{self.where}.default", "give each constant a listed value"
            raise ConfigError("is none of the candidates", where=where, remedy=remedy)
        return sorted(kept, key=lambda each: bool(self.default) and each.configuration != self.default)

    def launched(self, each: Candidate, block: Sequence[str], shared: str) -> Candidate:
        """Return a candidate in C++ with its launch. Raises ConfigError if no GPU has such blocks."""
        extents = tuple(self._evaluate("block", text, each) for text in block)
        launch = FixedLaunch(extents, self._evaluate("shared", shared, each))
        most, what = LIMITS["block"]
        if not launch.is_possible or prod(extents) > most:
            problem = f"{spell_values(each.configuration)} makes {launch}"
            remedy = f"a block has at most {most:,} {what}: exclude the candidate by when"
            raise ConfigError(problem, where=f"{self.where}.block", remedy=remedy)
        return each._replace(launch=launch)

    def _evaluate(self, key: str, text: str, candidate: Candidate) -> int:
        names = {name: evaluate(value, {}) for name, value in candidate.configuration.items()}
        try:
            if isinstance(value := evaluate(text, names), int):
                return value
            problem = f"{value} is no integer"
        except ValueError as error:
            problem = str(error)
        remedy = f"write an expression of {', '.join(names)}, such as {next(iter(names), 'N')} * 4"
        raise ConfigError(f"{show(text)}: {problem}", where=f"{self.where}.{key}", remedy=remedy)


def _check_tune(value: object, where: str) -> Tune:
    whole = kinds.expect(value, dict, where, _EXAMPLE)
    given = _KNOWN.check({name: each for name, each in whole.items() if name in _KEYS}, where)
    values = {n: VALUES.check(each, key_path(where, n)) for n, each in whole.items() if n not in _KEYS}
    pattern = given["kernel"]
    check_placeholders(pattern, [*values], where)
    function, is_python = re.split(r"[<(]", pattern)[0].strip(), "<" not in pattern
    tuned = {name for name, texts in values.items() if all(map(_is_constant, texts))}
    if is_python and (other := [name for name in values if name not in tuned]):
        problem = "candidates of a function in Python differ in integers and booleans"
        remedy = "write other constants into kernel"
        raise ConfigError(problem, where=key_path(where, other[0]), remedy=remedy)
    for key, remedy in _OF_TEMPLATES.items():
        if not is_python and not given.get(key):
            raise ConfigError("is missing", where=f"{where}.{key}", remedy=remedy)
    measuring = {name: given[name] for name in Tuning._fields if name in given}
    tuning = Tuning(f"tuning/{function.rpartition('::')[2]}.json", **{"key": (), **measuring})
    default = {name: _BOOLEANS.get(text, text) for name, text in given.get("default", {}).items()}
    made = Tune(where, function, tuning, is_python, given.get("when", ""), default)
    groups: dict[str, list[Candidate]] = {} if values else {function: []}
    for number, (chosen, text) in enumerate(multiply_out(pattern, values) if values else ()):
        if number == MOST_INSTANTIATIONS:
            raise ConfigError(f"stands for more than {MOST_INSTANTIATIONS:,} candidates", where=where)
        configuration = {n: _BOOLEANS.get(chosen[n], chosen[n]) for n in values if n in tuned}
        name = function if is_python else _name_of(pattern, chosen, tuned)
        groups.setdefault(name, []).append(Candidate(text, configuration))
    selected = {name: made.select(group) for name, group in groups.items() if group or not is_python}
    if not is_python:
        shape = given["block"], given.get("shared", "0")
        selected = {n: [made.launched(each, *shape) for each in group] for n, group in selected.items()}
    return replace(made, candidates=selected)


def _is_constant(text: str) -> bool:
    return text in _BOOLEANS or text.removeprefix("-").isdecimal()


def _name_of(pattern: str, values: Mapping[str, str], tuned: Set[str]) -> str:
    """Return the name of the kernel `pattern`: without the arguments that contain `tuned` constants."""
    name, _, arguments = pattern.strip().removesuffix(">").partition("<")
    kept = [each for each in split_arguments(arguments) if not tuned & {*_PLACEHOLDER.findall(each)}]
    text = f"{name}<{', '.join(kept)}>" if kept else name
    return _PLACEHOLDER.sub(lambda match: values[match[1]], text)


def _check_tolerance(value: object, where: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1:
        raise ConfigError(f"expected a number from 0 to below 1, found {show(value)}", where=where)
    return float(value)


def _check_apart(entries: Sequence[Tune], where: str) -> Sequence[Tune]:
    """Check that no two of `entries` have one file of measurements."""
    files = [entry.tuning.file for entry in entries]
    for number, file in enumerate(files):
        if (first := files.index(file)) < number:
            problem = f"has its measurements in {file}, as {where}[{first}] does"
            raise ConfigError(problem, where=f"{where}[{number}]", remedy="unite the two")
    return entries


_EXPRESSION = kinds.scalar("an integer or an expression")
_LISTED = array(_EXPRESSION, "an array of integers and expressions")
_EXTENTS = Kind(
    lambda value, where: _LISTED.check(value if isinstance(value, list) else [value], where),
    {"anyOf": [_EXPRESSION.schema, _LISTED.schema]},
)
_by_name = partial(kinds.mapping, ".", lambda *_: None, what="a table")
# Keys that templates have. The decorator of a function may have its key, and its image has the block.
_OF_TEMPLATES = {
    "key": "name the integers that the choice depends on",
    "block": "write the threads of a block",
}
_KEYS = {
    "kernel": EXPRESSION_PATTERN,
    "key": array(kinds.string(), "an array of names", _OF_TEMPLATES["key"]),
    "when": kinds.string('an expression such as "TILE * STAGES <= 512"', "take it out"),
    "default": _by_name(VALUE).described("The constants of the default candidate; by default, the first."),
    "block": _EXTENTS.described("The threads of a block: numbers or expressions of the constants."),
    "shared": _EXPRESSION.described("The dynamic shared memory of a block in bytes."),
    "grid": _EXTENTS.described("The grid of measurements: expressions of arguments and constants."),
    "arrays": _by_name(_EXPRESSION).described("The number of elements of each array in measurements."),
    "inputs": kinds.string('a function such as "my_package.inputs:gemm"', pattern=r"^[\w.]+:\w+$"),
    "tolerance": Kind(_check_tolerance, {"type": "number", "minimum": 0, "exclusiveMaximum": 1}),
}
_KNOWN = kinds.table(_KEYS, _EXAMPLE, {"kernel": "name the kernel, with a placeholder for each constant"})
_SCHEMA = {**kinds.map_schema(rf"^{kinds.C_NAME}$", VALUES.schema), "properties": _KNOWN.schema["properties"]}
_SCHEMA["required"] = ["kernel"]
TUNE = array(Kind(_check_tune, _SCHEMA), f"an array of tables, each {_EXAMPLE}").then(_check_apart)
