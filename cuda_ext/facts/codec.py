"""Records as JSON and as bytes: named tuples, frozen dataclasses, and other classes with ``__match_args__``.

The annotations of a record are its schema. A reader accepts nothing that they do not allow: other data raise
one :class:`DecodingError`. A text within an annotation is the full name of a record, which is imported when a
value is read: Python takes longer to create most records of a manifest than to launch a kernel.

A manifest is JSON. Records that are sent between processes or stored in a cache are fields: JSON, in which
each ``bytes`` of the record is its length, and behind it these ``bytes``.

A field is a netstring: its length in decimal, a colon, and its bytes; an absent one is a minus sign. The C++
loader uses the same encoding (``include/cuda_ext/on_demand/store.hpp``).

>>> from typing import TYPE_CHECKING, NamedTuple
>>> class Point(NamedTuple):
...     x: int
...     labels: tuple[str, ...] = ()
...     data: bytes = b""
>>> encode(Point(3, ("a", "bc"), b"123"))
b'42:{"x": 3, "labels": ["a", "bc"], "data": 3}3:123'
>>> decode(Point, b'8:{"x": 3}')
Point(x=3, labels=(), data=b'')
>>> encode_fields(["axpy", None, ""])
b'4:axpy-0:'
>>> decode_fields(b"4:axpy-0:")
[b'axpy', None, b'']
"""

import math
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from types import UnionType
from typing import (
    Any,
    ForwardRef,
    Literal,
    TypeAlias,
    TypeVar,
    get_args,
    get_origin,
    get_type_hints,
)

Field: TypeAlias = str | bytes | None

_T = TypeVar("_T")
# Makes a value of data from JSON, and takes its `bytes` from an iterator.
Reader: TypeAlias = Callable[[Any, Iterator[bytes | None]], Any]
# Larger contents are worth the import of OpenSSL, which is several times as fast.
_LARGE = 4 << 20


class DecodingError(ValueError):
    """Data that do not have the form of the record."""


def encode(record: object) -> bytes:
    """Encode a record as bytes. Equal records have equal bytes."""
    import json  # slow to import, and not needed to read

    contents: list[bytes] = []
    text = json.dumps(plain(record, contents))
    return encode_fields([text, *contents])


def decode(kind: type[_T], data: bytes) -> _T:
    """Decode a `kind` that :func:`encode` wrote. Raises :class:`DecodingError` for anything else."""
    schema: Any = kind
    contents = iter(decode_fields(data))
    try:
        value: _T = reader(schema)(parse_json((next(contents, None) or b"").decode()), contents)
    except (ValueError, RecursionError) as error:
        raise DecodingError(str(error)) from None
    if any(True for _ in contents):
        raise DecodingError("there are further fields")
    return value


class _Parsing:
    """The settings of ``json.loads``, for its scanner in C."""

    strict = True
    object_hook = object_pairs_hook = None
    parse_float, parse_int, parse_constant = float, int, float


def parse_json(text: str) -> Any:
    """Do what ``json.loads`` does, without importing :mod:`json`, which compiles seven regular expressions.

    That is an eighth of the time from an import to the first launch.
    """
    try:
        from _json import make_scanner

        data, end = make_scanner(_Parsing)(text, 0)  # type: ignore[arg-type]
        if not text[end:].strip(" \t\r\n"):
            return data
    except (ImportError, AttributeError, TypeError, ValueError, RecursionError, StopIteration, SystemError):
        pass  # another Python, white space in front, or no JSON, for which the scanner needs :mod:`json`
    import json

    return json.loads(text)


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


def sha256(content: bytes | memoryview) -> bytes:
    """Return the SHA-256 of `content`, 32 bytes."""
    # OpenSSL takes longer to import than hashing some megabytes without it.
    if len(content) <= _LARGE and "hashlib" not in sys.modules:
        try:
            digest: bytes = _import_sha256()(content).digest()
            return digest
        except ImportError:
            pass  # a Python without it, which some distributions have
    import hashlib

    return hashlib.sha256(content).digest()


