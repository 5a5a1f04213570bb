"""The arguments of a launch, checked against the kernel's signature and laid out as the GPU reads them.

Whatever does not fit is an :class:`~cuda_ext.errors.ArgumentError` that names the argument, what was expected
and what was found.
"""

from __future__ import annotations

import math
import numbers
import operator
import reprlib
import struct
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import SupportsIndex, TypeAlias

from cuda_ext.errors import ArgumentError
from cuda_ext.manifest import Parameter, ParameterKind
from cuda_ext.runtime.device_memory import HasCudaArrayInterface, HasDataPtr, device_memory
from cuda_ext.runtime.elements import check_dtype
from cuda_ext.runtime.hints import did_you_mean

__all__ = ["Pointer", "pack"]

Pointer: TypeAlias = SupportsIndex | HasDataPtr | HasCudaArrayInterface | None


def pack(
    parameters: Sequence[Parameter], arguments: Sequence[object], named: Mapping[str, object]
) -> bytearray:
    """The bytes of all arguments, each at its parameter's offset."""
    if named:
        arguments = [*arguments, *_in_order(parameters[len(arguments) :], named)]
    if len(arguments) != len(parameters):
        raise ArgumentError(f"expected {_count(len(parameters))}, found {len(arguments)}")
    buffer = bytearray(parameters[-1].offset + parameters[-1].size if parameters else 0)
    for parameter, argument in zip(parameters, arguments, strict=True):
        end = parameter.offset + parameter.size
        try:
            buffer[parameter.offset : end] = _CONVERSIONS[parameter.kind](parameter, argument)
        except ArgumentError as error:
            raise ArgumentError(f"argument {parameter.name!r}: {error}") from None
    return buffer


def _count(number: int) -> str:
    return f"{number or 'no'} argument{'' if number == 1 else 's'}"


def _in_order(parameters: Sequence[Parameter], named: Mapping[str, object]) -> list[object]:
    """The values of `named` for `parameters`, those that are not given by position."""
    names = [parameter.name for parameter in parameters]
    for name in named:
        if name not in names:
            hint = did_you_mean(name, names)
            raise ArgumentError(f"no parameter {name!r} is left to be given by name{hint}")
    if missing := [name for name in names if name not in named]:
        raise ArgumentError(f"missing: {', '.join(missing)}")
    return [named[name] for name in names]


def _integer(parameter: Parameter, value: object) -> bytes:
    signed = parameter.kind == "integer"
    return _whole_number(parameter, value, signed=signed, unsigned=not signed)


def _enum(parameter: Parameter, value: object) -> bytes:
    # The type that an enumeration is stored in may be either.
    return _whole_number(parameter, value, signed=True, unsigned=True)


def _whole_number(parameter: Parameter, value: object, *, signed: bool, unsigned: bool) -> bytes:
    number = _index(value)
    if number is None:
        raise _mismatch(parameter.type, value)
    bits = 8 * parameter.size
    lowest = -(1 << bits - 1) if signed else 0
    highest = (1 << (bits if unsigned else bits - 1)) - 1
    if not lowest <= number <= highest:
        raise _mismatch(f"{parameter.type} from {lowest} to {highest}", value)
    return (number % (1 << bits)).to_bytes(parameter.size, "little")


def _bool(parameter: Parameter, value: object) -> bytes:
    number = bool(value) if _is_numpy_bool(value) else _index(value)
    if number not in (0, 1):
        raise _mismatch(parameter.type, value)
    return bytes([number])


def _float(parameter: Parameter, value: object) -> bytes:
    number = _real(value)
    if number is None:
        raise _mismatch(parameter.type, value)
    return _encoded_float(parameter, number)


def _encoded_float(parameter: Parameter, number: float) -> bytes:
    try:
        if parameter.type == "__nv_bfloat16":
            return _bfloat16(number)
        return struct.pack({2: "<e", 4: "<f", 8: "<d"}[parameter.size], float(number))
    except OverflowError:
        raise ArgumentError(f"{reprlib.repr(number)} is out of the range of {parameter.type}") from None


