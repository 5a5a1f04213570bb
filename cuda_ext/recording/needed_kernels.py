"""Instantiations of Python functions for recorded launches: which take a launch, and which one it needs."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from cuda_ext.compiler.front_ends.instantiation import (
    DIVISOR,
    Axis,
    Instantiation,
    TypedParameter,
    parse_instantiation,
)
from cuda_ext.compiler.front_ends.kernel_description import DTYPES
from cuda_ext.compiler.front_ends.python_functions import PythonFunction
from cuda_ext.facts.launches import TRITON_OPTIONS
from cuda_ext.recording.records import Argument, Launch

# Each of these types takes the values of all that stand before it.
_WIDER = ("i1", "i8", "i16", "i32", "i64", "fp32", "fp64", "bool", "f32", "f64")
# More combinations of hints than these become one, with the hints that all of them have.
_MOST_HINTS = 4


def takes(built: Instantiation, launch: Launch, function: PythonFunction) -> bool:
    """Return True if the kernel of `built` takes the launch. Hints do not matter: one has none."""
    given = {**built.constants, **built.configuration}
    arguments = {(each.name, each.path): each for each in launch.arguments}
    for name in function.parameters:
        own = arguments[name, ()].value if (name, ()) in arguments else launch.constants.get(name, "")
        if name in given:
            if own != given[name] and not (name in built.derived and own and int(own) <= int(given[name])):
                return False
        elif any(p.name == name for p in built.parameters):
            if not all(_fits(p, arguments.get((name, p.path))) for p in built.parameters if p.name == name):
                return False
        elif own != _spell_default(function.defaults.get(name, "")):
            return False
    names = {*TRITON_OPTIONS, *launch.options, *given}.difference(function.parameters)
    options = ((given.get(n, TRITON_OPTIONS.get(n)), n) for n in names)
    return all(text == launch.options.get(n, TRITON_OPTIONS.get(n)) for text, n in options)


def _spell_default(text: str) -> str:
    """Spell the default of a parameter as records do: dtypes and functions are their names."""
    try:
        return repr(ast.literal_eval(text))
    except (ValueError, SyntaxError):
        name = text.rpartition(".")[2]
        return next((each.triton for each in DTYPES if each.torch == name), name)


def _fits(parameter: TypedParameter, argument: Argument | None) -> bool:
    if argument is None:
        return False
    if parameter.axes:
        axes = zip(parameter.axes, argument.shape or (), argument.strides or (), strict=False)
        if len(parameter.axes) != len(argument.shape or ()) or not all(
            axis.length in (None, length) and axis.stride in (None, stride) for axis, length, stride in axes
        ):
            return False
    types = [each.replace("*k", "*").replace(" ", "") for each in (parameter.type, argument.type)]
    return _widest(types) == types[0]


def _widest(types: Sequence[str]) -> str:
    """Return the type that takes the values of all `types`; empty if there is none."""
    if len({*types}) == 1:
        return types[0]
    return max(types, key=_WIDER.index) if {*types}.issubset(_WIDER) else ""


def instantiate(launch: Launch, function: PythonFunction) -> Instantiation:
    """Return the instantiation that the front-end's JIT would compile for a launch."""
    parameters = tuple(_typed(argument, launch, function) for argument in launch.arguments)
    constants = {name: launch.constants[name] for name in function.parameters if name in launch.constants}
    each = Instantiation(function.name, parameters, {**constants, **launch.options})
    return each.in_order(function.parameters)


def _typed(argument: Argument, launch: Launch, function: PythonFunction) -> TypedParameter:
    typed = TypedParameter(argument.name, argument.type, path=argument.path)
    if launch.kind == "cutile":
        axes = (
            Axis(None, 1 if is_one else None, DIVISOR if is_even else 1) for is_even, is_one in argument.axes
        )
        typed = typed._replace(axes=tuple(axes))
    elif argument.type.startswith("tensordesc") or function.excludes("do_not_specialize", argument.name):
        return typed
    elif argument.value == "1" and not argument.path and argument.name not in function.annotations:
        typed = typed._replace(constant="1")
    is_number = not typed.axes and not typed.type.startswith("*")
    if launch.kind == "cutile" and is_number:
        return typed
    aligns = not function.excludes("do_not_specialize_on_alignment", argument.name)
    return typed._replace(divisor=DIVISOR if argument.divisible and aligns else 1)


