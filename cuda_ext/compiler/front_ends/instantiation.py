"""Instantiations of Python functions: ``softmax(out: *fp16:16, n: i32, BLOCK=1024, num_warps=4)``.

A configuration may follow the parameters, if a kernel has several. A launch takes the first whose condition
holds: ``softmax(out: *fp16:16, n: i32)(BLOCK=1024, num_warps=8) if sm_90 and n >= 512``.

Arrays have axes, ``f16[?, 64]:16``. Their strides follow a semicolon if the last stride is not 1.

A type may be followed by a value, ``stride: i32=1?``: one kernel is for this constant, and one for the type.
A constant may be followed by a condition, ``BLOCK=512 if n <= 512`` or ``BLOCK=1024 otherwise``: a launch
that does not give the constant takes the least whose condition holds.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import NamedTuple, TypeAlias

from cuda_ext.errors import shorten
from cuda_ext.facts.candidates import Term
from cuda_ext.formats.variant_conditions import Condition, parse, parse_either, spell
from cuda_ext.text.brackets import split_arguments, take_parentheses


class Axis(NamedTuple):
    """An axis of an array: its length and its stride in elements; ``None`` allows any.

    ``divisor`` must divide the length.
    """

    length: int | None
    stride: int | None
    divisor: int = 1


class TypedParameter(NamedTuple):
    """A parameter with its type in the front-end's spelling, and a number that must divide its values.

    If the parameter of the function is a tuple, which may contain others, ``path`` has the position in each.
    An array has ``axes``; its type is that of the elements. Its divisor must divide the address, and the
    strides in bytes. With a ``constant``, it is compiled for this value, too.
    """

    name: str
    type: str
    divisor: int = 1
    path: tuple[int, ...] = ()
    axes: tuple[Axis, ...] = ()
    constant: str = ""

    @property
    def argument(self) -> str:
        """The name of its argument: ``x``, or ``xs_0`` in a tuple ``xs``."""
        return "_".join((self.name, *map(str, self.path)))

    @property
    def spelled_type(self) -> str:
        constant = f"={self.constant}?" if self.constant else ""
        return f"{self.type}{_spell_axes(self.axes)}{_spell_divisor(self.divisor)}{constant}"

    def terms(self, stride_divisor: int = 1) -> Iterator[Term]:
        """Yield the assumptions about its values as terms of conditions.

        `stride_divisor` must divide the strides of an array. Strides count elements, whose size is not known
        here.
        """
        name = self.argument
        if self.divisor > 1:
            yield Term(name, "==", 0, self.divisor)
        for number, axis in enumerate(self.axes):
            shape, stride = f"{name}.shape[{number}]", f"{name}.stride[{number}]"
            if axis.length is not None:
                yield Term(shape, "==", axis.length)
            elif axis.divisor > 1:
                yield Term(shape, "==", 0, axis.divisor)
            if axis.stride is not None:
                yield Term(stride, "==", axis.stride)
                continue
            yield Term(stride, ">=", 0)
            if stride_divisor > 1:
                yield Term(stride, "==", 0, stride_divisor)

    def without_hints(self) -> TypedParameter:
        """Return the same parameter without divisors."""
        return self._replace(divisor=1, axes=tuple(axis._replace(divisor=1) for axis in self.axes))


# The type of a function's parameter: a tuple consists of such types.
ParameterType: TypeAlias = "TypedParameter | tuple[ParameterType, ...]"


@dataclass(frozen=True)
class Instantiation:
    """A Python function, with the types of its parameters.

    ``constants`` are the values of other parameters and of the front-end's options, as Python spells them.
    ``configuration`` are such values that are not in the kernel's name. ``when`` has conditions on the
    arguments and the GPU of a launch besides the divisors of the types; one must hold if there are any.
    Constants that are ``derived`` from arguments have their conditions there.
    """

    function: str
    parameters: tuple[TypedParameter, ...]
    constants: Mapping[str, str]
    configuration: Mapping[str, str] = field(default_factory=dict)
    when: tuple[Condition, ...] = ()
    derived: Mapping[str, Condition] = field(default_factory=dict)

    @property
    def conditions(self) -> tuple[Condition, ...]:
        """The conditions of which a launch must satisfy one, without the divisors of strides."""
        return self.combine([term for parameter in self.parameters for term in parameter.terms()])

    def combine(self, terms: Sequence[Term]) -> tuple[Condition, ...]:
        """Add all of `terms` to each condition in ``when``."""
        conditions = self.when or ((),)
        return tuple((*condition, *terms) for condition in conditions if condition or terms)

    def without_hints(self) -> Instantiation:
        """Return the same instantiation without divisors."""
        return replace(self, parameters=tuple(p.without_hints() for p in self.parameters))

    @property
    def alternatives(self) -> list[Instantiation]:
        """The instantiations that it stands for: those with more constants of parameters first.

        Either all parameters have their numbers or none; each may be ``None``, which no other value is.
        """
        names = [p.name for p in self.parameters if p.constant == "None"]
        numbers = {p.name for p in self.parameters if p.constant} - {*names}
        chosen: list[set[str]] = [numbers, set()] if numbers else [set()]
        for name in names:
            chosen = [each | more for each in chosen for more in ({name}, set())]
        return [self._with_constants(each) for each in chosen]

    def _with_constants(self, names: Collection[str]) -> Instantiation:
        """Return the instantiation with the constants of the parameters `names`, and types for the others."""
        typed = tuple(p._replace(constant="") for p in self.parameters if p.name not in names)
        given = {p.name: p.constant for p in self.parameters if p.name in names}
        return replace(self, parameters=typed, constants={**self.constants, **given})

    def in_order(self, names: Sequence[str]) -> Instantiation:
        """Return the same with the parameters in the order of `names`, those of the function."""
        return replace(self, parameters=tuple(sorted(self.parameters, key=lambda p: names.index(p.name))))

    @property
    def types(self) -> dict[str, ParameterType]:
        """The types of the function's parameters by name."""
        return {name: _nest([*items]) for name, items in groupby(self.parameters, key=lambda each: each.name)}

    def __str__(self) -> str:
        typed = [f"{name}: {_spell_type(type_)}" for name, type_ in self.types.items()]
        configuration = f"({_spell_constants(self.configuration)})" if self.configuration else ""
        when = f" if {spell(self.when)}" if self.when else ""
        constants = _spell_constants(self.constants, self.derived)
        arguments = ", ".join(filter(None, [*typed, constants]))
        return f"{self.function}({arguments}){configuration}{when}"


