"""The arguments of a launch: check them against the kernel's signature and convert them for ``struct``.

Arguments that do not fit raise :class:`~cuda_ext.errors.ArgumentError` with the argument's name, the expected
and the found value.
"""

from __future__ import annotations

import math
import numbers
import operator
import reprlib
import struct
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeAlias

from cuda_ext.errors import ArgumentError, did_you_mean
from cuda_ext.facts.kernels import HALVES, Parameter
from cuda_ext.facts.launches import HiddenParameter
from cuda_ext.formats.quantities import format_count
from cuda_ext.runtime.arrays.device_memory import DeviceMemory, device_memory
from cuda_ext.runtime.arrays.dtypes import check_dtype, is_complex, may_hold_address
from cuda_ext.runtime.arrays.host_arrays import is_host_array
from cuda_ext.runtime.arrays.tensor_map import TENSOR_MAPS, array_of, read_tensor_map


@dataclass(frozen=True, slots=True)
class Field:
    """A parameter as ``struct`` packs it. The `format` of its value has one or two letters.

    ``convert`` returns that value for an argument, or a :class:`DeviceMemory` whose address is the value. It
    raises :class:`ArgumentError` without the argument's name.
    """

    parameter: Parameter
    format: str
    convert: Callable[[Any], Any]

    def hides_address(self, value: Any) -> bool:
        """Return True if the passed `value` may contain an address that comes from no array."""
        if isinstance(value, bytes) and hasattr(value, "hides_address"):  # of a structure
            return bool(value.hides_address)
        if isinstance(value, DeviceMemory):
            return value.stream is None and value.address != 0
        parameter = self.parameter
        if parameter.kind not in ("struct", "opaque") or not may_hold_address(parameter.type, parameter.size):
            return False
        return any(value)

    def value(self, argument: object) -> Any:
        """Convert `argument`. Raises :class:`ArgumentError` with its name."""
        try:
            return self.convert(argument)
        except ArgumentError as error:
            error.where = f"argument {self.parameter.name!r}"
            raise
        except Exception as error:
            # The argument's own library raised it, for instance in __dlpack__.
            raise ArgumentError(
                f"expected {self.parameter.type}, found {type(argument).__qualname__} that cannot be read: "
                f"{error}",
                where=f"argument {self.parameter.name!r}",
            ) from error


def make_fields(
    parameters: Sequence[Parameter], structures: Sequence[type[Any] | None] = ()
) -> tuple[Field, ...]:
    """Make the fields of a kernel's parameters, with the classes of those that are known structures."""
    fields = [Field(p, *_KINDS[p.kind](p)) for p in parameters]
    for position, kind in enumerate(structures):
        if kind is not None:
            field = fields[position]
            fields[position] = replace(field, convert=kind.__converter__(field.convert))
    return tuple(fields)


