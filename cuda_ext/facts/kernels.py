"""Kernels with their parameters."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias

if TYPE_CHECKING:
    import cuda_ext.facts.candidates
    import cuda_ext.facts.launches

ParameterKind: TypeAlias = Literal[
    "pointer", "integer", "unsigned", "float", "bool", "enum", "struct", "opaque"
]

LARGEST_PARAMETERS = 32_764  # the largest size of all parameters of a kernel, in bytes
_ADDRESS, _HALF = 8, 2
_SIZES_OF_KIND: Mapping[ParameterKind, tuple[int, ...]] = {
    "pointer": (_ADDRESS,),
    "bool": (1,),
    "float": (2, 4, 8),
    **dict.fromkeys(("integer", "unsigned", "enum"), (1, 2, 4, 8, 16)),
}
# Numbers that are structures in C++.
HALVES = ("__half", "__nv_bfloat16")
# The sizes of types in bytes. These words are C's.
SIZES = {
    "bool": 1,
    "char": 1,
    "signed char": 1,
    "unsigned char": 1,
    "short": 2,
    "unsigned short": 2,
    "int": 4,
    "unsigned int": 4,
    "long": 8,
    "unsigned long": 8,
    "long long": 8,
    "unsigned long long": 8,
    "float": 4,
    "double": 8,
}

# Vectors: their item types, by the names in theirs, and their names. Most kernels take none.
_HALF_VECTORS = {"__half2": "__half", "__nv_bfloat162": "__nv_bfloat16"}
_VECTOR = r"(u?(?:char|short|int|long|longlong)|float|double)([1-4])(?:_(16|32)a)?"
_ITEMS = {
    "char": "signed char",
    "uchar": "unsigned char",
    "ushort": "unsigned short",
    "uint": "unsigned int",
    "ulong": "unsigned long",
    "longlong": "long long",
    "ulonglong": "unsigned long long",
}


def split_vector(type_: str) -> tuple[str, int, int]:
    """Return the item type of a vector type, the number of items, and the largest alignment of vectors.

    >>> split_vector("float3"), split_vector("ulonglong4_32a"), split_vector("ufloat3")
    (('float', 3, 16), ('unsigned long long', 4, 32), ('ufloat3', 1, 16))
    """
    if type_ in _HALF_VECTORS:
        return _HALF_VECTORS[type_], 2, 16
    if type_ in SIZES or type_ in HALVES:
        return type_, 1, 16
    import re

    match = re.fullmatch(_VECTOR, type_)
    if match is None:
        return type_, 1, 16
    return _ITEMS.get(match[1], match[1]), int(match[2]), int(match[3] or 16)


class Parameter(NamedTuple):
    """One kernel parameter, or the element of a symbol, as the compiler sees it.

    ``type`` is the C++ type without typedefs. ``size`` and ``offset`` are in bytes. The offset is that of the
    newest cubin; other images may place parameters with an alignment above 16 bytes elsewhere. A launch needs
    no offset. ``element`` is the target type of a pointer or a tensor map, and ``const`` its qualifier.
    ``alignment`` is that of a structure, 0 if it is not known. ``opaque`` parameters come from images without
    type information: they accept any value of this size. A member of a structure may be an array with these
    ``extents``; then ``kind``, ``element``, ``const`` and ``alignment`` are those of its items.
    """

    name: str
    type: str
    kind: ParameterKind
    size: int
    offset: int
    element: str | None = None
    const: bool = False
    alignment: int = 0
    extents: tuple[int, ...] = ()

    @property
    def item_size(self) -> int:
        """The size of an item of an array; of another value, its own."""
        count = 1
        for extent in self.extents:
            count *= extent
        return self.size // max(count, 1)

    @property
    def has_possible_size(self) -> bool:
        """True if values of its kind have this size. Those of damaged data may have others."""
        size = self.item_size
        is_half = self.type in HALVES
        return size in _SIZES_OF_KIND.get(self.kind, (size,)) and (size == _HALF or not is_half) and size > 0

    @property
    def is_integer(self) -> bool:
        """True if its values are integers of at most 64 bits."""
        return self.kind in ("integer", "unsigned") and self.size <= 8

    @property
    def vector_items(self) -> tuple["Parameter", ...]:
        """The items of one of CUDA's vectors, such as ``float4``; nothing for other types."""
        type_, count, _ = split_vector(self.type) if self.kind == "struct" else (self.type, 0, 0)
        if type_ == self.type:
            return ()
        kind: ParameterKind = "unsigned" if type_.startswith("unsigned") else "integer"
        if type_ in HALVES or type_ in ("float", "double"):
            kind = "struct" if type_ in HALVES else "float"
        size = SIZES.get(type_, _HALF)
        return tuple(Parameter(f"{self.name}.{'xyzw'[i]}", type_, kind, size, i * size) for i in range(count))

    @property
    def is_comparable(self) -> bool:
        """True if conditions of variants may compare its values: integers, and the alignment of addresses."""
        return self.is_integer or self.kind == "pointer"

    def __str__(self) -> str:
        name = self.name + "".join(f"[{extent}]" for extent in self.extents)
        start = self.type.find("(*")
        end = self.type.find(")", start)
        if start < 0 or end < 0 or self.type.count("<", 0, start) > self.type.count(">", 0, start):
            return f"{self.type} {name}"
        # In a pointer to a function or an array, the name follows the stars and qualifiers.
        space = " " if self.type[end - 1].isalpha() else ""
        return f"{self.type[:end]}{space}{name}{self.type[end:]}"