def _bfloat16(number: float) -> bytes:
    """The upper half of the float that is nearest to `number` among those with eight significant bits."""
    if math.isfinite(number):
        exponent = max(math.frexp(number)[1], -125) - 8
        number = math.copysign(math.ldexp(round(math.ldexp(number, -exponent)), exponent), number)
    return struct.pack("<f", number)[2:]


def _struct(parameter: Parameter, value: object) -> bytes:
    if parameter.type in ("__half", "__nv_bfloat16") and (number := _real(value)) is not None:
        return _encoded_float(parameter, number)
    content = _content(value)
    if content is None:
        expected = "bytes, a ctypes.Structure or a numpy scalar"
        raise _mismatch(f"the {parameter.size} bytes of {parameter.type} ({expected})", value)
    if len(content) != parameter.size:
        raise ArgumentError(f"expected the {parameter.size} bytes of {parameter.type}, found {len(content)}")
    return content


def _pointer(parameter: Parameter, value: object) -> bytes:
    if value is None:
        address: int | None = 0
    elif memory := device_memory(value):
        check_dtype(memory.dtype, parameter.element)
        if memory.read_only and not parameter.const and parameter.kind == "pointer":
            raise ArgumentError(f"expected writable memory ({parameter.type}), found a read-only array")
        address = memory.address
    else:
        address = None if isinstance(value, bool) or _is_host_array(value) else _index(value)
    if address is None:
        raise _mismatch(f"an array in device memory or an address ({parameter.type})", value)
    if not 0 <= address < 1 << 8 * parameter.size:
        raise _mismatch("an address", value)
    return address.to_bytes(parameter.size, "little")


def _opaque(parameter: Parameter, value: object) -> bytes:
    if parameter.size == struct.calcsize("P") and (value is None or _is_tensor(value)):
        return _pointer(parameter, value)
    if not _is_host_array(value) and _content(value) is not None:
        return _struct(parameter, value)
    if _index(value) is not None and not _is_host_array(value):
        return _enum(parameter, value)
    example = "a value that knows its size, such as numpy.float32(2) or ctypes.c_float(2)"
    raise _mismatch(f"{parameter.size} bytes: {example}", value)


_CONVERSIONS: dict[ParameterKind, Callable[[Parameter, object], bytes]] = {
    "pointer": _pointer,
    "integer": _integer,
    "unsigned": _integer,
    "float": _float,
    "bool": _bool,
    "enum": _enum,
    "struct": _struct,
    "opaque": _opaque,
}


def _index(value: object) -> int | None:
    """`value` as an int, if it is a whole number on the host."""
    if _is_tensor(value) or getattr(value, "ndim", None):
        return None
    try:
        return operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        return None


def _real(value: object) -> float | None:
    """`value` as a real number, if it is one on the host."""
    if isinstance(value, (float, int)):
        return value
    if _is_tensor(value) or getattr(value, "ndim", None) or not hasattr(value, "__float__"):
        return None
    try:
        return float(value)
    except TypeError:
        return None


def _content(value: object) -> bytes | None:
    """The bytes of `value`, if it has the buffer protocol."""
    try:
        return memoryview(value).tobytes()  # type: ignore[arg-type]
    except TypeError:
        return None


def _is_tensor(value: object) -> bool:
    return hasattr(value, "data_ptr") or hasattr(value, "__cuda_array_interface__")


def _is_host_array(value: object) -> bool:
    # Where numpy is not loaded, nothing can be of its types.
    numpy = sys.modules.get("numpy")
    return numpy is not None and isinstance(value, numpy.ndarray)


def _is_numpy_bool(value: object) -> bool:
    numpy = sys.modules.get("numpy")
    return numpy is not None and isinstance(value, numpy.bool_)


def _mismatch(expected: str, found: object) -> ArgumentError:
    return ArgumentError(f"expected {expected}, found {_described(found)}")


def _described(value: object) -> str:
    if value is None or isinstance(value, numbers.Number | str | bytes):
        return reprlib.repr(value)
    kind = type(value)
    name = kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
    return f"{name} in host memory" if _is_host_array(value) else name
