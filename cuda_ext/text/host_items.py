"""Parts of a text that may be host code: how they are left out, and what may still mean them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import NamedTuple

from cuda_ext.text.brackets import closing_bracket, find_end
from cuda_ext.text.lexer import Reading, read_text

_UNEVALUATED = re.compile(r"\b(decltype|sizeof|alignof|noexcept|typeid|__typeof__|requires|concept)\b")


class Edit(NamedTuple):
    """A text that takes the place of another, between offsets of the text with joined lines."""

    start: int
    end: int
    instead: str = ""


class HostItem(NamedTuple):
    """A part of a text that can be left out, between offsets of the text with joined lines.

    It is on the lines from ``line`` to ``last``. If it is not ``certain``, only a compiler shows whether it
    is the host's. Of a function, one item leaves out the body, and a second, uncertain one all of it.
    """

    start: int
    end: int
    name: str
    line: int
    last: int
    certain: bool
    edits: tuple[Edit, ...]

    @property
    def is_whole(self) -> bool:
        """True if nothing is left of it."""
        return self.edits == (Edit(self.start, self.end),)

    @property
    def is_declared(self) -> bool:
        """True for a function whose declaration stays."""
        return self.edits[-1].instead == ";"

    @property
    def is_function(self) -> bool:
        """True if this leaves a function's declaration, perhaps with its body."""
        return self.is_declared or bool(self.edits[0].instead)

    @property
    def deleted(self) -> HostItem:
        """The declaration as a deleted function, so that a compiler shows the lines that use it."""
        return self._replace(edits=(*self.edits[:-1], self.edits[-1]._replace(instead=" = delete;")))


@lru_cache(maxsize=1000)
def unevaluated_text(content: bytes) -> str:
    """Return the parts of `content` whose expressions may not be evaluated, and the bodies of macros.

    >>> unevaluated_text(b"using T = decltype(f(1)); int x = sizeof(T) + g(x);").split()
    ['(f(1))', '(T)', '+', 'g(x)']
    """
    reading = read_text(content).reading
    text = read_structure(reading)
    parts = [reading.plain(d.body, d.end) for d in reading.directives if d.name == "define"]
    for match in _UNEVALUATED.finditer(text):
        is_clause = match[1] in ("requires", "concept")
        end = find_end(text, match.end(), ";{" if is_clause else ";{,)", "()")
        if is_clause and text.startswith("{", end):
            end = closing_bracket(text, end + 1, "{}")
        parts.append(text[match.end() : end])
    return " ".join(parts)


def leave_out(content: bytes, items: Iterable[HostItem]) -> bytes:
    """Return `content` without `items`. Lines keep their numbers, and directives within items stay."""
    reading = read_text(content).reading
    characters = [*reading.original, ""]
    whole = [item for item in items if item.is_whole]
    for item in items:
        if any(w.start <= item.start and item.end <= w.end and w != item for w in whole):
            continue
        for edit in item.edits:
            for start, end in _between_directives(reading, edit.start, edit.end):
                at = reading.original_of(start, end)
                characters[at] = re.sub(r"[^\r\n]", " ", reading.original[at])
            place = reading.origin(edit.start)
            characters[place] = f"{edit.instead}{characters[place]}"
    return "".join(characters).encode(errors="surrogateescape")


def _between_directives(reading: Reading, start: int, end: int) -> Iterator[tuple[int, int]]:
    for directive in reading.directives:
        if start < directive.start < end:
            yield start, directive.start
            start = directive.end
    if start < end:
        yield start, end


def read_structure(reading: Reading) -> str:
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
