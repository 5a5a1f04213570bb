"""Overload resolution: choose the kernel of a name that fits the constants and types of a call's arguments.

A name may have hundreds of kernels. So an index has, for each constant and for each type of a parameter, the
set of kernels with it, as a bit set. A choice looks at each argument once, not at each kernel.
"""

from __future__ import annotations

import sys
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from functools import reduce
from operator import and_, or_
from typing import Any

from cuda_ext.errors import ArgumentError, did_you_mean, join_names
from cuda_ext.facts.kernels import Kernel, Parameter
from cuda_ext.formats.spelling import plain_name
from cuda_ext.runtime.argument_fit import fits_exactly
from cuda_ext.runtime.arrays.device_memory import device_memory
from cuda_ext.runtime.arrays.host_arrays import Out, is_host_array
from cuda_ext.runtime.launch.arguments import describe_value, make_fields, suggest_array
from cuda_ext.runtime.launch.configuration import OPTIONS
from cuda_ext.runtime.launch.python_arguments import (
    is_meant,
    option_names,
    plain_value,
    spelled_constants,
    values_of_constant,
)
from cuda_ext.runtime.missing_kernel import MOST_NEAREST, spell_alike

# The most types that a message lists.
_MOST_LISTED = 10


class NotBuiltError(ArgumentError):
    """No kernel has these constants. ``alike`` names those that would, the nearest first."""

    alike: Sequence[str] = ()
    is_missing = True


