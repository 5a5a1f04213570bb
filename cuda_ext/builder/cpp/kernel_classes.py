"""How a kernel is called in C++: a class with a parameter for each of the kernel's own."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from cuda_ext.builder.cpp.argument_ids import FUNDAMENTAL
from cuda_ext.manifest import Kernel, Parameter

__all__ = ["ORIGINS", "RESERVED", "KernelClass", "fill_lines", "identifier"]

_WIDTH = 110

# Names that a header declares in each of its namespaces.
RESERVED = ("cuda_ext_module", "cuda_ext_library", "cuda_ext_kernels")
# The namespaces of the names that the classes use.
ORIGINS = {
    "::cuda_ext::": (
        *("Class", "Enumerator", "LaunchConfig", "Opaque", "Pointee", "Pointer", "Result", "StaticKernel"),
        *("Structure", "Value", "named_type", "type_id", "value_id"),
    ),
    "::std::": tuple(f"{u}int{bits}_t" for u in ("", "u") for bits in (8, 16, 32, 64)),
}
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
    """The class of `kernel`, whose position in the manifest is ``index``; ``source`` is its unit."""

    index: int
    kernel: Kernel
    source: str

    @property
    def name(self) -> str:
        return f"kernel_{self.index}"

    @cached_property
    def signature(self) -> str:
        expression = self.kernel.expression
        # The expression of an overload has its types, even if a cast chooses it.
        cast = re.fullmatch(r"\w+_cast<.*>\((.*)\)", expression)
        name = cast[1] if cast else re.sub(r"(?<=[\w>])\(.*\)$", "", expression)
        return f"{name}({', '.join(map(str, self.kernel.parameters))})"

    @cached_property
    def parameters(self) -> tuple[tuple[str, str], ...]:
        """The types and names; a parameter without a name is named after its position."""
        types: dict[str, str] = {}
        for position, parameter in enumerate(self.kernel.parameters):
            name = _parameter_name(parameter.name, position)
            while name in types:
                name += "_"
            types[name] = _type(parameter)
        return tuple((type_, name) for name, type_ in types.items())

    @property
    def types(self) -> tuple[str, ...]:
        return tuple(type_ for type_, _ in self.parameters)

    def function(self, head: str, tail: str, body: str) -> str:
        """A function that begins with `head` and passes its parameters to `body`."""
        takes = ["const LaunchConfig& config", *(f"{type_} {name}" for type_, name in self.parameters)]
        names = ["config", *(name for _, name in self.parameters)]
        whole = f"  {head}({', '.join(takes)}) {tail} {{ {body}({', '.join(names)}); }}"
        if len(whole) <= _WIDTH:
            return whole
        first = fill_lines(f"  {head}(", takes, f") {tail} {{")
        return f"{first}\n{fill_lines(f'    {body}(', names, ');')}\n  }}"


def identifier(name: str) -> str:
    """`name`, with an underscore appended if C++, a common macro or the header itself uses it."""
    return f"{name}_" if name in _KEYWORDS or name in _MACROS or name in RESERVED else name


def _parameter_name(name: str, position: int) -> str:
    if not name.isidentifier():
        return f"arg{position}"
    ours = name == "config" or any(name in names for names in ORIGINS.values())
    return f"{name}_" if ours else identifier(name)


_INTEGER_BITS = {1: 8, 2: 16, 4: 32, 8: 64}


def _type(parameter: Parameter) -> str:
    """The parameter type of a call for `parameter`."""
    size = parameter.size
    match parameter.kind:
        case "pointer":
            return f"Pointer<{'const ' * parameter.const}{_element(parameter.element or 'void')}>"
        case "bool" if size == 1:
            return "Value<bool>"
        case "integer" | "unsigned" if parameter.type == "char":
            return "Value<char>"  # signed on some systems only
        case "integer" | "unsigned" as kind if size in _INTEGER_BITS:
            return f"Value<{'u' * (kind == 'unsigned')}int{_INTEGER_BITS[size]}_t>"
        case "float" if size in (4, 8):
            return "Value<float>" if size == 4 else "Value<double>"
        case "enum":
            return f"Enumerator<{size}>"
        case "struct":
            return f"Structure<{size}>"
        case _:
            return f"Opaque<{size}>"


_CLASS = re.compile(r"(?!(?:struct|__int128|nullptr_t)$)[^\W\d]\w*(?:::\w+)*(?:<.*>)?(?:::\w+)*")


def _element(element: str) -> str:
    """The type that a pointer points to, as far as the host can express it."""
    if element in FUNDAMENTAL and element != "long double":
        return element
    if element.removesuffix(" const").endswith("*"):
        return "Pointee"
    return "Class" if _CLASS.fullmatch(element) else "void"


def fill_lines(head: str, items: Sequence[str], tail: str) -> str:
    """`items` between `head` and `tail`, filled into lines."""
    indent = " " * len(head)
    lines = [head]
    for item in [*(f"{item}," for item in items[:-1]), f"{items[-1]}{tail}"]:
        space = "" if lines[-1] == head else " "
        if len(lines[-1]) + len(space) + len(item) <= _WIDTH:
            lines[-1] += space + item
        else:
            lines.append(indent + item)
    return "\n".join(lines)
