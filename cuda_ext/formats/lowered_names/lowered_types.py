"""Types and values as lowered names spell them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

# The built-in types by their codes, and the codes of integers.
BUILTIN = {
    "v": "void",
    "w": "wchar_t",
    "b": "bool",
    "c": "char",
    "a": "signed char",
    "h": "unsigned char",
    "s": "short",
    "t": "unsigned short",
    "i": "int",
    "j": "unsigned int",
    "l": "long",
    "m": "unsigned long",
    "x": "long long",
    "y": "unsigned long long",
    "n": "__int128",
    "o": "unsigned __int128",
    "f": "float",
    "d": "double",
    "e": "long double",
    "g": "__float128",
    "Ds": "char16_t",
    "Di": "char32_t",
    "Du": "char8_t",
    "DF16_": "_Float16",
    "DF16b": "__bf16",
}
INTEGERS = set("wbcahstijlmxyno")


# The ends of literals, by their types.
_SUFFIXES = {
    "int": "",
    "unsigned int": "u",
    "long": "l",
    "unsigned long": "ul",
    "long long": "ll",
    "unsigned long long": "ull",
}


class LoweredValue(NamedTuple):
    """A value; its number is ``None`` unless it is an integer. Its type may be an enumeration.

    The spelling of an integer does not show its ``type``, which others do not have.
    """

    number: int | None
    is_enumerator: bool
    spelling: str = ""
    type: str = ""

    @property
    def literal(self) -> str:
        """The value in C++ as an expression of its type.

        >>> LoweredValue(3, False, "3", "unsigned int").literal, LoweredValue(97, False, "97", "char").literal
        ('3u', "'a'")
        """
        if self.type in ("", "bool"):
            return self.spelling
        if self.type in _SUFFIXES:
            return self.spelling + _SUFFIXES[self.type]
        character = chr(self.number) if self.number is not None and 32 <= self.number < 127 else "'"
        if self.type == "char" and character not in "'\\":
            return f"'{character}'"
        return f"static_cast<{self.type}>({self.spelling})"

    @property
    def has_type(self) -> bool:
        """True if its spelling shows its type."""
        return self.literal == self.spelling


@dataclass(frozen=True, slots=True)
class LoweredType:
    """A type, spelled as ``left`` and ``right`` of what it declares: ``float(*`` and ``)[9]``.

    ``target`` is the type that a pointer points to, the element of an array, or the result of a function.
    ``arguments`` are the template arguments. A ``dependent`` type is a member of a template argument and may
    be any type. A type is ``of_parameter`` if an argument of the kernel's template occurs in it. A ``simple``
    type consists of names, pointers and qualifiers.
    """

    kind: Literal["builtin", "named", "pointer", "array", "function", "other"]
    left: str
    right: str = ""
    target: LoweredType | None = None
    arguments: tuple[LoweredValue | LoweredType, ...] = ()
    qualifiers: tuple[str, ...] = ()
    is_dependent: bool = False
    is_simple: bool = True
    of_parameter: bool = False

    @property
    def spelling(self) -> str:
        """The type in C++, without typedefs: ``const float*``, ``float[9]``, ``void(*)(int)``."""
        return self._qualified(self.qualifiers)

    @property
    def unqualified(self) -> str:
        """The type without its own qualifiers. The qualifiers of an array belong to its elements."""
        return self._qualified(self.qualifiers if self.kind == "array" else ())

    @property
    def is_const(self) -> bool:
        return "const" in self.qualifiers

    def _qualified(self, words: Sequence[str]) -> str:
        after = self.left.endswith(("*", "&"))
        return " ".join([self.left, *words] if after else [*words, self.left]) + self.right


def instantiate(template: LoweredType, arguments: tuple[LoweredValue | LoweredType, ...]) -> LoweredType:
    """Give the `template` its `arguments`."""
    types = [a for a in arguments if isinstance(a, LoweredType)]
    return replace(
        template,
        left=f"{template.left}<{', '.join(a.spelling for a in arguments)}>",
        arguments=arguments,
        is_simple=False,
        is_dependent=template.is_dependent or any(t.is_dependent for t in types),
        of_parameter=template.of_parameter or any(t.of_parameter for t in types),
    )


def point_to(target: LoweredType, sign: str) -> LoweredType:
    """Return a pointer or reference to `target`."""
    left, right = target.spelling.removesuffix(target.right), target.right
    if target.kind in ("array", "function"):
        left, right = f"{left}(", f"){right}"
    left += sign
    return replace(target, kind="pointer", left=left, right=right, target=target, arguments=(), qualifiers=())
