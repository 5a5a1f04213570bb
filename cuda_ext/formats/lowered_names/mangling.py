"""Read lowered names: C++ names, template arguments and the types of parameters.

They are mangled by the Itanium C++ ABI (section 5.1). Only the common parts of it are read; none is guessed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from typing import NamedTuple, TypeAlias

from cuda_ext.formats.lowered_names.lowered_types import (
    BUILTIN,
    INTEGERS,
    LoweredType,
    LoweredValue,
    instantiate,
    point_to,
)

_Argument: TypeAlias = LoweredType | LoweredValue


class LoweredName(NamedTuple):
    """The parts of a function's or variable's lowered name.

    ``name`` is the C++ name without anonymous namespaces. ``arguments`` are the template arguments, with
    packs expanded. ``parameters`` are ``None`` for a variable, and if they cannot be read.
    """

    name: str
    arguments: tuple[_Argument, ...] | None = None
    parameters: tuple[LoweredType, ...] | None = None


@cache
def read_lowered_name(lowered: str, has_placeholders: bool = False) -> LoweredName | None:
    """Read a lowered name; ``None`` if it is not mangled, or not readable.

    With placeholders, types of parameters have ``$0`` for the first argument of the template.

    >>> name = read_lowered_name("_ZN2ns6reduceIdLi256EEEvPKT_")
    >>> name.name, [parameter.spelling for parameter in name.parameters]
    ('ns::reduce<double, 256>', ['const double*'])
    >>> name = read_lowered_name("_ZN2ns6reduceIdLi256EEEvPKT_", has_placeholders=True)
    >>> [parameter.spelling for parameter in name.parameters]
    ['const $0*']
    >>> read_lowered_name("histogram")
    """
    # In relocatable code, an identifier of this length precedes a name with internal linkage.
    if match := re.match(r"__nv_static_(\d{1,9})_", lowered):
        lowered = lowered[match.end() + int(match[1]) + 1 :]
        if not lowered.startswith("_Z"):
            return LoweredName(lowered)
    reader = _Reader(lowered, has_placeholders)
    try:
        return reader.encoding()
    except (ValueError, RecursionError):
        return None


_DECORATIONS = {"P": "*", "R": "&", "O": "&&"}
_ABBREVIATIONS = {"a": "allocator", "b": "basic_string", "s": "string", "i": "istream", "o": "ostream"}
# Inline namespaces by which CUDA's libraries keep their versions and architectures apart.
_VERSION = re.compile(r"__\d+|_V_\d+(?:_SM_\d+(?:_\d+)*)?|(?:CUB|THRUST)_\d+_(?:SM_)?\d+(?:_\d+)*(?:_NS)?")


def _is_hidden(name: str) -> bool:
    """True if `name` is an anonymous namespace, a translation unit, or the version of a library."""
    return name.startswith(("_GLOBAL__N_", "_INTERNAL_")) or _VERSION.fullmatch(name) is not None


class _Pack(NamedTuple):
    """The arguments that a pack stands for."""

    arguments: tuple[_Argument, ...]


# The meaning of a substitution or a template parameter. Substitutions of names include their namespaces.
_Known: TypeAlias = LoweredType | LoweredValue | _Pack


class _Reader:
    """Reads a lowered name from left to right. Raises :class:`ValueError` for unknown encodings."""

    def __init__(self, lowered: str, has_placeholders: bool) -> None:
        self._text = lowered
        self._has_placeholders = has_placeholders
        self._at = 0
        self._known: list[_Known] = []  # substitutions
        self._parameters: tuple[_Known, ...] = ()  # of the template
        self._expanding: int | None = None  # the index within a pack

    def encoding(self) -> LoweredName:
        """Read a whole name, with the types of a function's parameters, which may not all be readable."""
        spelling, arguments = self._function_or_variable()
        try:
            types = self._bare_types(arguments, lambda: self._at == len(self._text))
        except ValueError:
            types = None
        return LoweredName(spelling, arguments, types)

    def _function_or_variable(self) -> tuple[str, tuple[_Argument, ...] | None]:
        """Read the name of a function or variable; return it with the arguments of a template."""
        self._expect("_Z")
        if self._peek("Z"):
            raise ValueError("a name within a function")
        name = self._name()
        return name.spelling, name.arguments if name.left.endswith(">") else None

    def _bare_types(
        self, arguments: tuple[_Argument, ...] | None, at_end: Callable[[], bool]
    ) -> tuple[LoweredType, ...] | None:
        """Read the types of the parameters behind a name; ``None`` for a variable."""
        if at_end():
            return None
        types = self._types(at_end)
        types = types if arguments is None else types[1:]  # a template's name includes its result type
        return () if [t.left for t in types] == ["void"] else types

    def _types(self, at_end: Callable[[], bool]) -> tuple[LoweredType, ...]:
        types: list[LoweredType] = []
        while not at_end():
            if self._take("Dp"):
                types += self._expanded()
            else:
                types.append(self._type())
        return tuple(types)

    def _expanded(self) -> list[LoweredType]:
        """Read the types that a pattern with a pack expands to."""
        start, known = self._at, len(self._known)
        types: list[LoweredType] = []
        count = next((len(p.arguments) for p in self._parameters if isinstance(p, _Pack)), 0)
        if sum(isinstance(p, _Pack) for p in self._parameters) != 1:
            raise ValueError("several packs")
        for index in range(max(count, 1)):
            self._at, self._expanding = start, index
            del self._known[known:]
            # For an empty pack, read the pattern with anything in place of the pack.
            types.append(self._type())
        self._expanding = None
        # Later references to the pattern would need its expansions.
        self._known[known:] = [_Pack(())] * (len(self._known) - known)
        return types[:count]

    def _name(self, is_type: bool = False) -> LoweredType:
        """Read the name of a function, variable or type with its template arguments."""
        name = self._nested(lambda: self._take("E")) if self._take("N") else self._nested(None)
        if is_type:
            self._known.append(name)
        else:
            self._parameters = self._last_arguments
        return name

    def _nested(self, at_end: Callable[[], bool] | None) -> LoweredType:
        """Read the parts of a nested name up to its end; without `at_end`, a single one."""
        name: LoweredType | None = None
        is_known = False  # true if it is not a new substitution
        self._last_arguments: tuple[_Known, ...] = ()
        while at_end is None or not at_end():
            if name is not None and not is_known and (at_end or self._peek("I")):
                self._known.append(name)
            if self._peek("I") and name is not None:
                self._last_arguments = self._arguments()
                name, is_known = instantiate(name, _flat(self._last_arguments)), False
            else:
                name, is_known = self._part(name)
                self._last_arguments = ()
            is_complete = not self._peek("I") and not (is_known and name.left == "std")
            if at_end is None and is_complete:
                break
        if name is None:
            raise ValueError("an empty name")
        return name

    def _part(self, scope: LoweredType | None) -> tuple[LoweredType, bool]:
        """Read one part of a name within `scope`; also return True if it is no new substitution."""
        if scope is None and self._take("St"):
            return LoweredType("named", "std"), True
        if scope is None and (self._peek("S") or self._peek("T")):
            is_known = self._peek("S")
            known = self._substitution() if is_known else self._template_parameter()
            if not isinstance(known, LoweredType):
                raise ValueError("a value as a scope")
            return known, is_known
        name = self._source_name()
        if scope is None:
            hidden = _is_hidden(name)
            return LoweredType("named", "" if hidden else name, is_simple=not hidden), False
        if _is_hidden(name):
            return replace(scope, is_simple=scope.is_simple and _VERSION.fullmatch(name) is not None), False
        left = f"{scope.left}::{name}" if scope.left else name
        dependent = scope.is_dependent or scope.of_parameter
        return replace(scope, kind="named", left=left, arguments=(), is_dependent=dependent), False

    def _arguments(self) -> tuple[_Known, ...]:
        self._match("[IJ]")  # J begins a pack
        arguments: list[_Known] = []
        while not self._take("E"):
            if self._peek("J"):
                packed = self._arguments()
                arguments.append(_Pack(tuple(a for a in packed if not isinstance(a, _Pack))))
            elif self._take("L"):
                arguments.append(self._literal())
            elif self._take("X"):
                arguments.append(self._expression())
            elif self._take("Dp"):
                arguments += self._expanded()
            else:
                arguments.append(self._type())
        return tuple(arguments)

    def _literal(self) -> LoweredValue:
        if self._peek("_Z"):
            return self._address("")
        start = self._at
        type_ = self._type()
        code = self._text[start : self._at]
        sign, digits = self._match(r"(n?)([0-9a-f]*)E").groups()
        if code == "Dn":
            return LoweredValue(None, False, "nullptr")
        if not digits or (code in BUILTIN and code not in INTEGERS):
            return LoweredValue(None, False, f"({type_.spelling}){digits}")
        number = int(sign.replace("n", "-") + digits)
        if code == "b":
            return LoweredValue(number, False, "true" if number else "false", type_.spelling)
        if code in BUILTIN:
            return LoweredValue(number, False, str(number), type_.spelling)
        return LoweredValue(number, True, f"({type_.spelling}){number}")

    def _expression(self) -> LoweredValue:
        """Read the address of a function or variable, the only expression that is supported."""
        self._expect("ad")
        self._expect("L")
        value = self._address("&")
        self._expect("E")
        return value

    def _address(self, sign: str) -> LoweredValue:
        outer, known = (self._parameters, self._expanding), len(self._known)
        spelling, arguments = self._function_or_variable()
        self._bare_types(arguments, lambda: self._peek("E"))
        self._expect("E")
        self._parameters, self._expanding = outer
        # Later references to its template's parameters would mean those of the outer template.
        for index, each in enumerate(self._known[known:], known):
            if isinstance(each, LoweredType) and each.of_parameter:
                self._known[index] = _Pack(())
        return LoweredValue(None, False, f"{sign}{spelling}")

    def _type(self) -> LoweredType:
        for code, spelling in BUILTIN.items():
            if self._take(code):
                return LoweredType("builtin", spelling)
        if self._take("Dn"):
            return LoweredType("pointer", "void*", target=LoweredType("builtin", "void"), is_simple=False)
        type_ = self._compound() or self._qualified()
        if type_ is not None:
            self._known.append(type_)
            return type_
        if self._peek("T"):
            parameter = self._template_parameter()
            if not isinstance(parameter, LoweredType):
                raise ValueError("a value in place of a type")
            self._known.append(parameter)
            if self._peek("I"):  # a template itself
                self._known.append(parameter := instantiate(parameter, _flat(self._arguments())))
            return parameter
        if self._peek("S") and not self._peek("St"):
            start = self._at
            known = self._substitution()
            if not self._peek("I"):
                if not isinstance(known, LoweredType):
                    raise ValueError("a value in place of a type")
                return known
            self._at = start
        return self._name(is_type=True)

    def _compound(self) -> LoweredType | None:
        for code, sign in _DECORATIONS.items():
            if self._take(code):
                return point_to(self._type(), sign)
        if self._take("A"):
            count = self._match("([0-9]*)_")[1]
            element = self._type()
            return replace(
                element, kind="array", right=f"[{count}]{element.right}", target=element, is_simple=False
            )
        if self._take("DoF") or self._take("F"):
            result, *types = self._types(lambda: self._take("E"))
            spelled = ", ".join(t.spelling for t in types if t.spelling != "void")
            return LoweredType(
                "function",
                result.spelling.removesuffix(result.right),
                f"({spelled}){result.right}",
                result,
                is_dependent=any(t.is_dependent for t in (result, *types)),
                is_simple=False,
            )
        if self._take("M"):
            owner, member = self._type(), self._type()
            if member.kind == "function":
                left, right = f"{member.left}({owner.spelling}::*", f"){member.right}"
                return LoweredType("other", left, right, is_simple=False)
            return LoweredType("other", f"{member.spelling} {owner.spelling}::*", is_simple=False)
        return None

    def _qualified(self) -> LoweredType | None:
        qualifiers = self._match("r?V?K?")[0]
        if not qualifiers:
            return None
        type_ = self._type()
        words = [word for code, word in (("K", "const"), ("V", "volatile")) if code in qualifiers]
        return replace(type_, qualifiers=tuple(dict.fromkeys([*words, *type_.qualifiers])))

    def _template_parameter(self) -> _Known:
        digits = self._match("T([0-9A-Z]*)_")[1]
        index = int(digits, 36) + 1 if digits else 0
        if index >= len(self._parameters):
            raise ValueError("an unknown template parameter")
        parameter = self._parameters[index]
        if self._has_placeholders:
            if any(not isinstance(each, LoweredType | LoweredValue) for each in self._parameters):
                raise ValueError("a pack")
            return LoweredType("named", f"${index}")
        if isinstance(parameter, _Pack):
            if self._expanding is None:
                raise ValueError("a pack that is not expanded")
            empty = LoweredType("builtin", "void")
            parameter = parameter.arguments[self._expanding] if parameter.arguments else empty
        return replace(parameter, of_parameter=True) if isinstance(parameter, LoweredType) else parameter

    def _substitution(self) -> _Known:
        if abbreviated := re.compile("S([abiosd])").match(self._text, self._at):
            self._at = abbreviated.end()
            return LoweredType("named", f"std::{_ABBREVIATIONS.get(abbreviated[1], 'iostream')}")
        digits = self._match("S([0-9A-Z]*)_")[1]
        index = int(digits, 36) + 1 if digits else 0
        if index >= len(self._known):
            raise ValueError("an unknown substitution")
        return self._known[index]

    def _source_name(self) -> str:
        if self._take("Ut"):
            number = self._match(r"([0-9]*)_")[1]
            return f"{{unnamed type#{int(number) + 2 if number else 1}}}"
        length = int(self._match(r"L?([0-9]+)")[1])
        name = self._text[self._at : self._at + length]
        if len(name) < length:
            raise ValueError("an incomplete name")
        self._at += length
        while self._take("B"):  # tags
            self._source_name()
        return name

    def _peek(self, text: str) -> bool:
        return self._text.startswith(text, self._at)

    def _take(self, text: str) -> bool:
        is_next = self._peek(text)
        if is_next:
            self._at += len(text)
        return is_next

    def _expect(self, text: str) -> None:
        if not self._take(text):
            raise ValueError(f"{text!r} is missing")

    def _match(self, pattern: str) -> re.Match[str]:
        match = re.compile(pattern).match(self._text, self._at)
        if match is None:
            raise ValueError(self._text[self._at :])
        self._at = match.end()
        return match


def _flat(arguments: Sequence[_Known]) -> tuple[_Argument, ...]:
    """Expand the packs among `arguments`."""
    return tuple(a for each in arguments for a in (each.arguments if isinstance(each, _Pack) else (each,)))
