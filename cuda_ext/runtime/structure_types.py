"""Classes of structures that kernels take by value: members by name, with the checks of arguments.

C converts common values (native/structure_type.h). All others come here, to ``__assign__``.
"""

from __future__ import annotations

import keyword
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import copy
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn, Self

from cuda_ext.errors import ArgumentError, did_you_mean
from cuda_ext.facts.kernels import Parameter
from cuda_ext.facts.structures import Structure
from cuda_ext.formats.quantities import format_count
from cuda_ext.runtime.arrays.device_memory import DeviceMemory, device_memory
from cuda_ext.runtime.arrays.dtypes import is_complex, may_hold_address
from cuda_ext.runtime.launch import arguments, fast_launch

if TYPE_CHECKING:
    from cuda_ext.runtime.launch._launch import Field
    from cuda_ext.runtime.launch._launch import Structure as _Memory
else:
    try:
        from cuda_ext.runtime.launch._launch import Field
        from cuda_ext.runtime.launch._launch import Structure as _Memory
    except ImportError:
        from cuda_ext.runtime.structure_memory import Field
        from cuda_ext.runtime.structure_memory import Structure as _Memory


class Member(NamedTuple):
    """A member, or an item of one: its extents, if it is an array, and the class of its items, if known.

    ``field`` is that of one item. ``reference`` is the number of its first pointer.
    """

    field: arguments.Field
    offset: int
    reference: int
    extents: tuple[int, ...]
    structure: type[StructureObject] | None

    @property
    def references(self) -> int:
        """The number of pointers in one item."""
        if self.structure is not None:
            return self.structure.__references__
        return int(self.field.parameter.kind == "pointer")

    @property
    def items(self) -> Iterator[Member]:
        """The items of an array."""
        extent, *extents = self.extents
        inner = 1
        for each in extents:
            inner *= each
        for index in range(extent):
            yield self._replace(
                offset=self.offset + index * inner * self.field.parameter.size,
                reference=self.reference + index * inner * self.references,
                extents=tuple(extents),
            )


class StructureObject(_Memory):
    """A structure of C++. Its attributes are the members; those that are not given are 0.

    A pointer takes an array in device memory, which the structure keeps alive, or an address. A launch counts
    these arrays as arguments: they decide on the GPU and the stream.
    """

    __slots__ = ()

    __size__: int
    __references__: int
    __is_opaque__: bool
    __structure__: Structure
    __members__: Mapping[str, Member]
    __pointers__: Sequence[str]

    def __assign__(self, name: str, value: object) -> None:
        """Assign any value to a member. Raises :class:`~cuda_ext.errors.ArgumentError` if it does not fit."""
        members = type(self).__members__
        if name not in members:
            raise ArgumentError(
                f"{type(self).__name__} has no member {name!r}",
                remedy=did_you_mean(name, members) or f"its members are {', '.join(members)}",
            )
        try:
            _assign(self, members[name], value)
        except ArgumentError as error:
            error.where = f"{type(self).__name__}.{name}"
            raise

    def __read__(self, name: str) -> Any:
        """Return the value of a member."""
        return _read(self, type(self).__members__[name], *self.__content__())

    @classmethod
    def __converter__(cls, convert: Callable[[object], Any]) -> Callable[[object], Any]:
        """Return the conversion of arguments: structures, their members by name, or what `convert` takes."""

        def convert_all(value: object) -> Any:
            if isinstance(value, (StructureObject, Mapping)) or hasattr(value, "_asdict"):
                return pack_structure(as_structure(cls, value))
            return convert(value)

        return convert_all

    def __copy__(self) -> Self:
        copied = type(self)()
        _copy(copied, 0, 0, self)
        return copied

    def __reduce_ex__(self, _protocol: object) -> NoReturn:
        raise TypeError(f"cannot pickle {type(self).__name__}, which may hold addresses of this process")

    def __dir__(self) -> list[str]:
        return list(type(self).__members__)

    def __repr__(self) -> str:
        values = (f"{name}={getattr(self, name)!r}" for name in type(self).__members__)
        return f"{type(self).__name__}({', '.join(values)})"


