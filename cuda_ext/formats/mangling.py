"""Read lowered names: their namespaces and template arguments.

Lowered names are mangled by the Itanium C++ ABI (section 5.1), of which this reads what names of kernels and
variables commonly contain. Nothing beyond that is guessed.
"""

from __future__ import annotations

import re
from typing import NamedTuple, TypeAlias

__all__ = [
    "LoweredArgument",
    "LoweredValue",
    "namespaces",
    "nested_name",
    "template_arguments",
]


class LoweredValue(NamedTuple):
    """A value; its number is ``None`` unless it is an integer. Its type may be an enumeration."""

    number: int | None
    is_enumerator: bool


# A value, or the spelling of a type: empty unless it consists of names, pointers and qualifiers.
LoweredArgument: TypeAlias = str | LoweredValue


def namespaces(lowered: str) -> tuple[str, ...]:
    """List the namespaces of a lowered name, outermost first; anonymous ones are left out.

    >>> namespaces("_ZN2ns5inner6reduceIfLi128EEEvxPKf")
    ('ns', 'inner')
    >>> namespaces("_Z4axpyIfEviT_PKS0_PS0_"), namespaces("histogram")
    ((), ())
    """
    reader = _Reader(lowered)
    names = reader.plain_names() if reader.take("_ZN") else []
    return tuple(name for name in names[:-1] if not _is_internal(name))


def nested_name(lowered: str) -> str:
    """Return the C++ name of what is neither a function nor a template; anything else stays lowered.

    >>> nested_name("_ZN2ns7weightsE"), nested_name("_Z4axpyi")
    ('ns::weights', '_Z4axpyi')
    """
    reader = _Reader(lowered)
    # Names in std stay lowered, as the C++ loader leaves them.
    if reader.take("_ZN") and not reader.peek("St"):
        names = reader.plain_names()
        if reader.rest == "E":
            return "::".join(name for name in names if not _is_internal(name))
    return lowered


def template_arguments(lowered: str) -> tuple[LoweredArgument, ...] | None:
    """List the arguments of a kernel template, packs expanded; ``None`` where they cannot be read.

    >>> template_arguments("_ZN2ns6reduceIdLi256EEEvPKT_")
    ('double', LoweredValue(number=256, is_enumerator=False))
    >>> template_arguments("histogram") is None
    True
    """
    try:
        return _Reader(lowered).arguments_of_kernel()
    except ValueError:
        return None


def _is_internal(name: str) -> bool:
    """Whether `name` stands for an anonymous namespace, or for a translation unit."""
    return name.startswith(("_GLOBAL__N_", "_INTERNAL_"))


_BUILTIN: dict[str, str | None] = {
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
    **dict.fromkeys(("Dn", "Ds", "Di", "Du", "DF16_", "DF16b", "g", "z")),
}
_INTEGERS = set("wbcahstijlmxyno")
_DECORATIONS = {"P": "*", "R": "&", "O": "&&"}


_NAME = re.compile(r"(?:St)?L?[0-9]+")


class _Reader:
    """Reads a lowered name from left to right."""

    def __init__(self, lowered: str) -> None:
        self._text = lowered
        self._at = 0

    @property
    def rest(self) -> str:
        return self._text[self._at :]

    def plain_names(self) -> list[str]:
        """Read the parts of a nested name up to the first that is more than a name."""
        names = []
        while _NAME.match(self._text, self._at):
            names += [*(["std"] if self.take("St") else []), self._name()]
        return names

    def arguments_of_kernel(self) -> tuple[LoweredArgument, ...] | None:
        self._match("_Z")
        if not self.take("N"):
            self.take("St")
            self._name()
            return self._arguments() if self.peek("I") else None
        arguments = None
        while not self.take("E"):
            if not self.take("St"):
                self._name()
            arguments = self._arguments() if self.peek("I") else None
        return arguments

    def _arguments(self) -> tuple[LoweredArgument, ...]:
        self._match("[IJ]")  # J begins a pack
        arguments: list[LoweredArgument] = []
        while not self.take("E"):
            if self.peek("J"):
                arguments += self._arguments()
            else:
                arguments.append(self._literal() if self.take("L") else self._type() or "")
        return tuple(arguments)

    def _literal(self) -> LoweredValue:
        if self.peek("_Z"):
            raise ValueError("an address")
        start = self._at
        self._type()
        code = self._text[start : self._at]
        sign, digits = self._match(r"(n?)([0-9a-f]*)E").groups()
        if not digits or (code in _BUILTIN and code not in _INTEGERS):
            return LoweredValue(None, False)  # a null pointer, or a floating-point number
        return LoweredValue(int(sign.replace("n", "-") + digits), code not in _BUILTIN)

    def _type(self) -> str | None:
        """Read a type; return its spelling if that is simple."""
        for code, spelling in _BUILTIN.items():
            if self.take(code):
                return spelling
        for code, sign in _DECORATIONS.items():
            if self.take(code):
                inner = self._type()
                return None if inner is None else f"{inner}{sign}"
        if self.take("K"):
            inner = self._type()
            if inner is None:
                return None
            return f"{inner} const" if inner.endswith("*") else f"const {inner}"
        return self._named_type()

    def _named_type(self) -> str | None:
        if self.take("N"):
            parts: list[str] | None = []
            while not self.take("E"):
                part = self._component()
                parts = None if part is None or parts is None else [*parts, part]
            return "::".join(parts) if parts else None
        if self.peek("S") and not self.peek("St"):
            self._component()
            return None
        std = self.take("St")
        name = self._component()
        return name if name is None or not std else f"std::{name}"

    def _component(self) -> str | None:
        """Read a part of a name with its template arguments; return ``None`` unless it is a plain name."""
        if self.take("St"):
            return "std"
        if self.peek("S"):
            self._match(r"S(?:[0-9A-Z]*_|[absiod])")
            name = None
        else:
            name = self._name()
        if self.peek("I"):
            self._arguments()
            return None
        return None if name is None or _is_internal(name) else name

    def _name(self) -> str:
        length = int(self._match(r"L?([0-9]+)")[1])
        name = self._text[self._at : self._at + length]
        self._at += length
        return name

    def peek(self, text: str) -> bool:
        return self._text.startswith(text, self._at)

    def take(self, text: str) -> bool:
        is_next = self.peek(text)
        self._at += len(text) * is_next
        return is_next

    def _match(self, pattern: str) -> re.Match[str]:
        match = re.compile(pattern).match(self._text, self._at)
        if match is None:
            raise ValueError(self.rest)
        self._at = match.end()
        return match