def _spell_constants(constants: Mapping[str, str], derived: Mapping[str, Condition] = {}) -> str:
    conditions = {name: f" if {spell([when])}" if when else " otherwise" for name, when in derived.items()}
    return ", ".join(f"{name}={value}{conditions.get(name, '')}" for name, value in constants.items())


def _spell_axes(axes: Sequence[Axis]) -> str:
    if not axes:
        return ""
    lengths = ", ".join(_spell(axis.length) + _spell_divisor(axis.divisor) for axis in axes)
    strides = [axis.stride for axis in axes]
    return (
        f"[{lengths}]" if strides == _contiguous(axes) else f"[{lengths}; {', '.join(map(_spell, strides))}]"
    )


def _contiguous(axes: Sequence[object]) -> list[int | None]:
    """Return the known strides of an array whose last axis is contiguous."""
    return [None] * (len(axes) - 1) + [1]


def _spell(number: int | None) -> str:
    return "?" if number is None else str(number)


def _spell_divisor(divisor: int) -> str:
    return f":{divisor}" if divisor > 1 else ""


def _nest(items: Sequence[TypedParameter], depth: int = 0) -> ParameterType:
    """Build the type whose `items` have a common path of this `depth`."""
    if len(items[0].path) == depth:
        return items[0]
    return tuple(_nest([*each], depth + 1) for _, each in groupby(items, key=lambda item: item.path[depth]))


def _spell_type(type_: ParameterType) -> str:
    if isinstance(type_, TypedParameter):
        return type_.spelled_type
    return f"({', '.join(map(_spell_type, type_))})"


