"""Read named tuples from JSON, each field checked by its annotation; and what images fix of launches.

An annotation is a type of JSON, a named tuple, a ``tuple``, a ``Mapping`` or a ``Literal`` of these, or one
of them with a further check: ``Annotated[int, range(8)]``, or with a function that is true for valid values.
Strings have no control characters, in names of keys either, and only :data:`Lines` have tabs and ends of
lines.
"""

# Annotations are evaluated here: named tuples of texts are slower to create, and to derive readers from.

import posixpath
import typing
from collections.abc import Callable, Mapping, Set
from functools import cache, partial
from typing import Annotated, Any, Literal, NamedTuple

from cuda_ext.errors import escape_controls

__all__ = [
    "LARGEST_PARAMETERS",
    "PREFIXES",
    "Alignment",
    "Digest",
    "Extent",
    "FileName",
    "FixedLaunch",
    "HiddenParameter",
    "ImageKind",
    "InnerPath",
    "Lines",
    "Size",
    "TensorMap",
    "Text",
    "Version",
    "array_size",
    "is_digest",
    "is_file_name",
    "is_inner_path",
    "is_kind",
    "parse_json",
    "reader",
    "split_architecture",
    "write_json",
]


_LONGEST_FILE_NAME = 200  # characters; file systems have 255 bytes
_DEVICES = {"con", "prn", "aux", "nul", *(f"{port}{i}" for port in ("com", "lpt") for i in range(1, 10))}


def is_file_name(text: str) -> bool:
    """Whether `text` is a name that files can have on every system; Windows has names of devices."""
    is_name = is_inner_path(text) and "/" not in text and ":" not in text
    return is_name and len(text) <= _LONGEST_FILE_NAME and text.casefold() not in _DEVICES


def is_inner_path(text: str) -> bool:
    """Whether `text` is a normal path that stays within a directory, with forward slashes.

    Windows takes a letter and a colon for a drive.
    """
    is_inside = text.split("/")[0] not in ("", ".", "..") and "\\" not in text and text[1:2] != ":"
    return is_inside and text == posixpath.normpath(text)


def _is_version(text: str) -> bool:
    numbers = text.split(".")
    return len(numbers) == 2 and all(number.isascii() and number.isdigit() for number in numbers)


def is_digest(text: str) -> bool:
    """Whether `text` is a SHA-256 in hexadecimal digits."""
    return len(text) == 64 and not text.strip("0123456789abcdef")


def _is_text(data: object) -> bool:
    return type(data) is str and escape_controls(data) == data


# The types of fields with bounds: a range, or a function that is true for valid values.
Text = Annotated[str, len]
Size = Annotated[int, range(1 << 40)]
Extent = Annotated[int, range(1, 1 << 31)]
Alignment = Annotated[int, (0, *(1 << exponent for exponent in range(17)))]
Digest = Annotated[str, is_digest]
FileName = Annotated[str, is_file_name]
InnerPath = Annotated[str, is_inner_path]
Lines = Annotated[str, _is_text]
Version = Annotated[str, _is_version]


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
    except (ImportError, AttributeError, TypeError, ValueError, RecursionError, StopIteration, SystemError):
        pass  # another Python, white space in front, or no JSON, for which the scanner needs :mod:`json`
    import json

    return json.loads(text)


# Checks and converts a JSON value. Its path is for the :class:`ValueError` that refuses it.
_Reader = Callable[[Any, str], Any]


@cache
def reader(kind: Any) -> _Reader:
    """Make the reader of values of the annotation `kind`."""
    if kind is str:
        return partial(_read_valid, lambda data: _is_text(data) and "\t" not in data and "\n" not in data)
    if isinstance(kind, type):
        if not issubclass(kind, tuple):
            return partial(_read_valid, lambda data: type(data) is kind)
        fields = {name: reader(of) for name, of in kind.__annotations__.items()}
        return partial(_read_record, kind, fields)
    if kind == Lines:
        return partial(_read_valid, _is_text)
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin is Annotated:
        inner, bound = reader(arguments[0]), arguments[1]
        is_valid = bound if callable(bound) else bound.__contains__
        return lambda data, path: _read_valid(is_valid, inner(data, path), path)
    if origin is tuple:
        return partial(_read_array, arguments[0])
    if origin is Mapping:
        return partial(_read_mapping, *arguments)
    if origin is Literal:
        return partial(_read_valid, arguments.__contains__)
    inner = reader(arguments[0])  # X | None
    return lambda data, path: None if data is None else inner(data, path)


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


