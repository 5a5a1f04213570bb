"""Infer the instantiation of a Python function from the arguments of a call, as the front-end's JIT does.

For Triton, an instantiation is as special as the JIT's: addresses and integers that are divisible by 16 have
hints, an integer equal to one is a constant, and its conditions exclude all other calls.
"""

from __future__ import annotations

import numbers
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any, NamedTuple

from cuda_ext.compiler.front_ends.instantiation import DIVISOR, Axis, Instantiation, TypedParameter
from cuda_ext.compiler.front_ends.kernel_description import DTYPES
from cuda_ext.compiler.front_ends.python_functions import PythonFunction
from cuda_ext.compiler.translation_unit import SourceKind
from cuda_ext.errors import ArgumentError
from cuda_ext.facts.candidates import Term
from cuda_ext.facts.launches import TRITON_OPTIONS
from cuda_ext.runtime.arrays.device_memory import array_layout, device_memory
from cuda_ext.runtime.arrays.dtypes import dtype_of_typestr
from cuda_ext.runtime.arrays.host_arrays import Out, is_host_array
from cuda_ext.runtime.jit.python_sources import PythonSource
from cuda_ext.runtime.launch.configuration import OPTIONS
from cuda_ext.runtime.launch.python_arguments import plain_value

_COMPILED: Mapping[str, Collection[str]] = {
    "triton": TRITON_OPTIONS,
    "cutile": ("num_ctas", "occupancy", "opt_level", "num_worker_warps"),
}
_HALF_NAMES = {"V2": "bfloat16"}  # numpy has no name for it


class Inferred(NamedTuple):
    """The instantiation of a call, and the ``values`` of its constants, by which calls are told apart.

    ``family`` is its text without what the values of arguments decide, and ``line`` its text as an author
    writes it.
    """

    text: str
    family: str
    line: str
    values: Mapping[str, object]


class NotInferable(Exception):
    """The call is not one of the function, or has an argument that no parameter takes."""


def infer_call(
    source: PythonSource, name: str, arguments: Sequence[object], keywords: Mapping[str, object]
) -> Inferred | None:
    """Infer the instantiation of the function `name` of `source` for a call; ``None`` if it cannot be one.

    What the call does not give is as in all built instantiations, if these agree.
    """
    call = _Call(source.functions[name], source.front_end, source.built(name), source.functions)
    try:
        call.add_all(arguments, {name: value for name, value in keywords.items() if name not in OPTIONS})
    except (NotInferable, ArgumentError):  # or an array in other memory
        return None
    whole = call.instantiation
    line = replace(whole, when=())
    return Inferred(str(whole), str(line.without_hints()), str(line), call.values)


def infer_launch(
    function: PythonFunction,
    front_end: SourceKind,
    values: Mapping[str, object],
    options: Mapping[str, object],
) -> Instantiation:
    """Infer the instantiation of `function` for `values` of all its parameters, and options of the front-end.

    Raises :class:`NotInferable` for a value that no parameter takes.
    """
    call = _Call(function, front_end, (), ())
    for name, value in values.items():
        call.add(name, value)
    for name, value in options.items():
        call.add_constant(name, value)
    return replace(call.instantiation, when=())