_FUNCTION = re.compile(r"\s*([^\W\d]\w*)\s*(.*)", re.DOTALL)
_TYPED = re.compile(r"([^\W\d]\w*)\s*:(.+)", re.DOTALL)
_TYPE = re.compile(r"\s*([^:\[\]<>]+?(?:<[^<>]*>)?)\s*(?:\[([^\[\]]*)\])?\s*(?::\s*(\d{1,3}))?\s*")
_LENGTH = re.compile(r"\s*(?:\?\s*(?::\s*(?P<divisor>\d{1,3}))?|(?P<number>\d{1,9}))\s*")
_STRIDE = re.compile(r"\s*(?:\?|(?P<number>\d{1,9}))\s*")
_CONSTANT = re.compile(r"([^\W\d]\w*)\s*=\s*(.+)", re.DOTALL)
_DERIVED = re.compile(r"([^'\"]+?)\s+(?:if\s+(.+)|otherwise)", re.DOTALL)
_DEEPEST = 8  # the limit of tuples within tuples
# The divisor of addresses and integers that the compilers at run time examine.
DIVISOR = 16
_DIVISORS = (1, 2, 4, 8, 16, 32, 64, 128, 256)


def parse_instantiation(text: str) -> Instantiation:
    """Parse an instantiation. Raises :class:`ValueError` that says what is wrong."""
    function = _FUNCTION.fullmatch(text)
    call = function and take_parentheses(function[2])
    if not function or not call:
        raise ValueError(
            "expected a function with the types of its parameters, such as scale(x: *fp32, n: i32, "
            "BLOCK=1024)"
        )
    inner, rest = call
    configured, rest = take_parentheses(rest) or ("", rest)
    parameters, constants, derived = _parse_arguments(inner)
    others, configuration, conditional = _parse_arguments(configured)
    if conditional:
        raise ValueError(f"{min(conditional)!r}: the condition of a configuration stands behind it")
    if others:
        raise ValueError(f"a configuration has values, as in ({others[0].name}=1), and no types")
    given = {parameter.name for parameter in parameters} | constants.keys()
    if repeated := given & configuration.keys():
        raise ValueError(f"the parameter {min(repeated)!r} is given twice")
    word, _, when = rest.partition(" ")
    if rest and (word != "if" or not when.strip()):
        raise ValueError(
            f"expected a condition such as 'if n >= 1024' behind the function, found {shorten(rest)!r}"
        )
    conditions = parse_either(when) if when else ()
    return Instantiation(function[1], parameters, constants, configuration, conditions, derived)


def instantiate_alike(text: str, built: str, name: str) -> str:
    """Write an instantiation for the kernel `name` like `text`, from which the kernel `built` was compiled.

    >>> instantiate_alike("f(x: *fp16:16, n: i32, B=64)", "f<fp16, B=64>", "f<fp64, B=128>")
    'f(x: *fp64:16, n: i32, B=128)'
    """
    each = parse_instantiation(text)
    old, new = ([*split_arguments(n.partition("<")[2].rpartition(">")[0])] for n in (built, name))
    types = dict(zip((a for a in old if "=" not in a), (a for a in new if "=" not in a), strict=False))
    given = dict(argument.split("=", 1) for argument in new if "=" in argument)

    def retype(parameter: TypedParameter) -> TypedParameter:
        type_ = parameter.type
        if parameter.axes or not type_.isidentifier():
            element = next((t for t in types if re.search(rf"(\b|k){re.escape(t)}\b", type_)), "")
            type_ = type_.replace(element, types.get(element, ""), 1)
        return parameter._replace(type=type_)

    parameters = tuple(retype(parameter) for parameter in each.parameters if parameter.name not in given)
    return str(Instantiation(each.function, parameters, {**each.constants, **given}))


