"""Check texts that a program passes to this package, before they reach a compiler or a file.

A wrong type is a :class:`TypeError`, and a text that no compiler accepts a :class:`ValueError`. Both name
the argument.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from cuda_ext.compiler.translation_unit import MOST_INSTANTIATIONS
from cuda_ext.errors import escape_controls

_LONGEST = 100  # the number of characters of an argument that a message quotes


def quote(text: str) -> str:
    """Spell `text` as Python does, shortened for a message."""
    return repr(text if len(text) <= _LONGEST else f"{text[:_LONGEST]}...")


def read_text(argument: str, value: object, what: str = "a string") -> str:
    """Return `value`, a string without control characters."""
    if not isinstance(value, str):
        raise _unexpected(argument, what, value)
    if escape_controls(value) != value:
        raise ValueError(f"{argument}: {quote(value)} has a control character; take it out")
    return value


def read_texts(argument: str, values: object) -> tuple[str, ...]:
    """Return the strings `values`."""
    if isinstance(values, str):
        raise TypeError(f'{argument}: expected a list of strings; write ["{quote(values)[1:-1]}"]')
    items = read_items(argument, values, "a list of strings")
    return tuple(read_text(f"{argument}[{i}]", each) for i, each in enumerate(items))


def read_items(argument: str, values: object, what: str) -> list[Any]:
    """Return the items of `values`, a list or the like. They are counted before they take memory."""
    if not isinstance(values, Iterable) or isinstance(values, str | bytes | bytearray | Mapping):
        raise _unexpected(argument, what, values)
    items = list(itertools.islice(values, MOST_INSTANTIATIONS + 1))
    if len(items) > MOST_INSTANTIATIONS:
        raise ValueError(f"{argument}: has more than {MOST_INSTANTIATIONS:,} items; list fewer of them")
    return items


def read_mapping(argument: str, values: object) -> dict[str, Any]:
    """Return the mapping `values`; its keys are strings."""
    if not isinstance(values, Mapping):
        raise _unexpected(argument, "a mapping of strings", values)
    return {read_text(argument, key): value for key, value in values.items()}


def read_source(argument: str, value: object) -> bytes:
    """Return `value`, the text of a source or header, in UTF-8."""
    if not isinstance(value, str):
        raise _unexpected(argument, "a string", value)
    try:
        return value.encode()
    except UnicodeEncodeError as error:
        raise ValueError(f"{argument}: {value[error.start]!r} is not a character; take it out") from None


def read_path(argument: str, value: object) -> str:
    """Return `value`, a string or an object such as :class:`pathlib.Path`, as a string."""
    if not isinstance(value, str | os.PathLike):
        raise _unexpected(argument, "a path", value)
    return read_text(argument, os.fsdecode(value))


def read_choice(argument: str, value: object, known: Sequence[object]) -> None:
    """Check that `value` is one of `known`."""
    if value not in known:
        found = quote(value) if isinstance(value, str) else type(value).__name__
        raise ValueError(f"{argument}: expected {' or '.join(map(repr, known))}, found {found}")


def _unexpected(argument: str, what: str, value: object) -> TypeError:
    return TypeError(f"{argument}: expected {what}, found {type(value).__name__}")
