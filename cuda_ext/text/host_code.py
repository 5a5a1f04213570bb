"""Find the host code of a text: functions, variables and includes that no device code can use.

Under NVRTC every function needs an execution space, and every variable at the scope of namespaces a memory
space: what has none is the host's. A word that may be a macro with such a specifier makes this uncertain.
Functions for constant expressions become device code. Others remain as inline declarations without a body:
overload resolution and expressions that are not evaluated see them as nvcc does, and a call that device code
makes is an error, since they are not defined.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator
from functools import cached_property, lru_cache
from typing import NamedTuple

from cuda_ext.text.brackets import closing_bracket, find_end
from cuda_ext.text.host_items import Edit, HostItem, read_structure
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
    r"(?:using|typedef|static_assert|enum|namespace|concept|template\s+(?:struct|class))\b|friend\s+(?:struct|class)\b"
    r"|(?:struct|class|union)\s+[\w:]+\s*(?:<[^{}()]*>\s*)?$"
)
_DEVICE_ALONE = re.compile(
    r"__global__|^(?!.*__host__).*__device__|__(?:constant|managed|shared)__", re.DOTALL
)
_OPERATOR = re.compile(r"\boperator\s*(?:\(\s*\)|\[\s*\]|[^\s\w(]+)?")
_SIGN = re.compile(r"\b(?:operator|requires)\b|[({\[;]|(?<![=<>!:+*/%&|^-])=(?!=)|(?<!:):(?!:)")
_NAME = re.compile(r"(~?\w+|\boperator\b\W*\w*)\s*(?:<[^()]*>)?\s*$")
_CALL = re.compile(r"([^\W\d]\w*)\s*\(")
_DEDUCED = re.compile(r"\bauto\b")
_IS_INLINE = re.compile(r"\b(?:inline|__inline__|__inline|__forceinline__)\b")
_BEFORE_SPECIFIERS = re.compile(r"(?:\s*(?:extern\s*\"C\"|\[\[(?:(?!\]\]).)*\]\])\s*)*", re.DOTALL)
_TRY = re.compile(r"\btry\s*$")
_HANDLER = re.compile(r"\s*catch\s*\([^()]*\)\s*\{")
_CLAUSE = re.compile(r"\s*requires\b")
_TERM = re.compile(r"\s*(?:requires\b|&&|\|\|)\s*!?\s*(?:(requires\s*\(?|\()|[\w:]+(?:\s*(<))?)")
_LAMBDA = re.compile(r"\]\s*((?:__(?:host|device)__\s*)+)(?=[({])")
_POINTER = re.compile(r"\(\s*(?:\w+\s*::\s*)*[*&]")
_MOST_CLASSES = 20  # within each other
_CONSTANT = re.compile(r"\b(?:constexpr|consteval)\b")


@lru_cache(maxsize=1000)
def find_host_code(content: bytes, device: frozenset[str], known: frozenset[str]) -> tuple[HostItem, ...]:
    """Find what can be left out of `content`; items may contain others.

    `device` are the names of macros that declare something for the device, `known` those of all macros.
    """
    scan = _Scan(read_text(content).reading, device, known)
    return tuple(sorted([*scan.includes(), *scan.lambdas(), *scan.declarations(0, len(scan.text))]))


class _Head(NamedTuple):
    """The parts of a declaration, as offsets; -1 for what it does not have.

    ``begin`` is behind the heads of templates, and ``end`` before the body or the value. The parentheses are
    those of a function's parameters; a constructor's initializers follow ``colon``.
    """

    begin: int
    end: int
    opening: int
    closing: int
    body: int
    stop: int
    has_value: bool
    colon: int = -1


class _Scan:
    """The declarations of a text."""

    def __init__(self, reading: Reading, device: frozenset[str], known: frozenset[str]) -> None:
        self._reading = reading
        self._device = device
        self._known = known - device
        self.text = read_structure(reading)

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
            if _CLAUSE.match(text, begin, end):
                begin = self._behind_clause(begin, end)
        begin += len(text[begin:end]) - len(text[begin:end].lstrip())
        is_class = _CLASS.match(text, begin, end) is not None
        opening = closing = value = body = colon = -1
        position = begin
        while sign := _SIGN.search(text, position, end):
            position = sign.end()
            match sign[0]:
                case "requires":
                    position = max(position, self._behind_clause(sign.start(), end))
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
                    colon = sign.start()
                    position = self._behind_initializers(position, end)
                case "{" if opening >= 0 and value < 0 and not (is_class and body >= 0):
                    stop = closing_bracket(text, position, "{}") + 1
                    while handler := _HANDLER.match(text, stop, end):
                        stop = closing_bracket(text, handler.end(), "{}") + 1
                    head_end = closing + 1
                    stop = min(stop, end)
                    return _Head(begin, head_end, opening, closing, sign.start(), stop, False, colon)
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

    def _behind_clause(self, at: int, end: int) -> int:
        """Return the offset behind the requires-clause at `at`."""
        while term := _TERM.match(self.text, at, end):
            at = term.end()
            if term[2]:
                at = find_end(self.text, at, ">", "<>()") + 1
            elif term[0].endswith("("):
                at = closing_bracket(self.text, at) + 1
            braces = re.compile(r"\s*\{").match(self.text, at, end)
            if term[1] and term[1] != "(" and braces:
                at = closing_bracket(self.text, braces.end(), "{}") + 1
        return at

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
        before = declared[: head.opening - head.begin] if head.opening >= 0 else declared
        named = _NAME.search(before)
        if self._is_device(text[at : head.end]):
            # A function for both may be used by the host alone.
            if head.opening >= 0 and not head.has_value and not _DEVICE_ALONE.search(declared):
                yield from self._function(at, head, named[1] if named else "", "")
            return
        words = set(_MAYBE_MACRO.findall(before))
        certain = words <= _HARMLESS | self._known and not _DEVICE.search(text, at, head.stop)
        name: str = named[1] if named else before.strip()
        if _KEPT.match(declared):
            if not owners:
                yield self._item(at, head.stop, " ".join(declared.split()), certain=False)
        elif head.opening < 0 or (head.has_value and not _CONSTANT.search(declared)):
            yield from self._variable(at, head, owners, name, certain)
        elif _CONSTANT.search(declared):
            begin = self._begin(head)
            yield self._item(begin, begin, name, certain, Edit(begin, begin, "__device__ "))
            yield from self._function(at, head, name, "__device__ ")
        elif re.search(r"\bvirtual\b", declared):
            pass  # others may override it
        elif (
            before.startswith("template ")
            or before.rstrip().removesuffix(name).endswith("::")
            or name == "main"
        ):
            yield self._item(at, head.stop, name, certain)  # it declares nothing new
        else:
            yield from self._function(at, head, name, "__device__ ", certain, name in owners[-1:])

    def _function(
        self,
        at: int,
        head: _Head,
        name: str,
        specifier: str,
        certain: bool = False,
        is_constructor: bool = False,
    ) -> Iterator[HostItem]:
        """Yield the item that leaves a function's declaration, with `specifier`, and the one of all of it.

        Instead of a constructor, one remains that nothing can call: without any, the class would have others.
        """
        declared = self.text[head.begin : head.closing]
        is_deduced = (
            _DEDUCED.search(self.text, head.begin, head.opening)
            and "->" not in self.text[head.closing : self._cut(head)]
        )
        if not _IS_INLINE.search(declared) and not _CONSTANT.search(declared):
            specifier += "inline "
        begin, cut = self._begin(head), self._cut(head)
        edits = (Edit(begin, begin, specifier), Edit(cut, head.stop, ";"))
        is_divided = not self._has_whole_conditions(at, head.stop)
        left = edits[:1] if is_deduced else edits
        yield self._item(at, head.stop, name, certain and not is_divided, *left)
        rest = f"__device__ {name}(struct cuda_ext_host_{at}&);" if is_constructor else ""
        yield self._item(at, head.stop, name, certain and is_divided, Edit(at, head.stop, rest))

    def _has_whole_conditions(self, start: int, end: int) -> bool:
        """Return False if a condition begins or ends between the offsets alone."""
        depth = 0
        for directive in self._reading.directives:
            if start < directive.start < end:
                depth += directive.name in ("if", "ifdef", "ifndef")
                if not depth and directive.name in ("else", "elif", "endif"):
                    return False
                depth -= directive.name == "endif"
        return not depth

    def _begin(self, head: _Head) -> int:
        """Return the offset at which a specifier may be inserted."""
        before = _BEFORE_SPECIFIERS.match(self.text, head.begin, head.stop)
        return before.end() if before else head.begin

    def _cut(self, head: _Head) -> int:
        """Return the offset behind all that a function's declaration consists of."""
        end = next(each for each in (head.colon, head.body, head.stop - 1) if each >= 0)
        before = _TRY.search(self.text, head.closing, end)
        return before.start() if before else end

    def _variable(
        self, at: int, head: _Head, owners: tuple[str, ...], name: str, certain: bool
    ) -> Iterator[HostItem]:
        declared = self.text[head.begin : head.end]
        is_constant = re.search(r"\bconst(?:expr)?\b", declared) is not None
        if not owners or (re.match(r"static\b", declared) and not is_constant):
            qualified = "::".join([*owners[-1:], name])
            yield self._item(at, head.stop, qualified, certain and not is_constant)

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

    def _item(self, start: int, end: int, name: str, certain: bool, *edits: Edit) -> HostItem:
        most = len(self.text)  # of text that ends too early
        start, end = min(start, most), min(end, most)
        edits = tuple(Edit(min(e.start, most), min(e.end, most), e.instead) for e in edits) or (
            Edit(start, end),
        )
        last = self._line(max(start, end - 1))
        return HostItem(start, end, name, self._line(start), last, certain, edits)