def unite(
    wanted: Mapping[str, int], built: Iterable[Instantiation], function: PythonFunction
) -> Iterator[Instantiation | str]:
    """Yield instantiations of `function` for all that are `wanted`, with the numbers of their launches.

    Kernels of one name, of which some may be `built`, have one type for each number, and one set of options:
    the widest type, and the options that were launched most. A text says what is left out.
    """
    by_name: dict[str, list[Instantiation]] = {}
    for each in map(parse_instantiation, sorted(wanted, key=lambda text: -wanted[text])):
        by_name.setdefault(_name(each, function), []).append(each)
    taken = {_name(each, function): _options(each, function) for each in built if not each.configuration}
    united: list[Instantiation] = []
    for several in by_name.values():
        same = [each for each in several if _is_alike(several[0], each)]
        columns = zip(*(each.parameters for each in same), strict=True)
        types = [_widest([p.type for p in column]) for column in columns]
        united += _with_hints([_retype(each, types) for each in same])
        united += (other for other in several if other not in same)
    # An instantiation with `=1?` is also one without. If that has the name of another, it is for 1 alone.
    for each in sorted(united, key=lambda each: any(p.constant for p in each.parameters)):
        for possible in (each, each.alternatives[0]):
            own = {_name(own, function): _options(own, function) for own in possible.alternatives}
            if all(taken.get(name, options) == options for name, options in own.items()):
                taken |= own
                yield possible
                break
        else:
            yield f"{each}: a kernel of this name has other types or options"


def _name(each: Instantiation, function: PythonFunction) -> str:
    """Return what the name of the kernel is made of."""
    types = dict.fromkeys(p.type for p in each.parameters if p.axes or p.type.startswith(("*", "tensordesc")))
    names = (f"{name}={text}" for name, text in each.constants.items() if name in function.parameters)
    return f"{each.function}<{', '.join([*types, *names])}>"


def _options(each: Instantiation, function: PythonFunction) -> object:
    """Return what else a kernel of that name has."""
    options = {n: text for n, text in each.constants.items() if n not in function.parameters}
    return [(p.argument, p.type) for p in each.parameters], TRITON_OPTIONS | options


def _is_alike(first: Instantiation, each: Instantiation) -> bool:
    if each.constants != first.constants or len(each.parameters) != len(first.parameters):
        return False
    pairs = zip(first.parameters, each.parameters, strict=True)
    return all(
        a.argument == b.argument
        and _widest([a.type, b.type])
        and [x._replace(divisor=1) for x in a.axes] == [x._replace(divisor=1) for x in b.axes]
        for a, b in pairs
    )


def _retype(each: Instantiation, types: Sequence[str]) -> Instantiation:
    typed = (p._replace(type=t) for p, t in zip(each.parameters, types, strict=True))
    return replace(each, parameters=tuple(typed))


def _with_hints(alike: Sequence[Instantiation]) -> list[Instantiation]:
    """Return few instantiations for those that differ only in hints; those with the most hints are first."""
    different = {str(each): each for each in alike}
    if len(different) > _MOST_HINTS:
        columns = zip(*(each.parameters for each in alike), strict=True)
        common = (min(column, key=lambda p: (p.divisor, p.constant)) for column in columns)
        return [replace(alike[0], parameters=tuple(common))]
    for one in [each for each in different.values() if any(p.constant for p in each.parameters)]:
        names = {p.name for p in one.parameters if p.constant}
        for other in [*different.values()]:
            pairs = [*zip(one.parameters, other.parameters, strict=True)]
            if all((b.constant, a) == ("", a) if a.name in names else a == b for a, b in pairs):
                both = tuple(b._replace(constant=a.constant) for a, b in pairs)
                different = {t: e for t, e in different.items() if e not in (one, other)}
                different[str(one)] = replace(one, parameters=both)
                break
    return sorted(different.values(), key=lambda each: -sum(p.divisor for p in each.parameters))
