"""Cache entries of compilation on demand: one image with its name map and signatures.

An entry is a list of netstrings: the format, the architecture, the image,
then the kernels and symbols, each list after its length. Instead of an image it may hold the key of the entry
that has what is asked for. The C++ loader reads and writes the same bytes
(``include/cuda_ext/on_demand/record.hpp``).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple, get_args

from cuda_ext.formats.architecture import Architecture
from cuda_ext.formats.netstring import Field, decode, encode
from cuda_ext.manifest import Kernel, Parameter, ParameterKind, Symbol

__all__ = ["BEGINNING", "Record", "read_record", "reference"]

_FORMAT = "cuda-ext on demand 1"
BEGINNING = encode([_FORMAT])  # of every record


class Record(NamedTuple):
    """An image of ``architecture``, ``sm_90a`` or ``compute_90``, and what is in it."""

    architecture: str
    image: bytes
    kernels: tuple[Kernel, ...]
    symbols: tuple[Symbol, ...]

    def kernel(self, expression: str) -> Kernel | None:
        """The kernel of that normalised name expression, if it is in the image."""
        return next((kernel for kernel in self.kernels if kernel.expression == expression), None)

    def lowered_name(self, entity: Kernel | Symbol) -> str | None:
        """What a kernel or symbol of that name is called in the image."""
        if isinstance(entity, Kernel):
            kernel = self.kernel(entity.expression)
            return kernel.lowered if kernel else None
        return next((s.lowered for s in self.symbols if s.name == entity.name), None)

    def encode(self) -> bytes:
        """The record as bytes."""
        fields: list[Field] = [_FORMAT, self.architecture, self.image, str(len(self.kernels))]
        for kernel in self.kernels:
            fields += kernel.expression, kernel.lowered, str(len(kernel.parameters))
            for p in kernel.parameters:
                fields += p.name, p.type, p.kind, str(p.size), str(p.offset), p.element, str(int(p.const))
        fields.append(str(len(self.symbols)))
        for symbol in self.symbols:
            fields += symbol.name, symbol.lowered, symbol.space, symbol.type, str(symbol.size)
        return encode(fields)


def reference(key: str) -> bytes:
    """A record that refers to the one under `key`."""
    return encode([_FORMAT, None, key])


def read_record(content: bytes) -> Record | str | None:
    """A record, or the key of the one that `content` refers to; ``None`` if it is neither."""
    try:
        fields = iter(decode(content))
        if _text(fields) != _FORMAT:
            return None
        architecture = _field(fields)
        found = _text(fields) if architecture is None else _record(architecture.decode(), fields)
        return found if next(fields, _END) is _END else None
    except ValueError:
        return None


_END = object()
_Fields = Iterator[bytes | None]


def _record(architecture: str, fields: _Fields) -> Record:
    if Architecture.parse(architecture).kind == "ltoir":
        raise ValueError("nobody can load it")
    image = _field(fields) or b""
    kernels = tuple(_kernel(fields) for _ in range(_number(fields)))
    symbols = tuple(_symbol(fields) for _ in range(_number(fields)))
    return Record(architecture, image, kernels, symbols)


def _kernel(fields: _Fields) -> Kernel:
    return Kernel(_text(fields), _text(fields), 0, tuple(_parameter(fields) for _ in range(_number(fields))))


def _parameter(fields: _Fields) -> Parameter:
    name, type_ = _text(fields), _text(fields)
    kind: Any = _one_of(get_args(ParameterKind), fields)
    size, offset, element = _number(fields), _number(fields), _field(fields)
    const = _one_of(("0", "1"), fields) == "1"
    return Parameter(name, type_, kind, size, offset, None if element is None else element.decode(), const)


def _symbol(fields: _Fields) -> Symbol:
    name, lowered = _text(fields), _text(fields)
    space: Any = _one_of(("constant", "device"), fields)
    return Symbol(name, lowered, 0, space, _text(fields), _number(fields))


def _field(fields: _Fields) -> bytes | None:
    for field in fields:
        return field
    raise ValueError("there is no further field")


def _text(fields: _Fields) -> str:
    field = _field(fields)
    if field is None:
        raise ValueError("a field is absent")
    return field.decode()


def _number(fields: _Fields) -> int:
    text = _text(fields)
    if not text.isascii() or not text.isdecimal() or len(text) > 18:
        raise ValueError(f"expected a number, found {text!r}")
    return int(text)


def _one_of(choices: tuple[str, ...], fields: _Fields) -> str:
    text = _text(fields)
    if text not in choices:
        raise ValueError(f"expected one of {choices}, found {text!r}")
    return text
