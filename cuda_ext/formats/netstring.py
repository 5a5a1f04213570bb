"""Encode a list of byte strings as one byte string without ambiguity, and derive keys from it.

A field is its length in decimal, a colon, and its bytes; an absent field is a minus sign. The C++ loader
uses the same encoding (``include/cuda_ext/on_demand/fields.hpp``).

>>> encode(["axpy", None, ""])
b'4:axpy-0:'
>>> decode(b"4:axpy-0:")
[b'axpy', None, b'']
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

__all__ = ["Field", "decode", "encode", "key_of"]

Field = str | bytes | None


def encode(fields: Iterable[Field]) -> bytes:
    """Encode `fields`; text in UTF-8."""
    parts: list[bytes] = []
    for field in fields:
        data = field.encode("utf-8", "surrogateescape") if isinstance(field, str) else field
        parts += (b"-",) if data is None else (b"%d:" % len(data), data)
    return b"".join(parts)


def decode(data: bytes) -> list[bytes | None]:
    """Decode what :func:`encode` wrote. Raises :class:`ValueError` for anything else."""
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
            raise ValueError(f"no field begins at byte {position}")
        end = colon + 1 + int(length)
        if end > len(data):
            raise ValueError(f"the field at byte {position} ends beyond the last byte")
        fields.append(data[colon + 1 : end])
        position = end
    return fields


def key_of(*fields: Field) -> str:
    """Derive a key from `fields`: the SHA-256 of their encoding."""
    return hashlib.sha256(encode(fields)).hexdigest()
