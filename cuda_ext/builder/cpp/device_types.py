"""The types of a call's parameters in C++, and the names that a header may declare."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from ctypes import c_long, sizeof
from typing import NamedTuple

from cuda_ext.builder.cpp.template_arguments import FUNDAMENTAL
from cuda_ext.facts.kernels import Parameter
from cuda_ext.facts.structures import Structure

# Names that the header itself uses, also in nested namespaces.
_RESERVED = frozenset(
    """
    cuda_ext_headers cuda_ext_kernel cuda_ext_kernels cuda_ext_library cuda_ext_module cuda_ext_sources
    """.split()  # noqa: SIM905
)
_KEYWORDS = frozenset(
    """
    alignas alignof and and_eq asm auto bitand bitor bool break case catch char char16_t char32_t char8_t
    class co_await co_return co_yield compl concept const const_cast consteval constexpr constinit continue
    decltype default delete do double dynamic_cast else enum explicit export extern false float for friend
    goto if inline int long mutable namespace new noexcept not not_eq nullptr operator or or_eq private
    protected public register reinterpret_cast requires return short signed sizeof static static_assert
    static_cast struct switch template this thread_local throw true try typedef typeid typename typeof union
    unsigned using virtual void volatile wchar_t while xor xor_eq
    """.split()  # noqa: SIM905
)
# Macros without parameters of compilers and common headers.
_MACROS = frozenset(
    """
    BUFSIZ CONST DELETE DOMAIN EOF ERROR FALSE HUGE_VAL I IN INFINITY NAN NULL OPTIONAL OUT OVERFLOW RAND_MAX
    TRUE UNDERFLOW VOID complex emit errno far foreach forever i386 imaginary interface linux near signals
    slots small stderr stdin stdout unix
    """.split()  # noqa: SIM905
)


def identifier(name: str) -> str:
    """Return `name`, with an underscore appended if C++, a common macro or the header itself uses it."""
    return f"{name}_" if name in _KEYWORDS or name in _MACROS or name in _RESERVED else name


def is_free(name: str) -> bool:
    """Return True if neither C++ nor a common macro uses `name`."""
    return name not in _KEYWORDS and name not in _MACROS


_INTEGER_BITS = {1: 8, 2: 16, 4: 32, 8: 64}
# A type name that every compiler prints alike: no lambda, and no enumerator among its template arguments.
_NAMED = re.compile(r"(?!(?:struct|nullptr_t)\b)[^\W\d]\w*(?: \w+)*(?:::\w+)*(?:<[^()'{}]*>)?(?:::\w+)*")


class DeviceType(NamedTuple):
    """A class that stands for a type of device code; size and alignment are 0 if they are not known.

    ``members`` are those of a structure that the host can name.
    """

    identifier: str
    name: str
    size: int
    alignment: int
    members: tuple[Parameter, ...] = ()


class DeviceTypes:
    """Types of device code that a header cannot name, each with a class that stands for it."""

    def __init__(self, parameters: Iterable[Parameter] = (), structures: Iterable[Structure] = ()) -> None:
        # Structures of one name may differ by source.
        self._structures: dict[str, list[Structure]] = {}
        for structure in structures:
            self._structures.setdefault(structure.name, []).append(structure)
        self._sizes = {p.type: (p.size, p.alignment) for p in parameters if p.kind in ("struct", "enum")}
        self._known: dict[tuple[str, int, int], DeviceType] = {}

    def __iter__(self) -> Iterator[DeviceType]:
        return iter(self._known.values())

    def parameter(self, parameter: Parameter) -> str:
        """Return the type of a call's parameter for `parameter` of a kernel."""
        size = parameter.size
        match parameter.kind:
            case "pointer":
                const = "const " if parameter.const else ""
                return f"Pointer<{const}{self.element(parameter.element or 'void')}>"
            case "bool" if size == 1:
                return "Value<bool>"
            case "integer" | "unsigned" if parameter.type == "char":
                return "Value<char>"  # signed on some systems only
            case "integer" | "unsigned" as kind if size in _INTEGER_BITS:
                sign = "u" if kind == "unsigned" else ""
                return f"Value<::std::{sign}int{_INTEGER_BITS[size]}_t>"
            case "float" if size in (4, 8):
                return "Value<float>" if size == 4 else "Value<double>"
            case "enum":
                return f"Enumerator<{self._identifier(parameter.type, size, 0)}>"
            case "struct":
                return f"Structure<{self._identifier(parameter.type, size, parameter.alignment)}>"
            case _ if _NAMED.fullmatch(parameter.type) and parameter.type not in FUNDAMENTAL:
                return f"Structure<{self._identifier(parameter.type, size, 0)}>"  # such as __int128
            case _:
                return f"Opaque<{size}>"

    def element(self, name: str, size: int = 0, alignment: int = 0) -> str:
        """Return the type `name`, of a variable or behind a pointer, as far as the host can express it."""
        if name.endswith("long"):
            # Device code of Linux may be in a program for Windows, where a long has 32 bits.
            bits = 64 if name.endswith("long long") else 8 * (size or sizeof(c_long))
            sign = "u" if name.startswith("unsigned") else ""
            return f"::std::{sign}int{bits}_t"
        if name in FUNDAMENTAL and name != "long double":
            return name
        if name.removesuffix(" const").endswith("*"):
            return "Pointee"
        if name.endswith((")", "]")) or name in ("struct", "long double", "__int128", "unsigned __int128"):
            return "void"
        known = self._sizes.get(name, (size, alignment))
        return self._identifier(name, *(known if size in (0, known[0]) else (size, alignment)))

    def _members(self, name: str, size: int) -> Iterator[Parameter]:
        """List the members of the structure `name` of this size whose names C++ and macros leave alone."""
        structures = self._structures.get(name, ())
        if len(structures) == 1 and structures[0].size == size:
            yield from (each for each in structures[0].fields if is_free(each.name))

    def _identifier(self, name: str, size: int, alignment: int) -> str:
        key = (name, size, alignment)
        if key not in self._known:
            identifier = "type_" + re.sub(r"\W+", "_", name).strip("_")
            while any(each.identifier == identifier for each in self):
                identifier += "_"
            known_name = name if _NAMED.fullmatch(name) else ""
            members = tuple(self._members(name, size))
            self._known[key] = DeviceType(identifier, known_name, size, alignment, members)
        return self._known[key].identifier
