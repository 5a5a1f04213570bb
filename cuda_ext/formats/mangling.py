"""The template arguments in a lowered name, which tell types from values and know what typedefs stand for.

That is the Itanium C++ ABI, section 5.1.5, as far as kernels commonly need it. What is beyond it is not
guessed: nothing is told then.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeAlias

__all__ = ["LoweredArgument", "LoweredType", "LoweredValue", "template_arguments"]


@dataclass(frozen=True, slots=True)
class LoweredType:
    """A type, and how it is spelled; ``None`` where that is more than names, pointers and qualifiers."""

    spelling: str | None


@dataclass(frozen=True, slots=True)
class LoweredValue:
    """A value; ``None`` where it is not a whole number. Its type may be an enumeration."""

    number: int | None
    is_enumerator: bool


LoweredArgument: TypeAlias = LoweredType | LoweredValue


def template_arguments(lowered: str) -> tuple[LoweredArgument, ...] | None:
    """The arguments of a kernel template, those of packs among them, or ``None`` where they are not told.

    >>> template_arguments("_ZN2ns6reduceIdLi256EEEvPKT_")
    (LoweredType(spelling='double'), LoweredValue(number=256, is_enumerator=False))
    >>> template_arguments("histogram") is None
    True
    """
    try:
        return _Reader(lowered).arguments_of_kernel()
    except _BeyondError:
        return None


class _BeyondError(Exception):
    pass


_BUILTIN = {
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
}
_INTEGERS = set("wbcahstijlmxyno")
_OTHER_BUILTIN = ("Dn", "Ds", "Di", "Du", "DF16_", "DF16b", "g", "z")
_DECORATIONS = {"P": "*", "R": "&", "O": "&&"}


class _Reader:
    def __init__(self, lowered: str) -> None:
        self._text = lowered
        self._at = 0

    def arguments_of_kernel(self) -> tuple[LoweredArgument, ...] | None:
        self._expect("_Z")
        if not self._take("N"):
            self._take("St")
            self._name()
            return self._arguments() if self._peek("I") else None
        arguments = None
        while not self._take("E"):
            arguments = None
            if not self._take("St"):
                self._name()
            if self._peek("I"):
                arguments = self._arguments()
        return arguments

    def _arguments(self) -> tuple[LoweredArgument, ...]:
        self._expect("I")
        return tuple(self._until_end())

    def _until_end(self) -> Iterator[LoweredArgument]:
        while not self._take("E"):
            if self._take("J"):
                yield from self._until_end()
            elif self._take("L"):
                yield self._literal()
            else:
                yield LoweredType(self._type())

    def _literal(self) -> LoweredValue:
        if self._peek("_Z"):
            raise _BeyondError  # the address of something
        start = self._at
        self._type()
        code = self._text[start : self._at]
        sign, digits = self._match(r"(n?)([0-9a-f]*)E").groups()
        is_builtin = code in _BUILTIN or code in _OTHER_BUILTIN
        if not digits or (is_builtin and code not in _INTEGERS):
            return LoweredValue(None, False)  # a null pointer, or a floating-point number
        return LoweredValue(int(sign.replace("n", "-") + digits), not is_builtin)

    def _type(self) -> str | None:
        """Pass over a type; its spelling, if it is simple."""
        for code in _OTHER_BUILTIN:
            if self._take(code):
                return None
        for code, spelling in _BUILTIN.items():
            if self._take(code):
                return spelling
        for code, sign in _DECORATIONS.items():
            if self._take(code):
                inner = self._type()
                return None if inner is None else f"{inner}{sign}"
        if self._take("K"):
            inner = self._type()
            if inner is None:
                return None
            return f"{inner} const" if inner.endswith("*") else f"const {inner}"
        return self._named_type()

    def _named_type(self) -> str | None:
        if self._take("N"):
            parts: list[str] | None = []
            while not self._take("E"):
                part = self._component()
                parts = None if part is None or parts is None else [*parts, part]
            return "::".join(parts) if parts else None
        if self._peek("S") and not self._peek("St"):
            self._component()
            return None
        std = self._take("St")
        name = self._component()
        return name if name is None or not std else f"std::{name}"

    def _component(self) -> str | None:
        """A name within a name, with its own template arguments; ``None`` where that is no plain name."""
        if self._take("St"):
            return "std"
        if self._peek("S"):
            self._match(r"S(?:[0-9A-Z]*_|[absiod])")
            name = None
        else:
            name = self._name()
        if self._peek("I"):
            self._arguments()
            return None
        return None if name is None or name.startswith("_GLOBAL__N_") else name

    def _name(self) -> str:
        length = int(self._match(r"L?([0-9]+)")[1])
        name = self._text[self._at : self._at + length]
        self._at += length
        return name

    def _peek(self, text: str) -> bool:
        return self._text.startswith(text, self._at)

    def _take(self, text: str) -> bool:
        found = self._peek(text)
        self._at += len(text) * found
        return found

    def _expect(self, text: str) -> None:
        if not self._take(text):
            raise _BeyondError

    def _match(self, pattern: str) -> re.Match[str]:
        match = re.compile(pattern).match(self._text, self._at)
        if match is None:
            raise _BeyondError
        self._at = match.end()
        return match
