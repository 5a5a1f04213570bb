"""Encode records (dataclasses and named tuples) as bytes, and decode them.

They are sent between processes, and stored in the cache and beside images.

A value becomes a flat list of fields, in the order of its own fields: a number in decimal, ``1`` or ``0`` for
a boolean, a sequence or mapping after its length. A value that may be ``None`` is absent, or one field that
contains the encoded value. The annotations are the schema: :func:`decode` accepts nothing that they do not
allow, so damaged bytes raise one :class:`DecodingError`. ``Annotated[int, range(8)]`` is a type with a bound,
which may also be a function that is true for valid values.

A field is a netstring: its length in decimal, a colon, and its bytes; an absent one is a minus sign. The C++
loader uses the same encoding (``include/cuda_ext/on_demand/store.hpp``).

>>> from typing import NamedTuple
>>> class Point(NamedTuple):
...     x: int
...     labels: tuple[str, ...]
>>> encode(Point(3, ("a", "bc")))
b'1:31:21:a2:bc'
>>> decode(Point, b"1:31:21:a2:bc")
Point(x=3, labels=('a', 'bc'))
>>> encode_fields(["axpy", None, ""])
b'4:axpy-0:'
>>> decode_fields(b"4:axpy-0:")
[b'axpy', None, b'']
"""

from __future__ import annotations

import math
import types
import typing
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from typing import Any, Literal, TypeVar

from cuda_ext.formats.sha256 import sha256
from cuda_ext.records import Annotated

Field = str | bytes | None

_T = TypeVar("_T")
_Fields = Iterator[bytes | None]
_Write = Callable[[Any, list[Field]], None]
_Read = Callable[[_Fields], Any]

# The most digits of a number; no size, offset or count has more.
_MOST_DIGITS = 20


class DecodingError(ValueError):
    """Bytes that :func:`encode` did not write for this type."""


def encode(value: object) -> bytes:
    """Encode a dataclass or named tuple.

    Its fields may contain ``str``, ``bytes``, ``int``, ``float``, ``bool``, literals, tuples, frozen sets,
    mappings, further dataclasses, and ``None`` if the annotation allows it.
    """
    fields: list[Field] = []
    schema: Any = type(value)
    write, _ = _codec(schema)
    write(value, fields)
    return encode_fields(fields)


def decode(kind: type[_T], data: bytes) -> _T:
    """Decode a `kind` that :func:`encode` wrote. Raises :class:`DecodingError` for anything else."""
    schema: Any = kind
    _, read = _codec(schema)
    try:
        fields = iter(decode_fields(data))
        value: _T = read(fields)
    except (TypeError, ValueError) as error:
        raise DecodingError(str(error)) from None
    if next(fields, _END) is not _END:
        raise DecodingError("there are further fields")
    return value


def encode_fields(fields: Iterable[Field]) -> bytes:
    """Encode `fields`; text in UTF-8."""
    parts: list[bytes] = []
    for field in fields:
        data = field.encode("utf-8", "surrogateescape") if isinstance(field, str) else field
        parts += (b"-",) if data is None else (b"%d:" % len(data), data)
    return b"".join(parts)


def decode_fields(data: bytes) -> list[bytes | None]:
    """Decode the output of :func:`encode_fields`. Raises :class:`DecodingError` for anything else."""
    fields: list[bytes | None] = []
    position = 0
    while position < len(data):
        if data[position : position + 1] == b"-":
            fields.append(None)
            position += 1
            continue
        colon = data.find(b":", position, position + 20)
        length = data[position : max(colon, position)]
        if not length.isdigit() or (length[:1] == b"0" and length != b"0"):
            raise DecodingError(f"no field begins at byte {position}")
        end = colon + 1 + int(length)
        if end > len(data):
            raise DecodingError(f"the field at byte {position} ends beyond the last byte")
        fields.append(data[colon + 1 : end])
        position = end
    return fields


def key_of(*fields: Field) -> str:
    """Derive a key from `fields`: the SHA-256 of their encoding."""
    return sha256(encode_fields(fields)).hex()


_END = object()


@cache
def _codec(kind: Any) -> tuple[_Write, _Read]:
    """Return the functions that write and read values of type `kind`."""
    origin, of = typing.get_origin(kind), typing.get_args(kind)
    if kind in _SCALARS:
        return _SCALARS[kind]
    if origin is Literal:
        return _literal(of)
    if origin is Annotated:
        return _bounded(*of)
    if origin is types.UnionType or origin is typing.Union:
        (inner,) = (each for each in of if each is not type(None))
        return _optional(inner)
    if origin in (tuple, frozenset, Sequence):
        return _sequence(of[0], tuple if origin is Sequence else origin)
    if origin in (Mapping, dict):
        return _mapping(*of)
    return _record(kind)


