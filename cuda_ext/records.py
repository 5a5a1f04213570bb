"""Records: named tuples that are read from JSON. The annotation of each field is checked.

An annotation is a type of JSON, a record, a ``tuple``, a ``Mapping`` or a ``Literal`` of texts, or one of
them with a further check: ``Annotated[int, range(8)]``, or with a function that is true for valid values.
Strings, also names of keys, have no control characters; only :data:`Lines` may have tabs and ends of lines.

The first launch of a process waits for this module, and :mod:`typing` takes longer to import than everything
else that it waits for. So type checkers see the annotations and named tuples of :mod:`typing`, and Python
sees the ones below. Modules with records do not import ``annotations`` from ``__future__``, since texts would
have to be evaluated.
"""

from __future__ import annotations

from operator import itemgetter
from types import GenericAlias, UnionType

from cuda_ext.errors import escape_controls

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from typing import Annotated, Any, Literal, NamedTuple, TypeAlias

    class _Array(Sequence[Any]):
        pass

    # Checks and converts a JSON value. The text of a :class:`ValueError` follows the path of the value.
    _Reader: TypeAlias = Callable[[Any], Any]
else:
    Mapping, _Array = dict, object

    class Sequence:
        """Records of one type: in a tuple, or :class:`Records`."""

        def __class_getitem__(cls, kind):
            return tuple[kind, ...]

    class Annotated:
        """A type with a bound."""

        __class_getitem__ = classmethod(GenericAlias)

    class Literal:
        """One of several texts."""

        def __class_getitem__(cls, texts):
            return Annotated[str, texts if isinstance(texts, tuple) else (texts,)]

    class _NamedTupleType(type):
        def __new__(cls, name, bases, members):
            record = super().__new__(cls, name, bases, {**members, "__slots__": ()})
            record._fields = record.__match_args__ = tuple(record.__annotations__)
            record._field_defaults = {field: members[field] for field in record._fields if field in members}
            for position, field in enumerate(record._fields):
                setattr(record, field, property(itemgetter(position)))
            return record

    class NamedTuple(tuple, metaclass=_NamedTupleType):
        """Replaces :class:`typing.NamedTuple`."""

        def __new__(cls, /, *values, **named):
            further = cls._fields[len(values) :]
            known = cls._field_defaults | named
            if len(values) > len(cls._fields) or not named.keys() <= set(further) <= known.keys():
                raise TypeError(f"{cls.__name__} has the fields {', '.join(cls._fields)}")
            return tuple.__new__(cls, [*values, *[known[field] for field in further]])

        _make = classmethod(tuple.__new__)

        def __getnewargs__(self):
            return tuple(self)

        def __repr__(self):
            fields = (f"{field}={value!r}" for field, value in self._asdict().items())
            return f"{type(self).__name__}({', '.join(fields)})"

        def _asdict(self):
            return dict(zip(self._fields, self, strict=True))

        def _replace(self, **named):
            return type(self)(**{**self._asdict(), **named})

        __replace__ = _replace


__all__ = [
    "Annotated",
    "Lines",
    "Literal",
    "Mapping",
    "NamedTuple",
    "Records",
    "Sequence",
    "choices",
    "parse_document",
    "parse_json",
    "plain",
    "reader",
    "write_json",
]


def _is_text(data: object) -> bool:
    return type(data) is str and escape_controls(data) == data


Lines = Annotated[str, _is_text]


# The characters before the first field's value in a line.
_LONGEST_FIELD = 32


class _Parsing:
    """The settings of ``json.loads``, for its scanner in C."""

    strict = True
    object_hook = object_pairs_hook = None
    parse_float, parse_int, parse_constant = float, int, float


def parse_json(text: str | bytes) -> Any:
    """Do as ``json.loads(text)``, without the import of :mod:`json`, which takes longer than this module."""
    try:
        from _json import make_scanner

        decoded = text if isinstance(text, str) else text.decode()
        data, end = make_scanner(_Parsing)(decoded, 0)  # type: ignore[arg-type]
        if not decoded[end:].strip(" \t\r\n"):
            return data
    except (ImportError, AttributeError, TypeError, ValueError, RecursionError, StopIteration, SystemError):
        pass  # another Python, leading white space, or invalid JSON: the scanner needs :mod:`json`
    import json

    return json.loads(text)


def parse_document(text: str | bytes) -> Any:
    """Parse the JSON `text`. Items of arrays stay text if :func:`write_json` wrote each on its own line.

    Raises :class:`ValueError` or :class:`RecursionError` for invalid JSON.
    """
    decoded = text if isinstance(text, str) else text.decode()
    first, *lines = decoded.split("\n")
    if first != "{" or lines[-2:] != ["}", ""]:
        return parse_json(decoded)
    document: dict[str, Any] = {}
    items: list[str] = []
    for line in lines[:-2]:
        if line.startswith("  "):
            items.append(line)
            continue
        name, _, value = line.partition('": ')
        if value == "[":
            items = document[name[2:]] = []
        elif not line.startswith(' "'):
            return parse_json(decoded)
        else:
            document[name[2:]] = parse_json(value.removesuffix(","))
    return document


