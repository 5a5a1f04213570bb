"""The one lexer of CUDA text: continued lines, comments, literals and directives.

It reads what compilers do before they parse. Where compilers read a text differently, as a backslash with
spaces behind it, trigraphs or carriage returns, each reading counts: callers unite what they find.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Callable
from functools import cached_property, lru_cache
from typing import NamedTuple

# Comments may stand wherever spaces may. Without `+`, a search that fails would also try each later end of a
# comment as its end, in all combinations.
GAP = r"(?:[ \t\f\v\r]|(?s:/\*.*?\*/))*+"
HEADER_NAME = r'<[^>\n]+>|"[^"\n]+"'
_SPLICE = re.compile(r"\\\r?\n")
# As GCC reads line ends, and with trigraphs, which C++14 has.
_ANY_SPLICE = re.compile(r"(?:\\|\?\?/)[ \t\f\v]*(?:\r\n?|\n)")
_LONE_RETURN = re.compile(r"\r(?!\n)")
_IS_AMBIGUOUS = re.compile(r"\\[ \t\f\v]+[\r\n]|\?\?[/=]|\r(?!\n)")
_PIECE = re.compile(r"//[^\n]*|/\*(?s:.*?)(?:\*/|\Z)|[\"'#]|%:|\?\?=")
# One that does not end takes the rest of its line.
_STRING = re.compile(r'"(?:\\[^\n]|[^"\\\n])*"?')
_CHARACTER = re.compile(r"'(?:\\[^\n]|[^'\\\n])*'?")
_RAW = re.compile(r'"([^()\\\s"]{0,16})\(')
_RAW_PREFIXES = ("R", "u8R", "uR", "UR", "LR")
_WORD_BEFORE = re.compile(r"[\w.']*\Z")
_DIRECTIVE = re.compile(rf"(?:#|%:|\?\?=){GAP}(\w*)")
_NAME_OF_HEADER = re.compile(rf"{GAP}(?:<[^>\n]*>|\"[^\"\n]*\")")
INCLUDES = ("include", "include_next", "import")
_NO_CHARACTER = re.compile("[\udc80-\udcff]")  # bytes that are not UTF-8
C_LINKAGE = "extern_C"
_LINKAGE = re.compile(r'(\bextern\s*)?"C"')
_SPACES = " \t\f\v\r"
_BYTE_ORDER_MARK = "\ufeff"


class Piece(NamedTuple):
    """A comment, string or character literal, between these offsets."""

    start: int
    end: int
    is_comment: bool


class Directive(NamedTuple):
    """A directive, as ``#define N 1``: the offsets of its sign, of what follows its name, and of its end."""

    name: str
    start: int
    body: int
    end: int