# Most manifests have no items of most kinds, whose readers are not made then.


def _read_array(kind: Any, data: Any, path: str) -> tuple[Any, ...]:
    items = _read_valid(lambda data: isinstance(data, list), data, path)
    if not items:
        return ()
    read = reader(kind)
    return tuple(read(item, f"{path}[{i}]") for i, item in enumerate(items))


def _read_mapping(key_kind: Any, kind: Any, data: Any, path: str) -> dict[str, Any]:
    items = _read_valid(lambda data: isinstance(data, dict), data, path)
    if not items:
        return {}
    read_key, read = reader(key_kind), reader(kind)
    return {read_key(key, path): read(value, f"{path}[{key!r}]") for key, value in items.items()}


def write_json(record: Any) -> str:
    """Write a named tuple as JSON. Equal records give equal texts."""
    import json  # slow to import, and not needed to read

    # A line for each item of an array, of which there may be tens of thousands.
    texts = []
    for name, value in record._asdict().items():
        if isinstance(value, tuple):
            lines = (json.dumps(_plain(item), ensure_ascii=False) for item in value)
            text = "[" + ",".join(f"\n  {line}" for line in lines) + "]"
        else:
            text = json.dumps(value, ensure_ascii=False)
        texts.append(f'"{name}": {text}')
    return "{\n " + ",\n ".join(texts) + "\n}\n"


def _plain(value: Any) -> Any:
    """Convert a record above to JSON's types, without fields that have their default."""
    if isinstance(value, dict):
        return {name: _plain(each) for name, each in value.items()}
    if not isinstance(value, tuple):
        return value
    kind: Any = type(value)
    if kind is tuple:
        return [_plain(item) for item in value]
    fields, defaults = zip(kind._fields, value, strict=True), kind._field_defaults
    return {name: _plain(each) for name, each in fields if name not in defaults or each != defaults[name]}


# Architectures, and what images for them fix of launches.

ImageKind = Literal["cubin", "ptx", "ltoir", "tileir"]

# How architectures begin, for each kind of image.
PREFIXES: Mapping[ImageKind, str] = {"cubin": "sm", "ptx": "compute", "ltoir": "lto", "tileir": "tile"}


def split_architecture(text: str) -> tuple[str, int, str] | None:
    """Split ``sm_90a`` into prefix, number and suffix; ``None`` if it is no architecture."""
    prefix, _, target = text.partition("_")
    suffix = target[-1:] if target.endswith(("a", "f")) else ""
    digits = target.removesuffix(suffix)
    is_number = digits.isascii() and digits.isdigit() and not digits.startswith("0")
    if prefix not in PREFIXES.values() or not 2 <= len(digits) <= 4 or not is_number:
        return None
    return prefix, int(digits), suffix


LARGEST_PARAMETERS = 32_764  # the most bytes that CUDA passes to a kernel
_ADDRESS = 8
# The kinds and sizes of types that are the same on every system.
_FUNDAMENTAL = {
    "bool": ("bool", 1),
    "signed char": ("integer", 1),
    "unsigned char": ("unsigned", 1),
    "short": ("integer", 2),
    "unsigned short": ("unsigned", 2),
    "int": ("integer", 4),
    "unsigned int": ("unsigned", 4),
    "long long": ("integer", 8),
    "unsigned long long": ("unsigned", 8),
    "float": ("float", 4),
    "double": ("float", 8),
}


