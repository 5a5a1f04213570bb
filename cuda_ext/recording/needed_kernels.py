"""Instantiations of Python functions for recorded launches: which take a launch, and which are needed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from cuda_ext.compiler.front_ends.instantiation import Instantiation, TypedParameter, parse_instantiation
from cuda_ext.compiler.front_ends.kernel_description import DTYPES
from cuda_ext.compiler.front_ends.python_functions import PythonFunction
from cuda_ext.facts.launches import TRITON_OPTIONS
from cuda_ext.recording.records import Argument, Launch

_TRITON = {each.torch: each.triton for each in DTYPES}
# Each of these types of numbers takes the values of all that stand before it.
_WIDER = ("i1", "bool", "i8", "i16", "i32", "i64", "fp32", "f32", "fp64", "f64")


def needed_by(launch: Launch, function: PythonFunction) -> Instantiation:
    """Return the instantiation of a launch with all constants, and without options that are the default.

    A number that was 1 has its type, too: ``n: i32=1?``. Raises :class:`ValueError` for a damaged record.
    """
    each = parse_instantiation(launch.instantiation)
    given = _with_defaults(each, function)
    ones = [n for n in function.parameters if given.get(n) == "1" and not function.is_constant(n)]
    parameters = (*each.parameters, *(TypedParameter(name, "i32", constant="1") for name in ones))
    constants = {
        name: text
        for name, text in given.items()
        if name not in ones and (name in function.parameters or text != TRITON_OPTIONS.get(name))
    }
    return replace(each, parameters=parameters, constants=constants).in_order(function.parameters)


def _with_defaults(each: Instantiation, function: PythonFunction) -> dict[str, str]:
    """Return the constants and options of an instantiation, also those that it leaves out."""
    given = {**TRITON_OPTIONS, **function.defaults}
    for name, text in function.defaults.items():
        last = text.rpartition(".")[2]  # of a dtype or a function in a module
        given[name] = _TRITON.get(last, last if last.isidentifier() else text)
    given |= {**each.constants, **each.configuration}
    typed = {parameter.name for parameter in each.parameters}
    return {name: given[name] for name in (*function.parameters, *given) if name in given.keys() - typed}


def takes(built: Instantiation, needed: Instantiation, launch: Launch, function: PythonFunction) -> bool:
    """Return True if the kernel of `built` takes a launch. Hints do not matter: one kernel has none."""
    arguments = {argument.name: argument for argument in launch.arguments}
    typed = {parameter.argument: parameter for parameter in needed.parameters}
    given, own = (_with_defaults(each, function) for each in (built, needed))
    own |= {argument.name: argument.value for argument in launch.arguments}
    own |= {parameter.name: "1" for parameter in needed.parameters if parameter.constant}
    for name in given.keys() & built.derived.keys():
        if own.get(name, "").isdecimal() and given[name].isdecimal() and int(own[name]) <= int(given[name]):
            own[name] = given[name]  # a launch that does not give it takes the least that suffices
    return all(own.get(name) == given.get(name) for name in {*given, *needed.constants}) and all(
        _fits(p, typed.get(p.argument), arguments.get(p.argument, Argument(""))) for p in built.parameters
    )


def _fits(built: TypedParameter, needed: TypedParameter | None, argument: Argument) -> bool:
    """Return True if a kernel `built` for one type takes the `argument` for which another is `needed`."""
    if needed is None or len(built.axes) != len(needed.axes):
        return False
    axes = zip(built.axes, argument.shape or (), argument.strides or (), strict=False)
    types = [each.type.replace("*k", "*").replace(" ", "") for each in (built, needed)]
    return _widest(*types) == types[0] and all(
        axis.length in (None, length) and axis.stride in (None, stride) for axis, length, stride in axes
    )


def _widest(one: str, other: str) -> str:
    """Return the type that takes the values of both types; empty if there is none."""
    if one == other:
        return one
    return max(one, other, key=_WIDER.index) if {one, other}.issubset(_WIDER) else ""


def unite(
    wanted: Mapping[str, int], built: Iterable[Instantiation], function: PythonFunction
) -> tuple[list[str], list[str]]:
    """Return instantiations of `function` for all that are `wanted`, with the numbers of their launches.

    Kernels of one name, of which some may be `built`, have one type for each number, and one set of options:
    the widest type, and the options that were launched most. The second list says what is left out.
    """
    ordered = [parse_instantiation(text) for text in sorted(wanted, key=lambda text: -wanted[text])]
    taken = dict(_identity(each, function) for each in built if not each.configuration)
    found: list[Instantiation] = []
    left_out: list[str] = []
    for each in _with_widest_types(ordered, function):
        # An instantiation with `=1?` is also one without. If that has the name of another, it is for 1 alone.
        for possible in (each, each.alternatives[0]):
            own = dict(_identity(one, function) for one in possible.alternatives)
            if all(taken.get(name, fixed) == fixed for name, fixed in own.items()):
                taken |= own
                found.append(possible)
                break
        else:
            left_out.append(f"{each}: a kernel of this name has other types or options")
    return [*_without_repetition(found)], left_out


def _with_widest_types(several: Sequence[Instantiation], function: PythonFunction) -> Iterator[Instantiation]:
    """Yield `several` with one type for each number in kernels of one name, where one takes all values."""
    widest: dict[tuple[object, str], str] = {}
    for each in several:
        name, _ = _identity(each, function)
        for p in each.parameters:
            before = widest.setdefault((name, p.argument), p.type)
            widest[name, p.argument] = _widest(before, p.type) or before
    for each in several:
        name, _ = _identity(each, function)
        types = (_widest(p.type, widest[name, p.argument]) or p.type for p in each.parameters)
        typed = zip(each.parameters, types, strict=True)
        yield replace(each, parameters=tuple(p._replace(type=type_) for p, type_ in typed))


def _without_repetition(found: Iterable[Instantiation]) -> Iterator[str]:
    """Yield those that stand for a kernel that no other has. A launch takes the first whose hints hold."""
    kernels: set[str] = set()
    for each in sorted(found, key=lambda each: (-sum(map(len, each.conditions)), -len(each.alternatives))):
        own = {str(kernel) for one in each.alternatives for kernel in (one, one.without_hints())}
        if not own <= kernels:
            kernels |= own
            yield str(each)


def _identity(each: Instantiation, function: PythonFunction) -> tuple[object, object]:
    """Return what the name of a kernel is made of, and what else kernels of that name have in common."""
    given = _with_defaults(each, function)
    arrays = (p.type for p in each.parameters if p.axes or p.type.startswith(("*", "tensordesc")))
    named = ((name, given.pop(name)) for name in function.parameters if name in given)
    name = (*dict.fromkeys(type_.replace("*k", "*") for type_ in arrays), *named)
    return name, ([(p.argument, p.type) for p in each.parameters], given)