def _import_sha256() -> Any:
    if sys.version_info >= (3, 12):  # as the standard library's random does
        from _sha2 import sha256
    else:
        from _sha256 import sha256  # type: ignore[import-not-found]
    return sha256


def plain(value: Any, contents: list[bytes]) -> Any:
    """Convert a record to JSON's types. Its ``bytes`` are appended to `contents`.

    Fields that have their default are left out, and sets are sorted. A mapping whose keys are not texts
    becomes pairs.
    """
    if isinstance(value, bytes):
        contents.append(value)
        return len(value)
    if isinstance(value, Mapping):
        if all(isinstance(key, str) for key in value):
            return {key: plain(each, contents) for key, each in value.items()}
        return [[plain(key, contents), plain(each, contents)] for key, each in value.items()]
    if isinstance(value, (set, frozenset)):
        return sorted(value)
    kind = type(value)
    names = getattr(kind, "__match_args__", None)
    if names is None:
        is_array = isinstance(value, Sequence) and not isinstance(value, str)
        return [plain(each, contents) for each in value] if is_array else value
    defaults = getattr(kind, "_field_defaults", {})
    fields = ((name, getattr(value, name)) for name in names)
    return {n: plain(v, contents) for n, v in fields if n not in defaults or v != defaults[n]}


@cache
def reader(kind: Any) -> Reader:
    """Return the reader of values with the annotation `kind`."""
    if isinstance(kind, str):
        from importlib import import_module  # few launches need it

        module, _, name = kind.rpartition(".")
        return reader(getattr(import_module(module), name))
    origin, of = get_origin(kind), get_args(kind)
    if origin is Literal:
        return _reading_scalar(str, of.__contains__)
    if origin is UnionType:
        inner = reader(of[0])  # X | None
        return lambda data, contents: None if data is None else inner(data, contents)
    if origin in (tuple, frozenset, Sequence):
        return _reading_array(frozenset if origin is frozenset else tuple, of[0])
    if origin in (Mapping, dict):
        return _reading_mapping(*of)
    if kind is bytes:
        return _read_bytes
    if kind is float:
        return _read_float
    return _reading_scalar(kind) if kind in (str, int, bool) else _reading_record(kind)


def _refuse(data: Any) -> DecodingError:
    return DecodingError(f"found {data!r:.40}")


def _read_bytes(data: Any, contents: Iterator[bytes | None]) -> bytes:
    content = next(contents, None)
    if content is None or len(content) != data:
        raise _refuse(data)
    return content


def _read_float(data: Any, _: object) -> float:
    if type(data) not in (int, float) or not math.isfinite(data):
        raise _refuse(data)
    return float(data)


def _reading_scalar(kind: type, is_valid: Callable[[Any], bool] = lambda _: True) -> Reader:
    def read(data: Any, _: object) -> Any:
        if type(data) is not kind or not is_valid(data):
            raise _refuse(data)
        return data

    return read


def _reading_array(kind: Any, item: Any) -> Reader:
    def read(data: Any, contents: Iterator[bytes | None]) -> Any:
        if type(data) is not list:
            raise _refuse(data)
        return kind([reader(item)(each, contents) for each in data])

    return read


def _reading_mapping(key: Any, item: Any) -> Reader:
    def read(data: Any, contents: Iterator[bytes | None]) -> Any:
        pairs = data.items() if type(data) is dict else data
        try:
            return {reader(key)(name, contents): reader(item)(each, contents) for name, each in pairs}
        except TypeError:  # these are no pairs
            raise _refuse(data) from None

    return read


def _reading_record(kind: Any) -> Reader:
    def read(data: Any, contents: Iterator[bytes | None]) -> Any:
        if type(data) is not dict:
            raise _refuse(data)
        try:
            return kind(**{name: readers[name](value, contents) for name, value in data.items()})
        except (KeyError, TypeError) as error:  # a field is unknown or missing
            raise DecodingError(f"{kind.__name__}: {error}") from None

    annotations = kind.__annotations__
    if any(isinstance(each, (str, ForwardRef)) for each in annotations.values()):
        # Slow: the records of a manifest need none.
        annotations = get_type_hints(kind)
    readers = {name: reader(of) for name, of in annotations.items()}
    return read