class OverloadIndex:
    """The `kernels` of one name.

    `meanings` are those of names in the kernels' sources. ``shapes`` has one kernel for each set of names of
    parameters and constants. The other attributes are what a remembered choice depends on, for
    ``_launch.Overloads``: the values of ``constants``, by their names and types; the names in ``order``, the
    arguments of the function, if more are given by position than the ``fewest`` parameters of a kernel.
    """

    def __init__(self, kernels: Sequence[Kernel], meanings: Mapping[str, str] = {}) -> None:
        self._kernels = kernels
        self._meanings = meanings
        self._all = (1 << len(kernels)) - 1
        shapes: dict[tuple[object, ...], _Shape] = {}
        # The kernels with a constant, by its name and text.
        self._with: dict[str, dict[str, int]] = {}
        # Constants that launches derive, and the kernels with them; another kernel stands for these.
        self._derived: set[str] = set()
        self._members = 0
        for number, kernel in enumerate(kernels):
            bit = 1 << number
            for name, text in kernel.constants.items():
                texts = self._with.setdefault(name, {})
                texts[text] = texts.get(text, 0) | bit
            if kernel.derived:
                self._derived.update(kernel.derived)
                self._members |= bit if kernel.derived.keys() & kernel.constants.keys() else 0
            key = (
                *(parameter.name for parameter in kernel.parameters),
                None,
                *kernel.constants,
                *kernel.order,
            )
            shape = shapes.get(key)
            if shape is None:
                shape = shapes[key] = _Shape(kernel)
            shape.add(kernel.parameters, bit)
        self._shapes = [*shapes.values()]
        self.shapes = [shape.kernel for shape in self._shapes]
        # Options of a front-end, which choose no kernel.
        self._options = OPTIONS.union(*(option_names(kernel) for kernel in self.shapes if kernel.options))
        self.fewest = min(0 if kernel.is_in_order else len(kernel.parameters) for kernel in self.shapes)
        orders = {kernel.order for kernel in kernels if kernel.order}
        self._is_one_order = len(orders) <= 1
        self.order = tuple(map(sys.intern, *orders)) if len(orders) == 1 else ()
        self._without = {name: self._all & ~reduce(or_, texts.values()) for name, texts in self._with.items()}
        self.constants: dict[str, dict[type, dict[object, object]]] = {}
        for name, texts in self._with.items():
            by_type = self.constants[sys.intern(name)] = {}
            for value in (value for text in texts for value in values_of_constant(text)):
                by_type.setdefault(type(value), {})[value] = value

    def choose(self, arguments: Sequence[object], keywords: Mapping[str, object]) -> Kernel:
        """Choose the kernel that fits the arguments best. Only the values of constants matter.

        Raises :class:`ArgumentError` if no kernel fits, or if several fit and none is at least as good as all
        others in each argument.
        """
        named = {name: value for name, value in keywords.items() if name not in self._options}
        wanted = {name: value for name, value in named.items() if name in self._with}
        candidates = self._choose_by_constants(wanted)
        # For each argument, the kernels that it fits exactly, and all kernels that it fits.
        given = [*arguments, *named.values()]
        exact, accepting = [0] * len(given), [0] * len(given)
        fits = matching = 0
        for shape in self._shapes:
            parameters = shape.match(arguments, named)
            kernels = shape.kernels & (candidates or self._all)
            if parameters is None or not kernels:
                continue
            matching |= kernels
            for i, (types, argument) in enumerate(zip(parameters, given, strict=True)):
                exactly, converted = _fits(types, argument) if types else (kernels, 0)  # a constant
                exact[i] |= exactly & kernels
                accepting[i] |= (exactly | converted) & kernels
        fits = matching
        for accepted in accepting:
            fits &= accepted
        best = fits
        for exactly in exact:
            best &= exactly & fits or best
        if not candidates:
            raise self._not_built(wanted, best or self._all)
        for name, value in wanted.items() if best & (best - 1) else ():
            best = best & self._that_have(name, value) or best  # rather than a parameter of any value
        if best and not best & (best - 1):
            return self._kernels[best.bit_length() - 1]
        error = self._refuse(arguments, named, fits, matching, accepting)
        error.is_missing = not fits
        raise error

    def is_remembered(self, count: int) -> bool:
        """Return True if a choice with `count` arguments by position depends only on facts that C knows.

        If a function takes tuples of several lengths, constants are at different positions in each kernel.
        """
        return self._is_one_order or count <= self.fewest

    def _choose_by_constants(self, wanted: Mapping[str, object]) -> int:
        """Return the kernels with these constants, which may be parameters of others; 0 without one."""

        def choose(exactly: bool) -> int:
            having = (self._that_have(n, value, exactly) | self._without[n] for n, value in wanted.items())
            return reduce(and_, having, self._candidates_for(wanted))

        return choose(exactly=True) or choose(exactly=False)

    def _candidates_for(self, wanted: Mapping[str, object]) -> int:
        """Return the kernels among which constants choose: if none is derived, those that derive them."""
        is_given = bool(self._derived & wanted.keys())
        return (not is_given and self._all & ~self._members) or self._all

    def choose_by_constants(self, wanted: Mapping[str, object]) -> list[Kernel]:
        """Return the kernels that have these constants.

        Raises :class:`NotBuiltError` without one, and :class:`ArgumentError` for names that none has.
        """
        for name in wanted:
            if name not in self._with:
                hint = did_you_mean(name, self._with)
                known = f"they have {', '.join(self._with)}" if self._with else "choose one with brackets"
                raise ArgumentError(
                    f"no kernel has a template parameter {name!r}",
                    remedy="; ".join(filter(None, [hint, known])),
                )
        for exactly in (True, False):
            having = (self._that_have(name, value, exactly) for name, value in wanted.items())
            if chosen := reduce(and_, having, self._candidates_for(wanted)):
                return [*self._in(chosen)]
        raise self._not_built(wanted, self._all)

    def learn(self, name: str, value: object) -> None:
        """Let C tell `value`, for the constant `name`, from all others."""
        if isinstance(value, Hashable):
            self.constants[name].setdefault(type(value), {}).setdefault(value, value)

    def _that_have(self, name: str, value: object, exactly: bool = True) -> int:
        """Return the kernels whose constant `name` is what `value` means; `exactly` it, if some have it.

        Of constants 1 and True, 1 means the first exactly.
        """
        texts = self._with[name]
        found = reduce(or_, (texts.get(text, 0) for text in spelled_constants(value)), 0)
        if found and exactly:
            return found
        template = plain_name(self._kernels[0].expression)
        for text, kernels in texts.items():
            if is_meant(value, text, template, self._meanings):
                found |= kernels
        if found:
            self.learn(name, value)
        return found

    def _not_built(self, wanted: Mapping[str, object], among: int) -> NotBuiltError:
        """Return the error for constants that no kernel has, with those `among` that differ in the fewest."""
        having = {name: self._that_have(name, value) for name, value in wanted.items()}
        differing = [
            {name: value for name, value in wanted.items() if not having[name] >> number & 1}
            for number in range(len(self._kernels))
        ]
        fitting = [number for number in range(len(self._kernels)) if among >> number & 1]
        nearest = sorted(fitting, key=lambda number: len(differing[number]))
        spelled = ", ".join(
            f"an array as {name!r}" if _is_array(value) else f"{name}={describe_value(plain_value(value))}"
            for name, value in wanted.items()
        )
        names = [self._kernels[number].expression for number in nearest[:MOST_NEAREST]]
        error = NotBuiltError(f"no kernel was built for {spelled}", remedy=f"nearest: {join_names(names)}")
        alike = (spell_alike(self._kernels[n], differing[n], self._meanings) for n in nearest)
        error.alike = [*dict.fromkeys(filter(None, alike))]
        return error

    def _refuse(
        self,
        arguments: Sequence[object],
        named: Mapping[str, object],
        fits: int,
        matching: int,
        accepting: Sequence[int],
    ) -> ArgumentError:
        """Return the error for arguments that fit none or several of the kernels `matching` by name."""
        given = [*arguments, *named.values()]
        names = [
            *(p.name for p in next(self._in(matching or self._all)).parameters[: len(arguments)]),
            *named,
        ]
        for name, argument in zip(names, given, strict=False):
            try:
                device_memory(argument)
            except ArgumentError as error:  # no kernel can take this array, for instance in other memory
                error.where = f"argument {name!r}"
                return error
        # Show the names, which may be misspelt.
        spelled = (f"{name}={_describe_type(argument)}" for name, argument in named.items())
        types = ", ".join([*map(_describe_type, arguments), *spelled])
        if fits:
            fitting = [*self._in(fits)]
            values = {name: {kernel.constants.get(name) for kernel in fitting} for name in self._with}
            missing = [name for name in values.keys() - named.keys() - OPTIONS if len(values[name]) > 1]
            more = f", or give {', '.join(sorted(missing, key=[*values].index))}" if missing else ""
            example = fitting[0].expression
            remedy = f'choose one with brackets, as in kernels["{example}"]{more}:{_signatures(fitting)}'
            return ArgumentError(f"({types}) fits several kernels", remedy=remedy)
        if not matching:
            return self._refuse_shape(types, arguments, named)
        for name, argument, accepted in zip(names, given, accepting, strict=True):
            if not accepted:
                tried = [p for kernel in self._in(matching) for p in kernel.parameters if p.name == name]
                return _refuse_argument(tried, argument)
        # The nearest first.
        numbers = [number for number in range(len(self._kernels)) if matching >> number & 1]
        numbers.sort(key=lambda number: -sum(accepted >> number & 1 for accepted in accepting))
        listed = _signatures([self._kernels[number] for number in numbers])
        problem = f"({types}) fits no kernel: each argument fits some kernel, and no kernel takes all of them"
        return ArgumentError(problem, remedy=f"built:{listed}")

    def _refuse_shape(
        self, types: str, arguments: Sequence[object], named: Mapping[str, object]
    ) -> ArgumentError:
        """Return the error for a number or names of arguments that no kernel has."""
        own = {*self._with, *(p.name for kernel in self.shapes for p in kernel.parameters)}
        nearest = sorted(self._kernels, key=lambda kernel: -_likeness(kernel, arguments, named))
        listed = f"built:{_signatures(nearest)}"
        for name in named:
            if name not in own:
                hint = did_you_mean(name, {*own, *OPTIONS})
                remedy = "; ".join(filter(None, [hint, listed]))
                return ArgumentError(f"no kernel has a parameter {name!r}", remedy=remedy)
        rest, given = nearest[0].parameters[len(arguments) :], named.keys() | nearest[0].defaults
        if missing := [f"{p.type} {p.name}" for p in rest if p.name not in given]:
            return ArgumentError(f"({types}) lacks {join_names(missing)}", remedy=listed)
        counts = sorted({len(kernel.parameters) for kernel in self.shapes})
        constants = f" and the constants {', '.join(self._with)}" if self._with else ""
        problem = f"({types}) fits no kernel: they have {' or '.join(map(str, counts))} parameters{constants}"
        return ArgumentError(problem, remedy=listed)

    def _in(self, kernels: int) -> Iterator[Kernel]:
        return (kernel for number, kernel in enumerate(self._kernels) if kernels >> number & 1)