class StructureBytes(bytes):
    """The bytes of a structure, for a launch. ``arrays`` are those whose addresses it has, by member.

    ``hides_address`` is True if there may be other addresses.
    """

    arrays: Mapping[str, DeviceMemory]
    hides_address: bool


def make_class(
    structure: Structure, module: str, find: Callable[[str], type[StructureObject] | None]
) -> type[StructureObject]:
    """Make the class of `structure` in `module`; `find` returns the class of a member's type, if known."""
    namespace: dict[str, Any] = {"__slots__": (), "__module__": module, "__structure__": structure}
    members: dict[str, Member] = {}
    fields: list[Field] = []
    pointers: list[str] = []
    for parameter in structure.fields:
        nested = find(parameter.type) if parameter.kind == "struct" else None
        item = parameter._replace(size=parameter.item_size, extents=())
        (of_item,) = arguments.make_fields([item])
        member = Member(of_item, parameter.offset, len(pointers), parameter.extents, nested)
        members[parameter.name] = member
        pointers += _pointers(parameter.name, member)
        field = Field(*_describe(parameter, member))
        fields.append(field)
        name = parameter.name
        namespace[name] = field
        if keyword.iskeyword(name):
            namespace.setdefault(f"{name}_", field)
    namespace |= {"__size__": structure.size, "__references__": len(pointers)}
    namespace["__is_opaque__"] = any(map(_is_opaque, members.values()))
    namespace |= {"__members__": members, "__pointers__": pointers, "__doc__": structure.declaration}
    made: type[StructureObject] = type(structure.name, (StructureObject,), namespace)
    made.__call_directly__(tuple(fields))
    return made


def _is_opaque(member: Member) -> bool:
    """Return True if a member is no pointer, and may hold addresses."""
    if member.structure is not None:
        return member.structure.__is_opaque__
    parameter = member.field.parameter
    return parameter.kind in ("struct", "opaque") and may_hold_address(parameter.type, parameter.size)


def _describe(parameter: Parameter, member: Member) -> tuple[tuple[Any, ...], int, int, bool]:
    """Describe a member for C."""
    described = None if member.extents else fast_launch.describe(parameter)
    if described is None:
        return (parameter.name, "s", parameter.size, ()), member.offset, -1, True
    if member.structure is not None:
        return (*described, member.structure), member.offset, member.reference, False
    reference = member.reference if parameter.kind == "pointer" else -1
    return described, member.offset, reference, False


def _pointers(path: str, member: Member) -> Iterator[str]:
    """List the pointers of a member by their paths, in the order of their references."""
    if member.extents:
        for index, item in enumerate(member.items):
            yield from _pointers(f"{path}[{index}]", item)
    elif member.structure is not None:
        yield from (f"{path}.{inner}" for inner in member.structure.__pointers__)
    elif member.references:
        yield path


def _assign(target: StructureObject, member: Member, value: object) -> None:
    """Assign `value` to a `member` of `target`."""
    parameter = member.field.parameter
    if member.extents:
        copied = copy(target)  # a wrong item leaves the others as they are
        _assign_array(copied, member, value)
        _copy(target, 0, 0, copied)
        return
    if member.structure is not None:
        _copy(target, member.offset, member.reference, as_structure(member.structure, value))
        return
    converted = member.field.value(value)
    is_array = isinstance(converted, DeviceMemory) and converted.stream is not None
    if isinstance(converted, DeviceMemory):
        converted = converted.address
    target.__write__(member.offset, struct.pack(f"<{member.field.format}", converted))
    if parameter.kind == "pointer":
        if is_array:
            fast_launch.learn(value)
        target.__refer__(member.reference, value if is_array else converted or None)


