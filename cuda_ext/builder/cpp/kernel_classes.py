"""How a kernel is called in C++: a class with a parameter for each of the kernel's own."""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass, field
from functools import cached_property

from cuda_ext.builder.cpp.template_arguments import FUNDAMENTAL
from cuda_ext.formats.mangling import template_arguments
from cuda_ext.manifest import Kernel, Parameter

__all__ = ["RESERVED", "KernelClass", "identifier"]

# Names that a header declares in each of its namespaces.
RESERVED = ("cuda_ext_module", "cuda_ext_library", "cuda_ext_kernel", "cuda_ext_kernels")
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
# Macros without parameters, of compilers and common headers.
_MACROS = frozenset(
    """
    BUFSIZ CONST DELETE DOMAIN EOF ERROR FALSE HUGE_VAL I IN INFINITY NAN NULL OPTIONAL OUT OVERFLOW RAND_MAX
    TRUE UNDERFLOW VOID complex emit errno far foreach forever i386 imaginary interface linux near signals
    slots small stderr stdin stdout unix
    """.split()  # noqa: SIM905
)


@dataclass(frozen=True, eq=False)
class KernelClass:
    """The class of `kernel`, whose position in the manifest is ``index``; ``source`` is its unit.

    ``elements`` has the names of classes that stand for types of device code; :attr:`types` adds to it.
    """

    index: int
    kernel: Kernel
    source: str
    elements: dict[str, str] = field(default_factory=dict)

    @cached_property
    def signature(self) -> str:
        expression = self.kernel.expression
        # The expression of an overload has its types, even if a cast chooses it.
        cast = re.fullmatch(r"\w+_cast<.*>\((.*)\)", expression)
        name = cast[1] if cast else re.sub(r"(?<=[\w>])\(.*\)$", "", expression)
        return f"{name}({', '.join(map(str, self.kernel.parameters))})"

    @cached_property
    def types(self) -> tuple[str, ...]:
        """The types of the parameters of a call."""
        given = frozenset(template_arguments(self.kernel.lowered) or ())
        return tuple(_type(parameter, self.elements, given) for parameter in self.kernel.parameters)


def identifier(name: str) -> str:
    """`name`, with an underscore appended if C++, a common macro or the header itself uses it."""
    return f"{name}_" if name in _KEYWORDS or name in _MACROS or name in RESERVED else name


_INTEGER_BITS = {1: 8, 2: 16, 4: 32, 8: 64}


def _type(parameter: Parameter, elements: dict[str, str], given: Collection[object]) -> str:
    """The parameter type of a call for `parameter` of a kernel whose template arguments are `given`."""
    size = parameter.size
    match parameter.kind:
        case "pointer":
            return f"Pointer<{'const ' * parameter.const}{_element(parameter.element or 'void', elements)}>"
        case "bool" if size == 1:
            return "Value<bool>"
        case "integer" | "unsigned" if parameter.type == "char":
            return "Value<char>"  # signed on some systems only
        case "integer" | "unsigned" as kind if size in _INTEGER_BITS:
            return f"Value<::std::{'u' * (kind == 'unsigned')}int{_INTEGER_BITS[size]}_t>"
        case "float" if size in (4, 8):
            return "Value<float>" if size == 4 else "Value<double>"
        case "enum":
            return f"Enumerator<{size}>"
        case "struct":
            # A type that users name between angle brackets is the one that they pass.
            named = parameter.type in given and _CLASS.fullmatch(parameter.type)
            return f"Structure<{size}{f', {_element(parameter.type, elements)}' if named else ''}>"
        case _:
            return f"Opaque<{size}>"


_CLASS = re.compile(r"(?!(?:struct|__int128|nullptr_t)$)[^\W\d]\w*(?:::\w+)*(?:<.*>)?(?:::\w+)*")


def _element(element: str, elements: dict[str, str]) -> str:
    """The type that a pointer points to, as far as the host can express it."""
    if element in FUNDAMENTAL and element != "long double":
        return element
    if element.removesuffix(" const").endswith("*"):
        return "Pointee"
    if not _CLASS.fullmatch(element):
        return "void"
    if element not in elements:
        name = "type_" + re.sub(r"\W+", "_", element)
        while name in elements.values():
            name += "_"
        elements[element] = name
    return elements[element]