class _Shape:
    """The kernels with the names of parameters and constants that `kernel` has."""

    def __init__(self, kernel: Kernel) -> None:
        self.kernel = kernel
        self.kernels = 0
        # For each parameter, one example of each type, and the kernels that have it.
        self._types: list[dict[object, tuple[Parameter, int]]] = [{} for _ in kernel.parameters]
        self._positions = {parameter.name: i for i, parameter in enumerate(kernel.parameters)}

    def add(self, parameters: Sequence[Parameter], bit: int) -> None:
        self.kernels |= bit
        for types, parameter in zip(self._types, parameters, strict=True):
            key = parameter.type, parameter.kind, parameter.element
            first, kernels = types.get(key, (parameter, 0))
            types[key] = first, kernels | bit

    def match(
        self, arguments: Sequence[object], named: Mapping[str, object]
    ) -> list[Iterable[tuple[Parameter, int]]] | None:
        """Match `arguments` and those `named` to parameters, by their types; a constant matches none.

        Return ``None`` if the kernels have other parameters.
        """
        rest = self._positions.keys() - [p.name for p in self.kernel.parameters[: len(arguments)]]
        constants = self.kernel.constants.keys() | self.kernel.derived.keys()
        missing = rest ^ (named.keys() - constants)
        if len(arguments) > len(self._types) or not missing <= self.kernel.defaults.keys() & rest:
            return None
        by_name = (self._types[self._positions[name]] if name in rest else {} for name in named)
        return [types.values() for types in (*self._types[: len(arguments)], *by_name)]