@dataclass
class _Call:
    """A call of `function`, whose arguments are added one by one."""

    function: PythonFunction
    front_end: str
    built: Sequence[Instantiation]
    functions: Collection[str]
    parameters: list[TypedParameter] = field(default_factory=list)
    constants: dict[str, str] = field(default_factory=dict)
    values: dict[str, object] = field(default_factory=dict)
    terms: list[Term] = field(default_factory=list)

    @property
    def instantiation(self) -> Instantiation:
        when = (tuple(self.terms),) if self.terms else ()
        return Instantiation(self.function.name, tuple(self.parameters), self.constants, when=when)

    def add_all(self, arguments: Sequence[object], named: Mapping[str, object]) -> None:
        names = self.function.parameters
        given = dict(zip(names, arguments, strict=False))
        unknown = named.keys() - {*names, *_COMPILED[self.front_end]}
        if len(arguments) > len(names) or given.keys() & named.keys() or unknown:
            raise NotInferable
        given |= named
        for name in names:
            if name in given:
                self.add(name, given[name])
            elif (text := self._common(name)) is not None:
                self.constants[name] = text
            elif name not in self.function.defaults or self.front_end == "cutile":
                raise NotInferable
        for name in _COMPILED[self.front_end]:
            if name in named:
                self.add_constant(name, named[name])
            elif name not in names and (text := self._common(name)) is not None:
                self.constants[name] = text

    def add(self, name: str, value: object) -> None:
        if value is None or self._is_constant(name) or self._is_one(name, value):
            self.add_constant(name, value)
        else:
            self.add_typed(TypedParameter(name, ""), value)

    def add_constant(self, name: str, value: object) -> None:
        self.constants[name] = self._spell(name, value)
        self.values[name] = value

    def add_typed(self, parameter: TypedParameter, value: Any) -> None:
        if isinstance(value, tuple):
            for number, item in enumerate(value):
                self.add_typed(parameter._replace(path=(*parameter.path, number)), item)
            return
        array = _describe_array(value)
        types = {each.type for each in self._like(parameter)}
        if array is None and type(value) is int and len(types) == 1 and min(types).startswith("*"):
            self.parameters.append(self._hint(parameter._replace(type=min(types)), value))  # an address
            return
        if self._is_unlike(parameter, is_array=array is not None):
            raise NotInferable
        typed = self._array(parameter, value, *array) if array else self._number(parameter, value)
        self.parameters.append(typed)

    def _number(self, parameter: TypedParameter, value: Any) -> TypedParameter:
        value = plain_value(value)
        type_ = self._annotated(parameter.name) or self._type_of(value)
        is_integer = type(value) is int and type_[0] in "iu" and type_ != "i1"
        if self.front_end == "triton" and is_integer and self._examines(parameter.name):
            if not parameter.path and not self._annotated(parameter.name):
                self.terms.append(Term(parameter.argument, "!=", 1))
            return self._hint(parameter._replace(type=type_), value)
        return parameter._replace(type=type_)

    def _array(self, parameter: TypedParameter, value: Any, dtype: str, address: int) -> TypedParameter:
        names = {each.torch: each for each in DTYPES}
        if dtype not in names:
            raise NotInferable
        if self.front_end == "cutile":
            return self._tile_array(parameter._replace(type=names[dtype].cutile), value, address)
        like = [each.type for each in self._like(parameter)]
        element = names[dtype].triton
        if block := getattr(value, "block_shape", ()):
            return parameter._replace(type=f"tensordesc<{element}[{', '.join(map(str, block))}]>")
        if descriptor := next((each for each in like if each.startswith("tensordesc")), ""):
            return parameter._replace(type=f"tensordesc<{element}{descriptor[descriptor.index('[') :]}")
        reads = any(each.startswith("*k") for each in like) or "const" in self._annotation(parameter.name)
        typed = parameter._replace(type=f"*{'k' * reads}{element}")
        return self._hint(typed, address) if self._examines(parameter.name) else typed

    def _tile_array(self, parameter: TypedParameter, value: Any, address: int) -> TypedParameter:
        layout = array_layout(value)
        if layout is None or not layout.shape:
            raise NotInferable
        strides = [stride // layout.item for stride in layout.strides]
        axes = [
            Axis(None, 1 if stride == 1 else None, 1 if length % DIVISOR else DIVISOR)
            for length, stride in zip(layout.shape, strides, strict=True)
        ]
        steps = [step for step, axis in zip(layout.strides, axes, strict=True) if axis.stride is None]
        is_divisible = not any(number % DIVISOR for number in (address, *steps))
        return parameter._replace(axes=tuple(axes), divisor=DIVISOR if is_divisible else 1)

    def _hint(self, parameter: TypedParameter, value: int) -> TypedParameter:
        """Promise that `value` is divisible by 16 if it is, and that it is not if it is not.

        The addresses of copies of host arrays, which are 0 here, are not known before the launch.
        """
        if self.function.excludes("do_not_specialize_on_alignment", parameter.name):
            return parameter
        if parameter.type.startswith("*") and not value:
            return parameter
        if value % DIVISOR == 0:
            return parameter._replace(divisor=DIVISOR)
        self.terms.append(Term(parameter.argument, "!=", 0, DIVISOR))
        return parameter

    def _is_constant(self, name: str) -> bool:
        is_built_so = bool(self.built) and all(name in own.constants for own in self.built)
        return self.function.is_constant(name) or (self.front_end == "cutile" and is_built_so)

    def _is_one(self, name: str, value: object) -> bool:
        """Return True if `value` is an integer that Triton makes a constant."""
        if self.front_end != "triton" or self._annotated(name) or not self._examines(name):
            return False
        return type(plain_value(value)) is int and plain_value(value) == 1

    def _examines(self, name: str) -> bool:
        return not self.function.excludes("do_not_specialize", name)

    def _annotation(self, name: str) -> str:
        return self.function.annotations.get(name, "").strip("'\"").rpartition(".")[2]

    def _annotated(self, name: str) -> str:
        """Return the type that the annotation fixes; empty if it fixes none."""
        annotation = self._annotation(name)
        return next((each.triton for each in DTYPES if annotation in (each.torch, each.triton)), "")

    def _type_of(self, value: object) -> str:
        types = {each.torch: each for each in DTYPES}
        name = ""
        if isinstance(value, bool):
            name = "bool"
        elif isinstance(value, int) and -(1 << 63) <= value < 1 << 64:
            name = "int32" if -(1 << 31) <= value < 1 << 31 else "int64" if value < 1 << 63 else "uint64"
        elif isinstance(value, numbers.Real) and not isinstance(value, int):
            name = "float32"
        if not name:
            raise NotInferable(f"{type(value).__name__} is no type of an argument")
        return types[name].cutile if self.front_end == "cutile" else types[name].triton

    def _like(self, parameter: TypedParameter) -> list[TypedParameter]:
        """List what built instantiations have for `parameter`."""
        return [p for own in self.built for p in own.parameters if p.argument == parameter.argument]

    def _is_unlike(self, parameter: TypedParameter, *, is_array: bool) -> bool:
        """Return True if a number is given where each built kernel takes an array, or the reverse."""
        like = self._like(parameter)
        arrays = [bool(p.axes) or p.type.startswith(("*", "tensordesc")) for p in like]
        return bool(arrays) and is_array not in arrays

    def _common(self, name: str) -> str | None:
        """Return the text of the constant `name` if it is the same in all built instantiations."""
        texts = {({**own.constants, **own.configuration}).get(name) for own in self.built}
        return texts.pop() if len(texts) == 1 else None

    def _spell(self, name: str, value: object) -> str:
        """Spell a constant as an instantiation does: dtypes and functions are their names."""
        if type(value).__name__ == "constexpr":
            value = value.value  # type: ignore[attr-defined]
        plain = plain_value(value)
        if isinstance(plain, tuple | list):
            items = [self._spell(name, item) for item in plain]
            return f"({', '.join(items)}{',' if len(items) == 1 else ''})"
        if isinstance(plain, str):
            names = {each.torch: each.triton for each in DTYPES}
            known = {*self.functions, *(own.constants.get(name) for own in self.built)}
            is_name = plain in known or not isinstance(value, str | Enum)
            return plain if plain in known else names.get(plain) or (plain if is_name else repr(plain))
        if plain is None or isinstance(plain, bool | int | float):
            return repr(plain)
        raise NotInferable(f"{name} is a {type(value).__name__}, which cannot be a constant")


def _describe_array(value: Any) -> tuple[str, int] | None:
    """Return the dtype and the address of an array; the address 0 if a launch decides it."""
    if is_host_array(value) or isinstance(value, Out):
        return dtype_of_typestr(value.dtype.str), 0
    memory = device_memory(value)
    if memory is None:
        return None
    return _HALF_NAMES.get(memory.dtype, memory.dtype), memory.address