class Kernel(NamedTuple):
    """A kernel or one instantiation of a kernel template.

    ``expression`` is its C++ name expression (``ns::axpy<float>``), ``lowered`` its lowered name in all
    images whose ``names`` do not map it to another. ``parameters`` are the arguments of a call; ``hidden``
    parameters lie before, between and after them. ``constants`` are values of parameters that it was compiled
    for, as Python spells them, or template arguments by the names of their parameters: types as in C++,
    enumerators as ``(Mode)1``, and values of ``auto`` parameters with their types, as ``3u``. A call may
    give them by name to choose the kernel, or at their positions in ``order``, the arguments of the function.
    The constants in ``configuration`` differ among candidates. ``options`` are those of the front-end, such
    as ``num_warps``, which a call may repeat. If a call does not give a constant in ``derived``, a launch
    takes the kernel with the least whose terms all hold. A call may leave out parameters in ``defaults``.
    """

    expression: str
    lowered: str
    unit: int
    parameters: tuple[Parameter, ...]
    hidden: tuple["cuda_ext.facts.launches.HiddenParameter", ...] = ()
    constants: Mapping[str, str] = {}
    configuration: Mapping[str, str] = {}
    order: tuple[str, ...] = ()
    options: Mapping[str, str] = {}
    derived: Mapping[str, tuple["cuda_ext.facts.candidates.Term", ...]] = {}
    defaults: Mapping[str, str] = {}

    def __hash__(self) -> int:
        return hash((self.expression, self.parameters))  # a mapping has no hash

    @property
    def sizes(self) -> tuple[int, ...]:
        """The sizes of all parameters in bytes, in their order."""
        sizes = [parameter.size for parameter in self.parameters]
        for parameter in self.hidden:
            sizes.insert(parameter.position, parameter.size)
        return tuple(sizes)

    @property
    def is_launchable(self) -> bool:
        """True if a launch can pass and derive its parameters. Those of damaged data may be others."""
        arrays = {parameter.name for parameter in self.parameters if parameter.element}
        positions = [hidden.position for hidden in self.hidden]
        count = len(self.parameters) + len(self.hidden)
        return (
            positions == sorted({*positions}.intersection(range(count)))
            and all(p.has_possible_size and not p.extents for p in self.parameters)
            and min(self.sizes, default=1) > 0
            and sum(self.sizes) <= LARGEST_PARAMETERS
            and all(hidden.is_derivable(arrays) for hidden in self.hidden)
        )

    @property
    def is_in_order(self) -> bool:
        """True if arguments by position are always those of the function.

        Otherwise they may leave out constants. With defaults, that might mean something else.
        """
        names = [name for name in self.order if name in self.constants or name in self.derived]
        return bool(self.defaults) and names != [*self.order[len(self.order) - len(names) :]]

    @property
    def name(self) -> str:
        """The expression without the condition of a specialised kernel."""
        return self.expression.partition(" if ")[0]

    @property
    def signature(self) -> str:
        """The kernel's declaration in C++, followed by the condition of a specialised kernel."""
        name, space, condition = self.expression.partition(" if ")
        return f"{name}({', '.join(map(str, self.parameters))}){space}{condition}"