def is_kind(type_: str, kind: str, size: int) -> bool:
    """Whether parameters of a type have this kind, as far as it says. Pointers to members are structures."""
    if type_ in _FUNDAMENTAL:
        return _FUNDAMENTAL[type_] == (kind, size)
    if kind == "pointer":
        return "*" in type_ or "&" in type_
    return not type_.endswith("*") or type_.endswith("::*")


def array_size(type_: str) -> int | None:
    """The bytes of an array of a fundamental type; ``None`` for other types."""
    element, *counts = type_.removeprefix("const ").replace("]", "").split("[")
    if element not in _FUNDAMENTAL or not all(len(n) < 16 and n.isascii() and n.isdigit() for n in counts):
        return None
    size = _FUNDAMENTAL[element][1]
    for count in counts:
        size *= int(count)
    return size if counts else None


class HiddenParameter(NamedTuple):
    """A parameter that is no argument of a call, since a launch derives its value.

    ``position`` is that among all parameters of the kernel, ``size`` is in bytes. ``source`` is ``zero``, or
    ``scratch`` for the address of the memory of :class:`FixedLaunch`, or ``x.shape[0]`` or ``x.stride[0]``
    of the array argument ``x``; a stride counts elements.
    """

    position: Annotated[int, range(LARGEST_PARAMETERS)]
    size: Annotated[int, range(1, LARGEST_PARAMETERS + 1)]
    source: Text

    def is_derivable(self, arrays: Set[str]) -> bool:
        """Whether a launch can derive the value, from arguments with the names `arrays`."""
        if self.source in ("zero", "scratch"):
            return self.source == "zero" or self.size == _ADDRESS
        return self.extent is not None and self.extent[0] in arrays

    @property
    def extent(self) -> tuple[str, str, int] | None:
        """Of ``x.shape[0]``, the argument, ``shape`` or ``stride``, and the axis; else ``None``."""
        name, _, extent = self.source.partition(".")
        what, _, axis = extent.partition("[")
        digits = axis.removesuffix("]")
        is_axis = len(digits) == len(axis) - 1 < 3 and digits.isascii() and digits.isdecimal()
        return (name, what, int(digits)) if what in ("shape", "stride") and is_axis else None


class TensorMap(NamedTuple):
    """What an image fixes of a ``CUtensorMap``, which a launch makes of an array.

    ``data_type`` and ``swizzle`` have the values of cuda.h, ``item`` is the size of an element in bytes, and
    ``box`` are the elements on each axis that are copied at once.
    """

    data_type: Annotated[int, range(16)]
    item: Annotated[int, (1, 2, 4, 8)]
    box: Annotated[tuple[Extent, ...], lambda box: 1 <= len(box) <= 5]
    swizzle: Annotated[int, range(8)] = 0


class FixedLaunch(NamedTuple):
    """The launch configuration that a kernel was compiled for, which leaves only the grid to a call.

    ``shared`` is the dynamic shared memory of a block, and ``scratch`` the global memory that a launch
    allocates for each block, in bytes. The grid of a call counts clusters if ``cluster`` is not empty.
    ``tensor_maps`` are those that it makes, by parameter.
    """

    block: Annotated[tuple[Extent, ...], lambda extents: 1 <= len(extents) <= 3]
    shared: Annotated[int, range(1 << 31)] = 0
    cluster: Annotated[tuple[Extent, ...], lambda extents: len(extents) <= 3] = ()
    cooperative: bool = False
    dependent: bool = False
    scratch: Size = 0
    tensor_maps: Mapping[Text, TensorMap] = {}

    def __str__(self) -> str:
        extents = [*self.block]
        while len(extents) > 1 and extents[-1] == 1:
            extents.pop()
        parts = [f"{' x '.join(map(str, extents))} {'thread' if extents == [1] else 'threads'}"]
        parts += [f"{self.shared:,} bytes of shared memory"] if self.shared else []
        parts += [f"clusters of {' x '.join(map(str, self.cluster))}"] if self.cluster else []
        parts += [word for word in ("cooperative", "dependent") if getattr(self, word)]
        parts += [f"{self.scratch:,} bytes of scratch memory"] if self.scratch else []
        return ", ".join(parts)