class Reading:
    """A text with its continued lines joined, and where its comments, literals and directives are."""

    def __init__(self, original: str, splice: re.Pattern[str] = _SPLICE) -> None:
        self.original = original
        self.text = original
        # Where something was taken out: offsets in both texts, and how much was up to there.
        self._joined_cuts: list[int] = []
        self._cuts: list[int] = []
        self._shifts = [0]
        for match in splice.finditer(original):
            self._joined_cuts.append(match.start() - self._shifts[-1])
            self._cuts.append(match.start())
            self._shifts.append(self._shifts[-1] + len(match[0]))
        if self._cuts:
            self.text = splice.sub("", original)
        if splice is _ANY_SPLICE:
            self.text = _LONE_RETURN.sub("\n", self.text)
        self.pieces: list[Piece] = []
        self.directives: list[Directive] = []
        self._scan()

    def origin(self, offset: int) -> int:
        """Return the offset in the original text of what is at `offset`."""
        return offset + self._shifts[bisect_right(self._joined_cuts, offset)]

    def original_of(self, start: int, end: int) -> slice:
        """Return the part of the original text that was read between `start` and `end`."""
        return slice(self.origin(start), self.origin(end - 1) + 1)

    def without_comments(
        self, start: int, end: int, spell: Callable[[Piece, str], str | None] = lambda *_: None
    ) -> str:
        """Return the text between `start` and `end` with a space for each comment.

        `spell` may give another text for a comment or literal.
        """
        parts: list[str] = []
        for index in range(bisect_left(self.pieces, start, key=_start), len(self.pieces)):
            piece = self.pieces[index]
            if piece.start >= end:
                break
            text = self.text[piece.start : piece.end]
            if (spelled := spell(piece, text)) is None:
                spelled = " " if piece.is_comment else text
            parts += self.text[start : piece.start], spelled
            start = piece.end
        return "".join([*parts, self.text[start:end]])

    def plain(
        self,
        start: int = 0,
        end: int | None = None,
        spell_comment: Callable[[str], str] = lambda _: " ",
    ) -> str:
        """Return the text without literals, and with what `spell_comment` returns for each comment.

        ``extern "C"`` is a word of its own.
        """

        def spell(piece: Piece, text: str) -> str:
            return spell_comment(text) if piece.is_comment else text if text == '"C"' else " "

        plain = self.without_comments(start, len(self.text) if end is None else end, spell)
        if '"' in plain:
            plain = _LINKAGE.sub(lambda match: f"{C_LINKAGE} " if match[1] else " ", plain)
        return plain if plain.isascii() else _NO_CHARACTER.sub("\ufffd", plain)

    def _scan(self) -> None:
        text, position = self.text, 0
        last, is_fresh = 0, True  # the end of the last piece; whether only comments and spaces precede it
        while match := _PIECE.search(text, position):
            start = match.start()
            line = text.rfind("\n", last, start) + 1
            begins_line = (line > 0 or is_fresh) and not text[line or last : start].strip(_SPACES)
            if match[0][0] in "#%?":
                position = match.end()
                if begins_line:
                    position = self._read_directive(start)
                    last, is_fresh = position, False
                continue
            position = self._read_piece(match)
            if self.pieces and self.pieces[-1].end == position:
                last, is_fresh = position, begins_line and self.pieces[-1].is_comment

    def _read_piece(self, match: re.Match[str]) -> int:
        """Read the comment or literal that begins at `match`; return the offset behind it."""
        text, start = self.text, match.start()
        if match[0][0] == "/":
            end = match.end()
        elif match[0] == '"' and (raw := self._raw_end(start)):
            start, end = start - len(_word_before(text, start)), raw
        elif match[0] == "'" and _is_separator(text, start):
            return start + 1
        else:
            literal = (_STRING if match[0] == '"' else _CHARACTER).match(text, start)
            end = literal.end() if literal else start + 1
        self.pieces.append(Piece(start, end, match[0][0] == "/"))
        return end

    def _raw_end(self, start: int) -> int | None:
        """Return the end of the raw string whose quote is at `start`; ``None`` if it is no raw string."""
        if self.text[start - 1 : start] != "R" or _word_before(self.text, start) not in _RAW_PREFIXES:
            return None
        if not (opening := _RAW.match(self.text, start)):
            return None
        # Continued lines within it are not joined.
        found = self.original.find(f'){opening[1]}"', self.origin(opening.end() - 1))
        if found < 0:
            return len(self.text)
        end = found + len(opening[1]) + 2
        return end - self._shifts[bisect_left(self._cuts, end)]

    def _read_directive(self, start: int) -> int:
        """Read the directive whose sign is at `start`; return the offset of its line's end."""
        match = _DIRECTIVE.match(self.text, start)
        word, body = (match[1], match.end()) if match else ("", start + 1)
        # In the name of a header, // and ' mean nothing.
        header = _NAME_OF_HEADER.match(self.text, body) if word in INCLUDES else None
        position = header.end() if header else body
        while True:
            end = self.text.find("\n", position)
            end = len(self.text) if end < 0 else end
            piece = _PIECE.search(self.text, position, end)
            if piece is None:
                break
            position = piece.end() if piece[0][0] in "#%?" else self._read_piece(piece)
        self.directives.append(Directive(word, start, body, end))
        return end


def _start(piece: Piece) -> int:
    return piece.start


def _word_before(text: str, end: int) -> str:
    found = _WORD_BEFORE.search(text, max(0, end - 200), end)
    return found[0] if found else ""


def _is_separator(text: str, quote: int) -> bool:
    """True if the `quote` separates digits of a number."""
    return text[quote - 1 : quote].isalnum() and _word_before(text, quote).lstrip(".")[:1].isdigit()


class Text:
    """A text as every compiler reads it: in one way, or in two."""

    def __init__(self, content: bytes) -> None:
        original = content.decode(errors="surrogateescape").removeprefix(_BYTE_ORDER_MARK)
        is_ambiguous = _IS_AMBIGUOUS.search(original) is not None
        self.readings = [Reading(original), *([Reading(original, _ANY_SPLICE)] if is_ambiguous else [])]

    @cached_property
    def plain(self) -> str:
        """The text without comments and literals."""
        return self.reading.plain()

    @cached_property
    def directives(self) -> bytes:
        """All directives, one on each line."""
        parts = (self.reading.text[each.start : each.end] for each in self.reading.directives)
        return "\n".join(parts).encode(errors="surrogateescape")

    @property
    def reading(self) -> Reading:
        """The reading of NVRTC and nvcc's front end."""
        return self.readings[0]


@lru_cache(maxsize=2000)
def read_text(content: bytes) -> Text:
    """Read `content`. Cached, since many questions are about one text, and units share headers."""
    return Text(content)