def arrays_in(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    """Yield the arrays in a passed value: itself, or those of a structure, with their names."""
    for member, array in getattr(value, "arrays", {}).items():
        yield f"{name}.{member}", array
    if not isinstance(value, bytes):
        yield name, value


def pack_layout(
    fields: Sequence[Field], hidden: Sequence[HiddenParameter]
) -> tuple[struct.Struct, tuple[int, ...]]:
    """Compute the layout of all parameters' values in host memory, and the offset of each in bytes."""
    values = [(field.format, field.parameter.size) for field in fields]
    for parameter in hidden:
        values.insert(parameter.position, (f"{parameter.size}s", parameter.size))
    text, offsets, end = "<", [], 0
    for letters, size in values:
        # The driver copies each argument, so 16 bytes suffice for structures with an alignment of up to 128.
        alignment = min(16, size & -size)
        start = -(-end // alignment) * alignment
        text += f"{start - end}x" * (start > end) + letters
        offsets.append(start)
        end = start + size
    return struct.Struct(text), tuple(offsets)


def order_arguments(
    parameters: Sequence[Parameter],
    arguments: Sequence[object],
    named: Mapping[str, object],
    options: Iterable[str] = (),
) -> list[object]:
    """Return all arguments by position. `options` are other keywords that the call takes, for suggestions.

    Raises :class:`ArgumentError` unless each parameter is given exactly once.
    """
    ordered = list(arguments)
    if named:
        names = [parameter.name for parameter in parameters[len(ordered) :]]
        for name in named:
            if name not in names:
                if name in [parameter.name for parameter in parameters]:
                    raise ArgumentError(f"the parameter {name!r} is given by position, too")
                remedy = did_you_mean(name, [*names, *options])
                raise ArgumentError(f"no parameter is called {name!r}", remedy=remedy)
        if missing := [name for name in names if name not in named]:
            raise ArgumentError(f"missing: {', '.join(missing)}", remedy="pass a value for each parameter")
        ordered += [named[name] for name in names]
    if len(ordered) != len(parameters):
        expected = format_count(len(parameters), "argument") if parameters else "no arguments"
        raise ArgumentError(f"expected {expected}, found {len(ordered)}")
    return ordered


_Conversion: TypeAlias = tuple[str, Callable[[Any], Any]]
_LETTERS = {1: "b", 2: "h", 4: "i", 8: "q"}


def _integer(parameter: Parameter) -> _Conversion:
    size, bits = parameter.size, 8 * parameter.size
    # The underlying type of an enumeration may be signed or unsigned.
    signed, unsigned = parameter.kind != "unsigned", parameter.kind != "integer"
    lowest = -(1 << bits - 1) if signed else 0
    highest = (1 << (bits if unsigned else bits - 1)) - 1

    def convert(value: object) -> int:
        number = _index(value)
        if number is None:
            raise _mismatch(parameter.type, value)
        if not lowest <= number <= highest:
            raise _mismatch(f"{parameter.type} from {lowest} to {highest}", value)
        return number % (1 << bits) if unsigned else number

    if size not in _LETTERS:
        return f"{size}s", lambda value: (convert(value) % (1 << bits)).to_bytes(size, "little")
    return _LETTERS[size].upper() if unsigned else _LETTERS[size], convert


def _bool(parameter: Parameter) -> _Conversion:
    def convert(value: object) -> int:
        number = bool(value) if is_numpy_bool(value) else _index(value)
        if number not in (0, 1):
            raise _mismatch(parameter.type, value)
        return number

    return "B", convert


def _float(parameter: Parameter) -> _Conversion:
    if parameter.type == "__nv_bfloat16":
        return "2s", lambda value: _bfloat16(_real_for(parameter, value))
    letter = {2: "e", 4: "f", 8: "d"}[parameter.size]
    single = struct.Struct(f"<{letter}")

    def convert(value: object) -> float:
        number = _real_for(parameter, value)
        try:
            single.pack(number)
        except OverflowError:
            raise _out_of_range(parameter.type, number) from None
        return number

    return letter, convert


def _real_for(parameter: Parameter, value: object) -> float:
    try:
        number = _real(value)
        if number is None:
            raise _mismatch(parameter.type, value)
        return float(number)
    except OverflowError:
        raise _out_of_range(parameter.type, value) from None


def _out_of_range(type_: str, number: object) -> ArgumentError:
    return ArgumentError(f"{reprlib.repr(number)} is out of the range of {type_}")


def _bfloat16(number: float) -> bytes:
    """Round `number` to bfloat16, and return its bytes: the upper half of a float."""
    rounded = number
    if math.isfinite(number):
        exponent = max(math.frexp(number)[1], -125) - 8
        rounded = math.copysign(math.ldexp(round(math.ldexp(number, -exponent)), exponent), number)
    try:
        return struct.pack("<f", rounded)[2:]
    except OverflowError:
        raise _out_of_range("__nv_bfloat16", number) from None


def _struct(parameter: Parameter) -> _Conversion:
    # Converts values that only this type takes.
    special: Callable[[Any], bytes | None] = _content
    if parameter.type in HALVES:
        letter, half = _float(parameter)
        special = lambda value: struct.pack(f"<{letter}", half(value)) if _real(value) is not None else None  # noqa: E731
    elif items := parameter.vector_items:
        special = partial(_vector, parameter, make_fields(items))
    elif is_complex(parameter.type):
        special = partial(_complex, parameter)
    elif parameter.type in TENSOR_MAPS:
        special = read_tensor_map

    def convert(value: object) -> bytes | DeviceMemory:
        content = special(value)
        if content is None and parameter.element and (memory := device_memory(array_of(value))):
            check_dtype(memory.dtype, parameter.element)
            return memory
        if content is None:
            content = _content(value)
        if content is None:
            expected = "bytes, a ctypes.Structure or a numpy scalar"
            raise _mismatch(f"the {parameter.size} bytes of {parameter.type} ({expected})", value)
        if len(content) != parameter.size:
            raise ArgumentError(
                f"expected the {parameter.size} bytes of {parameter.type}, found {len(content)}"
            )
        return content

    return f"{parameter.size}s", convert


def _vector(parameter: Parameter, items: Sequence[Field], value: object) -> bytes | None:
    """Return the bytes of a vector from its items, or from a complex number if it has two."""
    if not isinstance(value, (tuple, list)):
        return _complex(parameter, value) if is_complex(parameter.type) else _content(value)
    if len(value) != len(items):
        raise ArgumentError(f"expected the {len(items)} numbers of {parameter.type}, found {len(value)}")
    converted = (item.value(each) for item, each in zip(items, value, strict=True))
    return struct.pack(f"<{''.join(item.format for item in items)}", *converted)


def _complex(parameter: Parameter, value: object) -> bytes | None:
    letters = "<dd" if parameter.size == 16 else "<ff"
    try:
        if isinstance(value, complex):
            number = complex(value)
        elif _is_host_number(value) and (real := _real(value)) is not None:
            number = complex(real)
        elif _is_host_number(value) and hasattr(value, "__complex__"):
            number = complex(value)
        else:
            return None
        return struct.pack(letters, number.real, number.imag)
    except OverflowError:
        raise _out_of_range(parameter.type, value) from None


def _pointer(parameter: Parameter) -> _Conversion:
    wanted = f"an array in device memory or an address ({parameter.type})"

    def convert(value: object) -> DeviceMemory:
        if value is None:
            return DeviceMemory(0)
        if memory := device_memory(value):
            check_dtype(memory.dtype, parameter.element)
            if memory.read_only and not parameter.const and parameter.kind == "pointer":
                raise ArgumentError(f"expected writable memory ({parameter.type}), found a read-only array")
            address: int | None = memory.address
        else:
            address = None if isinstance(value, bool) or is_host_array(value) else _index(value)
            memory = DeviceMemory(address or 0)
        if address is None:
            raise _mismatch(wanted, value)
        if not 0 <= address < 1 << 8 * parameter.size:
            raise _mismatch("an address", value)
        return memory

    return {4: "I", 8: "Q"}[parameter.size], convert


def _opaque(parameter: Parameter) -> _Conversion:
    size = parameter.size
    _, as_struct = _struct(parameter)
    _, as_number = _integer(parameter)

    def convert(value: object) -> bytes:
        if size == struct.calcsize("P") and (value is None or _is_tensor(value)):
            address: int = _pointer(parameter)[1](value).address
            return address.to_bytes(size, "little")
        if not is_host_array(value) and _content(value) is not None:
            content: bytes = as_struct(value)
            return content
        if _index(value) is not None and not is_host_array(value):
            number = as_number(value)
            return number if isinstance(number, bytes) else number.to_bytes(size, "little")
        example = "a value that knows its size, such as numpy.float32(2) or ctypes.c_float(2)"
        raise _mismatch(f"{size} bytes: {example}", value)

    return f"{size}s", convert


_KINDS: dict[str, Callable[[Parameter], _Conversion]] = {
    "pointer": _pointer,
    "integer": _integer,
    "unsigned": _integer,
    "float": _float,
    "bool": _bool,
    "enum": _integer,
    "struct": _struct,
    "opaque": _opaque,
}


def _index(value: object) -> int | None:
    """Return `value` as an int, or ``None`` unless it is an integer in host memory."""
    if not _is_host_number(value):
        return None
    try:
        return operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        return None


def _real(value: object) -> float | None:
    """Return `value` as a real number, or ``None`` unless it is one in host memory."""
    if isinstance(value, (float, int)):
        return value
    if not _is_host_number(value) or not hasattr(value, "__float__") or _has_imaginary_part(value):
        return None
    if isinstance(value, (str, bytes)):  # numpy.str_ has __float__, which parses the text
        return None
    try:
        return float(value)
    except TypeError:
        return None


def _has_imaginary_part(value: object) -> bool:
    return isinstance(value, numbers.Complex) and not isinstance(value, numbers.Real)


def _is_host_number(value: object) -> bool:
    # Tensors in device memory also have __index__ and __float__, which wait for the GPU.
    return not _is_tensor(value) and not getattr(value, "ndim", None)


def _content(value: object) -> bytes | None:
    """Return the bytes of `value`, if it has the buffer protocol and no text or Python objects."""
    if isinstance(value, str) or getattr(getattr(value, "dtype", None), "hasobject", False):
        return None
    try:
        return memoryview(value).tobytes()  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return None


def _is_tensor(value: object) -> bool:
    return hasattr(value, "data_ptr") or hasattr(value, "__cuda_array_interface__")


def is_numpy_bool(value: object) -> bool:
    numpy = sys.modules.get("numpy")
    return numpy is not None and isinstance(value, numpy.bool_)


def _mismatch(expected: str, found: object) -> ArgumentError:
    return ArgumentError(f"expected {expected}, found {describe_value(found)}", remedy=suggest_array(found))


def suggest_array(value: object) -> str:
    """Return the remedy for a Python sequence in place of an array; empty for other values."""
    return "make it an array, as with numpy.array" if isinstance(value, list | tuple | range) else ""


def describe_value(value: object) -> str:
    """Describe `value` for an error: a number or text by its value, all others by their types."""
    if value is None or isinstance(value, numbers.Number | str | bytes):
        return reprlib.repr(value)
    kind = type(value)
    name = kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
    return f"{name} in host memory" if is_host_array(value) else name