def _assign_array(target: StructureObject, member: Member, value: Any) -> None:
    parameter, extent = member.field.parameter, member.extents[0]
    if isinstance(value, bytes) and parameter.size == 1 and len(member.extents) == 1 and len(value) == extent:
        target.__write__(member.offset, value)
        return
    if callable(tolist := getattr(value, "tolist", None)) and device_memory(value) is None:
        value = tolist()
    if not isinstance(value, (list, tuple)) or len(value) != extent:
        found = format_count(len(value), "item") if isinstance(value, (list, tuple)) else type(value).__name__
        raise ArgumentError(f"expected {extent} items of {parameter.type} in a list, found {found}")
    for item, each in zip(member.items, value, strict=True):
        _assign(target, item, each)


def _copy(target: StructureObject, offset: int, reference: int, source: StructureObject) -> None:
    content, objects = source.__content__()
    target.__write__(offset, content)
    for number, array in enumerate(objects, reference):
        target.__refer__(number, array)


def _read(source: StructureObject, member: Member, content: bytes, objects: Sequence[object]) -> Any:
    if member.extents:
        return tuple(_read(source, item, content, objects) for item in member.items)
    if member.structure is not None:
        return source.__view__(member.structure, member.offset, member.reference)
    parameter = member.field.parameter
    if parameter.kind == "pointer":
        return objects[member.reference]
    own = content[member.offset : member.offset + parameter.size]
    if items := parameter.vector_items:
        fields = zip(items, arguments.make_fields(items), strict=True)
        return tuple(_read_number(i, f.format, own[i.offset : i.offset + i.size]) for i, f in fields)
    return _read_number(parameter, member.field.format, own)


def _read_number(parameter: Parameter, format_: str, own: bytes) -> Any:
    """Read a value that is no pointer and no known structure from its bytes."""
    (value,) = struct.unpack(f"<{format_}", own)
    if parameter.kind == "bool":
        return bool(value)
    if parameter.kind == "enum" and isinstance(value, int):  # its underlying type may have a sign
        return int.from_bytes(own, "little", signed=True)
    if parameter.type == "__half":
        return struct.unpack("<e", own)[0]
    if parameter.type == "__nv_bfloat16":
        return struct.unpack("<f", b"\0\0" + own)[0]
    if is_complex(parameter.type):
        return complex(*struct.unpack("<dd" if parameter.size == 16 else "<ff", own))
    if parameter.kind in ("integer", "unsigned") and isinstance(value, bytes):
        return int.from_bytes(own, "little", signed=parameter.kind == "integer")
    return value


def as_structure(kind: type[StructureObject], value: object) -> StructureObject:
    """Return `value` as a structure of this class: it is one, or has its members by name.

    Raises :class:`~cuda_ext.errors.ArgumentError` for anything else.
    """
    if isinstance(value, kind):
        return value
    if callable(named := getattr(value, "_asdict", None)):
        value = named()
    if isinstance(value, Mapping):
        return kind(**value)
    found = type(value)
    own = f"{found.__module__}.{found.__qualname__}" if issubclass(found, StructureObject) else found.__name__
    raise ArgumentError(
        f"expected {kind.__module__}.{kind.__name__}, found {own}",
        remedy=f"make it with {kind.__module__}, or pass a dict of its members",
    )


def pack_structure(structure: StructureObject) -> StructureBytes:
    """Return the bytes of `structure`, and its arrays, for a launch."""
    content, objects = structure.__content__()
    packed = StructureBytes(content)
    pairs = zip(type(structure).__pointers__, objects, strict=True)
    found = (
        (path, device_memory(each)) for path, each in pairs if each is not None and type(each) is not int
    )
    packed.arrays = {path: memory for path, memory in found if memory is not None}
    packed.hides_address = _hides_address(type(structure), content, objects)
    return packed


def _hides_address(kind: type[StructureObject], content: bytes, objects: Sequence[object]) -> bool:
    def hides(member: Member) -> bool:
        parameter = member.field.parameter
        if member.extents:
            return any(map(hides, member.items))
        own = content[member.offset : member.offset + parameter.size]
        if member.structure is not None:
            end = member.reference + member.references
            return _hides_address(member.structure, own, objects[member.reference : end])
        if parameter.kind == "pointer":
            return type(objects[member.reference]) is int
        return _is_opaque(member) and any(own)

    return any(map(hides, kind.__members__.values()))