def _fits(types: Iterable[tuple[Parameter, int]], argument: Any) -> tuple[int, int]:
    """Return the kernels with parameters of these types that the argument fits exactly, or converted."""
    exact = converted = 0
    for parameter, kernels in types:
        is_exact = fits_exactly(parameter, argument)
        if is_exact:
            exact |= kernels
        elif is_exact is not None:
            converted |= kernels
    return exact, converted


def _likeness(kernel: Kernel, arguments: Sequence[object], named: Mapping[str, object]) -> int:
    """Return how many arguments fit `kernel`, less the parameters that they lack or exceed."""
    by_name = {parameter.name: parameter for parameter in kernel.parameters}
    given = [*zip(kernel.parameters, arguments, strict=False)]
    given += ((by_name[name], value) for name, value in named.items() if name in by_name)
    constants = sum(kernel.constants.get(n) in spelled_constants(value) for n, value in named.items())
    fitting = sum(fits_exactly(parameter, value) is not None for parameter, value in given)
    return fitting + constants - abs(len(by_name) - len(given))


def _is_array(value: Any) -> bool:
    try:
        return is_host_array(value) or isinstance(value, Out) or device_memory(value) is not None
    except ArgumentError:  # in other memory
        return True


def _refuse_argument(parameters: Sequence[Parameter], argument: Any) -> ArgumentError:
    """Return the error for an argument that fits none of its possible `parameters`."""
    types = [*dict.fromkeys(parameter.type for parameter in parameters)]
    if len(types) == 1:
        (field,) = make_fields(parameters[:1])
        try:
            field.value(argument)
        except ArgumentError as error:
            return error
    found = _describe_type(argument) if hasattr(argument, "dtype") else describe_value(argument)
    return ArgumentError(
        f"expected one of {join_names(types, _MOST_LISTED)}, found {found}",
        where=f"argument {parameters[0].name!r}",
        remedy=suggest_array(argument),
    )


def _signatures(kernels: Sequence[Kernel]) -> str:
    """Write the signatures of the first kernels, one per line."""
    more = [f"and {len(kernels) - MOST_NEAREST} more"] if len(kernels) > MOST_NEAREST else []
    return "".join(f"\n  {line}" for line in [*(k.signature for k in kernels[:MOST_NEAREST]), *more])


def _describe_type(argument: Any) -> str:
    dtype = getattr(argument, "dtype", None)
    if dtype is None:
        return describe_value(argument) if argument is None else type(argument).__name__
    return f"{type(argument).__name__} of {str(dtype).removeprefix('torch.')}"
