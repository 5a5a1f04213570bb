"""Find the host code of a text: functions, variables and includes that no device code can use.

Under NVRTC every function needs an execution space, and every variable at the scope of namespaces a memory
space: what has none is the host's. A word that may be a macro with such a specifier makes this uncertain.
Functions for constant expressions become device code. Members of classes are deleted instead of left out, so
that their use remains an error.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from functools import cached_property, lru_cache
from typing import NamedTuple

from cuda_ext.text.brackets import closing_bracket, find_end
from cuda_ext.text.lexer import INCLUDES, Reading, read_text

_DEVICE = re.compile(r"__(?:(?:tile_)?global|device|constant|managed|shared|tile)__")
_ATTRIBUTES = (
    "alignas",
    "__align__",
    "__attribute__",
    "__declspec",
    "__launch_bounds__",
    "noexcept",
    "decltype",
)
_HARMLESS = frozenset(["__host__", "__forceinline__", "__inline__", "__noinline__", "__restrict__"])
_MAYBE_MACRO = re.compile(r"\b(?:_*[A-Z][A-Z0-9_]{2,}|__\w+__)\b")
_SCOPE = re.compile(
    r"(?:inline\s+)?namespace\b[^;{}=()]*\{|extern\s*\"C\"\s*\{|(?:public|private|protected)\s*:(?!:)"
)
_TEMPLATE = re.compile(r"\s*template\s*<")
_CLASS = re.compile(r"(?:typedef\s+)?(?:struct|class|union)\b")
_KEPT = re.compile(
    r"(?:using|typedef|static_assert|enum|namespace|template\s+(?:struct|class))\b|friend\s+(?:struct|class)\b"
    r"|(?:struct|class|union)\s+[\w:]+\s*(?:<[^{}()]*>\s*)?$"
)
_DEVICE_ALONE = re.compile(
    r"__global__|^(?!.*__host__).*__device__|__(?:constant|managed|shared)__", re.DOTALL
)
_OPERATOR = re.compile(r"\boperator\s*(?:\(\s*\)|\[\s*\]|[^\s\w(]+)?")
_SIGN = re.compile(r"\boperator\b|[({\[;]|(?<![=<>!:+*/%&|^-])=(?!=)|(?<!:):(?!:)")
_NAME = re.compile(r"(~?\w+|\boperator\b\W*\w*)\s*(?:<[^()]*>)?\s*$")
_CALL = re.compile(r"([^\W\d]\w*)\s*\(")
_QUALIFIERS = re.compile(r"(?:\s*(?:const|volatile|noexcept|override|final|&&?)(?!\w))*(?:\s*->[^{;:]*)?")
_LAMBDA = re.compile(r"\]\s*((?:__(?:host|device)__\s*)+)(?=[({])")
_POINTER = re.compile(r"\(\s*(?:\w+\s*::\s*)*[*&]")
_MOST_CLASSES = 20  # within each other
_CONSTANT = re.compile(r"\b(?:constexpr|consteval)\b")


class HostItem(NamedTuple):
    """A part of a text that can be left out, between offsets of the text with joined lines.

    It is on the lines from ``line`` to ``last``. If it is not ``certain``, only a compiler shows whether it
    is the host's. ``instead`` is what takes its place.
    """

    start: int
    end: int
    name: str
    line: int
    last: int
    certain: bool
    instead: str = ""


@lru_cache(maxsize=1000)
def find_host_code(content: bytes, device: frozenset[str], known: frozenset[str]) -> tuple[HostItem, ...]:
    """Find what can be left out of `content`; items may contain others.

    `device` are the names of macros that declare something for the device, `known` those of all macros.
    """
    scan = _Scan(read_text(content).reading, device, known)
    return tuple(sorted([*scan.includes(), *scan.lambdas(), *scan.declarations(0, len(scan.text))]))


def leave_out(content: bytes, items: Iterable[HostItem]) -> bytes:
    """Return `content` without `items`. Lines keep their numbers, and directives within items stay."""
    reading = read_text(content).reading
    characters = [*reading.original, ""]
    whole = sorted(item for item in items if item.start < item.end)
    for item in whole:
        for start, end in _between_directives(reading, item.start, item.end):
            at = reading.original_of(start, end)
            characters[at] = re.sub(r"[^\r\n]", " ", reading.original[at])
    for item in items:
        is_left_out = any(w.start <= item.start and item.end <= w.end and w != item for w in whole)
        if item.instead and not is_left_out:
            place = reading.origin(item.start)
            characters[place] = f"{item.instead}{characters[place]}"
    return "".join(characters).encode(errors="surrogateescape")


def _between_directives(reading: Reading, start: int, end: int) -> Iterator[tuple[int, int]]:
    for directive in reading.directives:
        if start < directive.start < end:
            yield start, directive.start
            start = directive.end
    if start < end:
        yield start, end


class _Head(NamedTuple):
    """The parts of a declaration, as offsets; -1 for what it does not have.

    ``begin`` is behind the heads of templates, and ``end`` before the body or the value. The parentheses are
    those of a function's parameters.
    """

    begin: int
    end: int
    opening: int
    closing: int
    body: int
    stop: int
    has_value: bool


class _Scan:
    """The declarations of a text."""

    def __init__(self, reading: Reading, device: frozenset[str], known: frozenset[str]) -> None:
        self._reading = reading
        self._device = device
        self._known = known - device
        self.text = _structure(reading)

    def includes(self) -> Iterator[HostItem]:
        for directive in self._reading.directives:
            if directive.name in INCLUDES:
                text = self._reading.without_comments(directive.start, directive.end)
                yield self._item(directive.start, directive.end, " ".join(text.split()), certain=False)

    def lambdas(self) -> Iterator[HostItem]:
        """Yield the specifiers of lambdas, which nvcc needs for those in host code."""
        for match in _LAMBDA.finditer(self.text):
            yield self._item(match.start(1), match.end(1), "", certain=True)

    def declarations(self, at: int, end: int, owners: tuple[str, ...] = ()) -> Iterator[HostItem]:
        """Yield the items between `at` and `end`, at the scope of a namespace or of the last of `owners`.

        These are classes, each within the one before.
        """
        space = re.compile(r"[\s};]*")
        while (at := space.match(self.text, at, end).end()) < end:  # type: ignore[union-attr]
            if scope := _SCOPE.match(self.text, at, end):
                at = scope.end()
            elif (behind := self._macro_call(at, end, owners)) > at:
                if not self._device.intersection([_CALL.match(self.text, at)[1]]):  # type: ignore[index]
                    yield self._item(at, behind, self.text[at:behind].partition("(")[0], certain=False)
                at = behind
            else:
                head = self._head(at, end)
                yield from self._classify(at, head, owners)
                at = head.stop

    def _macro_call(self, at: int, end: int, owners: tuple[str, ...]) -> int:
        """Return the end of the call of a macro that stands alone at `at`; `at` if there is none."""
        call = _CALL.match(self.text, at, end)
        if call is None or call[1] in owners[-1:] or call[1] in _ATTRIBUTES:
            return at
        behind = closing_bracket(self.text, call.end()) + 1
        following = re.compile(r"\s*(.?)").match(self.text, behind, end)
        return behind if following and following[1] not in ("{", ":", "=", "(") else at

    def _head(self, at: int, end: int) -> _Head:
        text, begin = self.text, at
        while template := _TEMPLATE.match(text, begin, end):
            begin = find_end(text, template.end(), ">", "<>()") + 1
        begin += len(text[begin:end]) - len(text[begin:end].lstrip())
        is_class = _CLASS.match(text, begin, end) is not None
        opening = closing = value = body = -1
        position = begin
        while sign := _SIGN.search(text, position, end):
            position = sign.end()
            match sign[0]:
                case "operator":
                    position = _OPERATOR.match(text, sign.start()).end()  # type: ignore[union-attr]
                case "(" | "[":
                    position = closing_bracket(text, position, "()" if sign[0] == "(" else "[]") + 1
                    if (
                        sign[0] == "("
                        and opening < 0
                        and value < 0
                        and self._has_parameters(begin, sign.start())
                    ):
                        opening, closing = sign.start(), position - 1
                case "=":
                    value = sign.start() if value < 0 else value
                case ":" if opening >= 0 and value < 0:
                    position = self._behind_initializers(position, end)
                case "{" if opening >= 0 and value < 0 and not (is_class and body >= 0):
                    stop = closing_bracket(text, position, "{}") + 1
                    head_end = closing + 1
                    return _Head(begin, head_end, opening, closing, sign.start(), min(stop, end), False)
                case "{":
                    if is_class and body < 0:
                        body = sign.start()
                    value = sign.start() if value < 0 and not is_class else value
                    position = closing_bracket(text, position, "{}") + 1
                case ";":
                    head_end = min(each for each in (value, body, sign.start()) if each >= 0)
                    return _Head(begin, head_end, opening, closing, body, sign.end(), value >= 0)
        return _Head(begin, end, opening, closing, body, end, value >= 0)

    def _has_parameters(self, begin: int, opening: int) -> bool:
        """Return True if the parentheses at `opening` may contain parameters."""
        before = self.text[begin:opening]
        word = re.search(r"(\w+)\s*$", before)
        is_pointer = _POINTER.search(self.text, begin, opening) or _POINTER.match(self.text, opening)
        is_argument = before.count("<") > before.count(">") and "operator" not in before
        return not (is_pointer or is_argument or (word and word[1] in _ATTRIBUTES))

    def _behind_initializers(self, position: int, end: int) -> int:
        """Return the offset behind the initializers of a constructor, which begin at `position`."""
        while sign := re.compile(r"[({;]").search(self.text, position, end):
            if sign[0] == ";":
                return sign.start()
            behind = closing_bracket(self.text, sign.end(), "()" if sign[0] == "(" else "{}") + 1
            following = re.compile(r"\s*(?:\.\.\.\s*)?(.?)").match(self.text, behind, end)
            if not following or following[1] != ",":
                return behind
            position = following.end()
        return end

    def _classify(self, at: int, head: _Head, owners: tuple[str, ...]) -> Iterator[HostItem]:
        text = self.text
        declared = text[head.begin : head.end]
        if head.body >= 0 and head.opening < 0:
            own = re.search(r"(\w+)\s*(?:final\s*)?(?::|$)", declared.replace("::", "  "))
            end = closing_bracket(text, head.body + 1, "{}")
            if len(owners) < _MOST_CLASSES:
                yield from self.declarations(head.body + 1, end, (*owners, own[1] if own else "?"))
            if not owners and not self._is_device(text[at : head.stop]):
                yield self._item(at, head.stop, own[1] if own else declared.strip(), certain=False)
            return
        if self._is_device(text[at : head.end]):
            # A function for both may be used by the host alone.
            if head.opening >= 0 and not head.has_value and not _DEVICE_ALONE.search(declared):
                named = _NAME.search(text, head.begin, head.opening)
                yield self._item(at, head.stop, named[1] if named else "", certain=False)
            return
        before = declared[: head.opening - head.begin] if head.opening >= 0 else declared
        words = set(_MAYBE_MACRO.findall(before))
        certain = words <= _HARMLESS | self._known and not _DEVICE.search(text, at, head.stop)
        named = _NAME.search(before)
        name: str = named[1] if named else before.strip()
        if _KEPT.match(declared):
            if not owners:
                yield self._item(at, head.stop, " ".join(declared.split()), certain=False)
        elif head.opening < 0 or (head.has_value and not _CONSTANT.search(declared)):
            yield from self._variable(at, head, bool(owners), name, certain)
        elif _CONSTANT.search(declared):
            yield self._item(head.begin, head.begin, name, certain, "__device__ ")
            yield self._item(at, head.stop, name, certain=False)
        elif not owners or name.startswith("~") or declared.startswith("friend"):
            yield self._item(at, head.stop, name, certain)
        elif not re.search(r"\bvirtual\b", declared):
            qualified = _QUALIFIERS.match(text, head.closing + 1)
            kept = qualified.end() if qualified else head.closing + 1
            yield self._item(kept, head.stop, name, certain, " = delete;")
            yield self._item(at, head.stop, name, certain=False)

    def _variable(
        self, at: int, head: _Head, is_member: bool, name: str, certain: bool
    ) -> Iterator[HostItem]:
        declared = self.text[head.begin : head.end]
        is_constant = re.search(r"\bconst(?:expr)?\b", declared) is not None
        if not is_member or (re.match(r"static\b", declared) and not is_constant):
            yield self._item(at, head.stop, name, certain and not is_constant)

    def _is_device(self, text: str) -> bool:
        """Return True if `text` has a specifier of CUDA, or a macro that may be one."""
        if _DEVICE.search(text):
            return True
        return bool(self._device) and not self._device.isdisjoint(re.findall(r"\w+", text))

    @cached_property
    def _lines(self) -> list[int]:
        return [match.start() for match in re.finditer("\n", self._reading.original)]

    def _line(self, offset: int) -> int:
        return bisect_right(self._lines, self._reading.origin(offset) - 1) + 1

    def _item(self, start: int, end: int, name: str, certain: bool, instead: str = "") -> HostItem:
        start, end = min(start, len(self.text)), min(end, len(self.text))  # of text that ends too early
        return HostItem(
            start, end, name, self._line(start), self._line(max(start, end - 1)), certain, instead
        )


def _structure(reading: Reading) -> str:
    """Return the text with spaces for comments, literals and directives; offsets stay.

    If the branches of a condition open different braces, those of one branch are left.
    """
    text = list(reading.text)

    def clear(start: int, end: int, what: str = r"[^\n]") -> None:
        text[start:end] = re.sub(what, " ", "".join(text[start:end]))

    for piece in reading.pieces:
        if reading.text[piece.start : piece.end] != '"C"':
            clear(piece.start, piece.end)
    branches: list[list[int]] = []
    for directive in reading.directives:
        clear(directive.start, directive.end)
        if directive.name in ("if", "ifdef", "ifndef"):
            branches.append([directive.end])
        elif directive.name in ("else", "elif", "endif") and branches:
            branches[-1] += directive.start, directive.end
            if directive.name == "endif":
                places = branches.pop()
                has_braces = False
                for start, end in zip(places[::2], places[1::2], strict=False):
                    own = "".join(text[start:end])
                    if own.count("{") != own.count("}"):
                        if has_braces:
                            clear(start, end, r"[{}]")
                        has_braces = True
    return "".join(text)
