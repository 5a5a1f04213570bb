"""Read named tuples from JSON, each field checked by its annotation.

An annotation is a type of JSON, a named tuple, a ``tuple``, a ``Mapping`` or a ``Literal`` of these, or one
of them with a further check: ``Annotated[int, range(8)]``, or with a function that is true for valid values.
Strings have no control characters, in names of keys either.
"""

# Annotations are evaluated here: named tuples of texts are slower to create, and to derive readers from.

import types
import typing
from collections.abc import Callable, Mapping
from functools import cache, partial
from typing import Annotated, Any, Literal

from cuda_ext.errors import escape_controls

__all__ = ["parse_json", "reader"]


class _Parsing:
    """The settings of ``json.loads``, for its scanner in C."""

    strict = True
    object_hook = object_pairs_hook = None
    parse_float, parse_int, parse_constant = float, int, float


def parse_json(text: str | bytes) -> Any:
    """``json.loads(text)``, without the import of :mod:`json`, which takes longer than all else here."""
    try:
        from _json import make_scanner

        decoded = text if isinstance(text, str) else text.decode()
        data, end = make_scanner(_Parsing)(decoded, 0)  # type: ignore[arg-type]
        if not decoded[end:].strip(" \t\r\n"):
            return data
    except (ImportError, AttributeError, TypeError, ValueError, RecursionError, StopIteration):
        pass  # another Python, white space in front, or no JSON
    import json

    return json.loads(text)


# Checks and converts a JSON value. Its path is for the :class:`ValueError` that refuses it.
_Reader = Callable[[Any, str], Any]


@cache
def reader(kind: Any) -> _Reader:
    """Make the reader of values of the annotation `kind`."""
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if hasattr(kind, "_fields"):
        fields = {name: reader(of) for name, of in kind.__annotations__.items()}
        return partial(_read_record, kind, fields)
    if origin in (types.UnionType, typing.Union):  # X | None
        inner = reader(arguments[0])
        return lambda data, path: None if data is None else inner(data, path)
    if origin is Annotated:
        inner, bound = reader(arguments[0]), arguments[1]
        is_valid = bound if callable(bound) else bound.__contains__
        return lambda data, path: _read_valid(is_valid, inner(data, path), path)
    if origin is tuple:
        return partial(_read_array, reader(arguments[0]))
    if origin is Mapping:
        return partial(_read_mapping, reader(arguments[0]), reader(arguments[1]))
    if origin is Literal:
        return partial(_read_valid, arguments.__contains__)
    if kind is str:
        return partial(_read_valid, lambda data: type(data) is str and escape_controls(data) == data)
    return partial(_read_valid, lambda data: type(data) is kind)


def _read_valid(is_valid: Callable[[Any], object], data: Any, path: str) -> Any:
    if is_valid(data):
        return data
    raise ValueError(f"{path} is {data!r}")


def _read_record(kind: Any, fields: Mapping[str, _Reader], data: Any, path: str) -> Any:
    if not isinstance(data, dict):
        raise ValueError(f"{path} is not an object")
    if unknown := data.keys() - fields.keys():
        raise ValueError(f"{path} has unknown fields {sorted(unknown)}")
    for name in fields:
        if name not in data and name not in kind._field_defaults:
            raise ValueError(f"{path}.{name} is missing")
    return kind(**{name: fields[name](value, f"{path}.{name}") for name, value in data.items()})


def _read_array(read: _Reader, data: Any, path: str) -> tuple[Any, ...]:
    items = _read_valid(lambda data: isinstance(data, list), data, path)
    return tuple(read(item, f"{path}[{i}]") for i, item in enumerate(items))


def _read_mapping(read_key: _Reader, read: _Reader, data: Any, path: str) -> dict[str, Any]:
    items = _read_valid(lambda data: isinstance(data, dict), data, path)
    return {read_key(key, path): read(value, f"{path}[{key!r}]") for key, value in items.items()}
