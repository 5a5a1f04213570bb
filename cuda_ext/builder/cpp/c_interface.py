"""The C interface of a module: an index and a structure of arguments for each kernel, in types of C."""

from __future__ import annotations

import re
from collections.abc import Container, Sequence
from itertools import chain, count
from typing import NamedTuple

from cuda_ext.builder.cpp.device_types import identifier
from cuda_ext.builder.cpp.launched_kernels import LaunchedKernel
from cuda_ext.facts.kernels import Parameter
from cuda_ext.facts.symbols import Symbol

_BITS = {1: 8, 2: 16, 4: 32, 8: 64}
_INTEGERS = {"short": 16, "int": 32, "long": 64, "long long": 64}
_TYPES = {
    **{name: name for name in ("bool", "char", "float", "double")},
    "signed char": "int8_t",
    "unsigned char": "uint8_t",
    **{name: f"int{bits}_t" for name, bits in _INTEGERS.items()},
    **{f"unsigned {name}": f"uint{bits}_t" for name, bits in _INTEGERS.items()},
}


class CKernel(NamedTuple):
    """A kernel by its name in C. The ``members`` of its structure are declarations, by their names."""

    name: str
    signature: str
    members: dict[str, str]


class CModule(NamedTuple):
    """The names of an interface, which all begin with the ``prefix``."""

    prefix: str
    kernels: Sequence[CKernel]
    variables: dict[str, str]


def describe_in_c(module: str, launched: Sequence[LaunchedKernel], symbols: Sequence[Symbol]) -> CModule:
    """Describe a module. The order of kernels and variables is that of their indices."""
    prefix = module.replace(".", "_")
    taken = {f"{prefix}_{word}" for word in ("load", "launch", "address", "release", "kernel", "variable")}

    def name(expression: str) -> str:
        free = _free(f"{prefix}_" + re.sub(r"\W+", "_", expression).strip("_"), taken)
        taken.add(free)
        return free

    kernels = [
        CKernel(name(k.kernel.expression), k.signature, _members(k.kernel.parameters)) for k in launched
    ]
    return CModule(prefix, kernels, {name(symbol.name): f"{symbol.type} {symbol.name}" for symbol in symbols})


def _members(parameters: Sequence[Parameter]) -> dict[str, str]:
    members: dict[str, str] = {}
    for position, parameter in enumerate(parameters):
        wanted = identifier(parameter.name) if parameter.name.isidentifier() else f"argument_{position}"
        name = _free(wanted, members)
        members[name] = _declare(parameter, name)
    return members


def _free(name: str, taken: Container[str]) -> str:
    names = chain([name], (f"{name}_{number}" for number in count(2)))
    return next(each for each in names if each not in taken)


def _declare(parameter: Parameter, name: str) -> str:
    """Declare a member; values of types that C does not have are arrays of as many bytes."""
    size = parameter.size
    match parameter.kind:
        case "pointer":
            const = "const " if parameter.const else ""
            return f"{const}{_TYPES.get(parameter.element or '', 'void')}* {name}"
        case "integer" if size in _BITS:
            return f"int{_BITS[size]}_t {name}"
        case "unsigned" | "enum" if size in _BITS:
            return f"uint{_BITS[size]}_t {name}"
        case "bool" | "float" if size in (1, 4, 8):
            return f"{'bool' if size == 1 else 'float' if size == 4 else 'double'} {name}"
        case _:
            unit = next(unit for unit in (8, 4, 2, 1) if size % unit == 0)
            return f"uint{_BITS[unit]}_t {name}[{size // unit}]"