class Records(_Array):
    """The records of an array. `read` converts each record from its JSON value when it is first used.

    `items` are these values, or lines with one value each. `refuse` gets the errors of `read`, after `path`.
    """

    def __init__(
        self,
        items: list[Any],
        read: Callable[[Any], Any],
        path: str,
        refuse: Callable[[str], Exception],
    ) -> None:
        self._items = items
        self._read = read
        self._path = path
        self._refuse = refuse

    def __len__(self) -> int:
        return len(self._items)

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return tuple(self[i] for i in range(*index.indices(len(self))))
        item = self._items[index]
        if isinstance(item, tuple):
            return item
        try:
            data = parse_json(item.strip(" ,").removesuffix("]")) if isinstance(item, str) else item
            record = self._items[index] = self._read(data)
        except (ValueError, RecursionError) as error:
            number = index % len(self)
            raise self._refuse(f"{self._path}[{number}]{error}") from None
        return record

    def __iter__(self) -> Iterator[Any]:
        return (self[index] for index in range(len(self)))

    def __eq__(self, other: object) -> bool:
        return [*self] == [*other] if isinstance(other, (tuple, Records)) else NotImplemented

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return repr(tuple(self))

    def names(self) -> list[str]:
        """Return the names of all records, which are their first fields; other fields are not read."""
        names = []
        for index, item in enumerate(self._items):
            colon = item.find('": "', 0, _LONGEST_FIELD) if isinstance(item, str) else -1
            start = colon + 4
            end = item.find('"', start) if colon > 0 else -1
            # Read the whole record if its name has escapes, or if it is damaged.
            is_plain = end > 0 and "\\" not in item[start:end]
            names.append(item[start:end] if is_plain else self[index][0])
        return names


def _checking(is_valid: Callable[[Any], object], read: _Reader | None = None) -> _Reader:
    def check(data: Any) -> Any:
        value = read(data) if read else data
        if not is_valid(value):
            raise ValueError(f" is {value!r}")
        return value

    return check


_readers: dict[Any, _Reader] = {
    str: _checking(lambda data: _is_text(data) and "\t" not in data and "\n" not in data),
    Lines: _checking(_is_text),
}


def reader(kind: Any) -> _Reader:
    """Return the reader of values with the annotation `kind`."""
    known = _readers.get(kind)
    if known is None:
        known = _readers[kind] = _make_reader(kind)
    return known


def _make_reader(kind: Any) -> _Reader:
    if isinstance(kind, type) and issubclass(kind, tuple):
        return _reading_record(kind)
    if isinstance(kind, type):
        return _checking(lambda data: type(data) is kind)
    of = kind.__args__
    if isinstance(kind, UnionType):
        inner = reader(of[0])  # X | None
        return lambda data: None if data is None else inner(data)
    if kind.__origin__ is Annotated:
        return _checking(of[1] if callable(of[1]) else of[1].__contains__, reader(of[0]))
    return _reading_array(of[0]) if kind.__origin__ is tuple else _reading_mapping(*of)


def _reading_record(kind: Any) -> _Reader:
    fields = {name: reader(of) for name, of in kind.__annotations__.items()}

    def read(data: Any) -> Any:
        if not isinstance(data, dict):
            raise ValueError(" is not an object")
        values = {**kind._field_defaults}
        for name, value in data.items():
            if name not in fields:
                raise ValueError(f" has the unknown field {name!r}")
            try:
                values[name] = fields[name](value)
            except ValueError as error:
                raise ValueError(f".{name}{error}") from None
        if len(values) < len(fields):
            raise ValueError(f".{next(name for name in fields if name not in values)} is missing")
        return kind._make(map(values.__getitem__, fields))

    return read


# Most manifests have no items of most kinds; do not make readers for these.


def _reading_array(kind: Any) -> _Reader:
    def read(data: Any) -> Any:
        if not isinstance(data, list):
            raise ValueError(f" is {data!r}")
        items: list[Any] = []
        try:
            items.extend(map(reader(kind), data) if data else ())
        except ValueError as error:
            raise ValueError(f"[{len(items)}]{error}") from None
        return tuple(items)

    return read


def _reading_mapping(key_kind: Any, kind: Any) -> _Reader:
    def read(data: Any) -> Any:
        if not isinstance(data, dict):
            raise ValueError(f" is {data!r}")
        items: dict[str, Any] = {}
        for key, item in data.items():
            known = reader(key_kind)(key)
            try:
                items[known] = reader(kind)(item)
            except ValueError as error:
                raise ValueError(f"[{key!r}]{error}") from None
        return items

    return read


def choices(literal: Any) -> tuple[str, ...]:
    """Return the texts of a ``Literal``."""
    texts: tuple[str, ...] = literal.__args__[1]
    return texts


def write_json(document: Mapping[str, Any]) -> str:
    """Write an object of records as JSON, with each item of its arrays on its own line.

    Equal records give equal texts. :func:`parse_document` reads it.
    """
    import json  # slow to import, and not needed for reading

    texts = []
    for name, value in document.items():
        if isinstance(value, (tuple, list, Records)):
            lines = (json.dumps(plain(item), ensure_ascii=False) for item in value)
            text = "[" + ",".join(f"\n  {line}" for line in lines) + "]"
        else:
            text = json.dumps(value, ensure_ascii=False)
        texts.append(f'"{name}": {text}')
    return "{\n " + ",\n ".join(texts) + "\n}\n"


def plain(value: Any) -> Any:
    """Convert a record to JSON's types, without fields that have their default."""
    if isinstance(value, dict):
        return {name: plain(each) for name, each in value.items()}
    if not isinstance(value, tuple):
        return value
    kind: Any = type(value)
    if kind is tuple:
        return [plain(item) for item in value]
    fields, defaults = zip(kind._fields, value, strict=True), kind._field_defaults
    return {name: plain(each) for name, each in fields if name not in defaults or each != defaults[name]}