def _record(kind: Any) -> tuple[_Write, _Read]:
    hints = typing.get_type_hints(kind, include_extras=True)
    codecs = [(name, *_codec(hint)) for name, hint in hints.items()]

    def write(value: Any, fields: list[Field]) -> None:
        for name, write_field, _ in codecs:
            write_field(getattr(value, name), fields)

    def read(fields: _Fields) -> Any:
        return kind(*[read_field(fields) for _, _, read_field in codecs])

    return write, read


def _bounded(kind: Any, bound: Any) -> tuple[_Write, _Read]:
    write, read = _codec(kind)
    is_valid = bound if callable(bound) else bound.__contains__

    def read_valid(fields: _Fields) -> Any:
        if not is_valid(value := read(fields)):
            raise DecodingError(f"expected another value than {str(value)[:40]!r}")
        return value

    return write, read_valid


def _sequence(item: Any, kind: Any) -> tuple[_Write, _Read]:
    write_item, read_item = _codec(item)

    def write(value: Any, fields: list[Field]) -> None:
        fields.append(str(len(value)))
        for each in sorted(value) if kind is frozenset else value:
            write_item(each, fields)

    def read(fields: _Fields) -> Any:
        return kind([read_item(fields) for _ in range(_read_count(fields))])

    return write, read


def _mapping(key: Any, item: Any) -> tuple[_Write, _Read]:
    write_key, read_key = _codec(key)
    write_item, read_item = _codec(item)

    def write(value: Any, fields: list[Field]) -> None:
        fields.append(str(len(value)))
        for each, content in value.items():
            write_key(each, fields)
            write_item(content, fields)

    def read(fields: _Fields) -> Any:
        return {read_key(fields): read_item(fields) for _ in range(_read_count(fields))}

    return write, read


def _optional(inner: Any) -> tuple[_Write, _Read]:
    write_inner, read_inner = _codec(inner)
    is_text = inner in (str, bytes)

    def write(value: Any, fields: list[Field]) -> None:
        if value is None or is_text:
            fields.append(value)
            return
        nested: list[Field] = []
        write_inner(value, nested)
        fields.append(encode_fields(nested))

    def read(fields: _Fields) -> Any:
        field = _read_field(fields)
        if field is None:
            return None
        if is_text:
            return read_inner(iter((field,)))
        nested = iter(decode_fields(field))
        value = read_inner(nested)
        if next(nested, _END) is not _END:
            raise DecodingError("there are further fields")
        return value

    return write, read


def _literal(choices: tuple[Any, ...]) -> tuple[_Write, _Read]:
    def read(fields: _Fields) -> Any:
        if (text := _read_text(fields)) not in choices:
            raise DecodingError(f"expected one of {choices}, found {text!r}")
        return text

    return _write_as_is, read


def _read_field(fields: _Fields) -> bytes | None:
    for field in fields:
        return field
    raise DecodingError("there is no further field")


def _read_bytes(fields: _Fields) -> bytes:
    field = _read_field(fields)
    if field is None:
        raise DecodingError("a field is absent")
    return field


def _read_text(fields: _Fields) -> str:
    return _read_bytes(fields).decode("utf-8", "surrogateescape")


def _read_number(fields: _Fields) -> int:
    text = _read_text(fields)
    digits = text.removeprefix("-")
    if not (digits.isascii() and digits.isdecimal()) or len(digits) > _MOST_DIGITS:
        raise DecodingError(f"expected a number, found {text[:40]!r}")
    return int(text)


def _read_count(fields: _Fields) -> int:
    if (count := _read_number(fields)) < 0:
        raise DecodingError(f"expected a length, found {count}")
    return count


def _read_float(fields: _Fields) -> float:
    value = float(_read_text(fields))
    if not math.isfinite(value):
        raise DecodingError(f"expected a finite number, found {value}")
    return value


def _read_truth(fields: _Fields) -> bool:
    if (text := _read_text(fields)) not in ("0", "1"):
        raise DecodingError(f"expected 0 or 1, found {text[:40]!r}")
    return text == "1"


def _write_as_is(value: Any, fields: list[Field]) -> None:
    fields.append(value)


def _write_number(value: Any, fields: list[Field]) -> None:
    fields.append(str(int(value)))


def _write_float(value: Any, fields: list[Field]) -> None:
    fields.append(repr(float(value)))


_SCALARS: dict[Any, tuple[_Write, _Read]] = {
    bytes: (_write_as_is, _read_bytes),
    str: (_write_as_is, _read_text),
    bool: (_write_number, _read_truth),
    int: (_write_number, _read_number),
    float: (_write_float, _read_float),
}