def _parse_arguments(text: str) -> tuple[tuple[TypedParameter, ...], dict[str, str], dict[str, Condition]]:
    """Divide the arguments `text` into types, constants, and conditions of constants."""
    parameters: list[TypedParameter] = []
    constants: dict[str, str] = {}
    derived: dict[str, Condition] = {}
    taken: set[str] = set()
    for item in split_arguments(text):
        if typed := _TYPED.fullmatch(item):
            name = typed[1]
            added, constant = [*_parse_types(TypedParameter(name, ""), typed[2].strip())], None
        elif given := _CONSTANT.fullmatch(item):
            name, value = given[1], given[2].strip()
            if conditional := _DERIVED.fullmatch(value):
                value = conditional[1]
                derived[name] = parse(conditional[2]) if conditional[2] else ()
            added, constant = [], parse_constant(name, value)
        else:
            raise ValueError(
                f"{shorten(item)!r}: expected a type, as in n: i32, or a value, as in BLOCK=1024"
            )
        names = {name, *(each.argument for each in added)}
        if repeated := names & taken:
            raise ValueError(f"the parameter {min(repeated)!r} is given twice")
        taken |= names
        parameters += added
        if constant is not None:
            constants[name] = constant
    return tuple(parameters), constants, derived


def _parse_types(of: TypedParameter, text: str) -> Iterator[TypedParameter]:
    """Yield `of` with the type `text`, or the items of a tuple of types."""
    if not text.startswith("("):
        yield _parse_type(of, text)
        return
    items = list(split_arguments(text[1:-1])) if text.endswith(")") and len(of.path) < _DEEPEST else []
    if not items:
        raise ValueError(f"{of.name}: {shorten(text)}: expected types in parentheses, such as (*fp32, i32)")
    for number, item in enumerate(items):
        yield from _parse_types(of._replace(path=(*of.path, number)), item)


def _parse_type(of: TypedParameter, text: str) -> TypedParameter:
    typed, _, value = text.partition("=")
    match = _TYPE.fullmatch(typed)
    if not match or (value and (of.path or not value.endswith("?"))):
        raise ValueError(f"{of.name}: {shorten(text)}: expected a type, such as i32, *fp32:16 or i32=1?")
    axes = () if match[2] is None else tuple(_parse_axes(match[2]))
    divisors = [int(match[3] or 1), *(axis.divisor for axis in axes)]
    if not {*divisors}.issubset(_DIVISORS):
        raise ValueError(f"{of.name}: {shorten(text)}: expected a power of two up to 256 behind the colon")
    constant = parse_constant(of.name, value[:-1].strip()) if value else ""
    return of._replace(type=" ".join(match[1].split()), divisor=divisors[0], axes=axes, constant=constant)


def _parse_axes(text: str) -> Iterator[Axis]:
    """Parse the axes in brackets."""
    lengths, semicolon, strides = text.partition(";")
    axes = [_LENGTH.fullmatch(each) for each in lengths.split(",")]
    steps = [_STRIDE.fullmatch(each) for each in strides.split(",")]
    if not all(axes) or (semicolon and not all(steps)):
        raise ValueError(
            f"[{shorten(text)}]: expected axes such as [?, 64], [?:16], or with strides [?, ?; 1, ?]"
        )
    if semicolon and len(axes) != len(steps):
        raise ValueError(f"[{text}] has {len(axes)} axes and {len(steps)} strides")
    known = [_number(step) for step in steps] if semicolon else _contiguous(axes)
    for axis, stride in zip(axes, known, strict=True):
        yield Axis(_number(axis), stride, int((axis and axis["divisor"]) or 1))


def _number(match: re.Match[str] | None) -> int | None:
    return int(match["number"]) if match and match["number"] else None


def parse_constant(name: str, text: str) -> str:
    """Return the canonical spelling of the constant `text`. Raises :class:`ValueError`."""
    with suppress(ValueError, SyntaxError, MemoryError, RecursionError):
        return _spell_constant(ast.parse(text, mode="eval").body)
    text = shorten(text)
    raise ValueError(f"{name}={text}: expected a number, True, False, None, a string, a dtype, or a tuple")


def _spell_constant(node: ast.expr) -> str:
    match node:
        case ast.Tuple(items):
            inner = ", ".join(map(_spell_constant, items))
            return f"({inner},)" if len(items) == 1 else f"({inner})"
        case ast.Name("true" | "false"):  # a boolean of TOML
            return node.id.capitalize()
        case ast.Name(name):  # a dtype, or a function
            return name
    value = ast.literal_eval(node)
    if value is None or isinstance(value, int | float | str):
        return repr(value)
    raise ValueError
