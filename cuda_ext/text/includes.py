"""The headers that a text names: in directives, in tests for them, and by macros."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import lru_cache
from typing import NamedTuple

from cuda_ext.text.directives import has_directives
from cuda_ext.text.lexer import GAP, HEADER_NAME, INCLUDES, Directive, Reading, read_text
from cuda_ext.text.macros import Macro, expansions, find_macros

_TEST = "__has_include"
_CONDITIONS = ("if", "elif")
_NAMED = re.compile(rf"{GAP}({HEADER_NAME})")
# An argument that is the name of a header, with the word before the brackets.
_ARGUMENT = re.compile(rf"(?:\b(\w+){GAP}\(|,){GAP}({HEADER_NAME})")
_TEST_OF_NAME = re.compile(rf"\b({_TEST}\w*){GAP}\({GAP}({HEADER_NAME})")
_TEST_BY_MACRO = re.compile(rf"\b{_TEST}\w*{GAP}\({GAP}[^\W\d]")
_CALL = re.compile(rf"\b(?!defined\b|__has_)[^\W\d]\w*{GAP}\(|{_TEST_BY_MACRO.pattern}")
_EXPANDED_NAME = re.compile(r"\s*(?:<(?P<angled>[^\n]*)>|\"(?P<quoted>[^\"\n]+)\")")
_EXPANDED_TEST = re.compile(rf"\b{_TEST}\w*\s*\({_EXPANDED_NAME.pattern}\s*\)")
# An include of what is no header, and names that lead to any file of this machine.
_EMBEDDING = "embed"
OUTSIDE = re.compile(r"/|\\|[A-Za-z]:|(?s:.*)\.\.")


class Include(NamedTuple):
    """A header that a text names, between these offsets of the text as it is written.

    ``word`` is that of the directive or test, between offsets of its own; it is empty for an argument of a
    macro that may be a test.
    """

    start: int
    end: int
    name: str
    is_quoted: bool
    is_test: bool
    word: str
    word_start: int
    word_end: int


class NameByMacro(NamedTuple):
    """A part of a directive that may name headers once its macros are expanded."""

    text: str
    is_test: bool


class Includes(NamedTuple):
    """The headers that a text names, in order, and what may name further ones.

    With ``tests_macros`` a test has an argument that is a macro or its parameter.
    """

    named: tuple[Include, ...] = ()
    by_macro: tuple[NameByMacro, ...] = ()
    tests_macros: bool = False
    embeds: bool = False

    @property
    def may_name_more(self) -> bool:
        """True if macros make the names of headers in includes, or in tests that the text defines."""
        return self.tests_macros or any(not part.is_test for part in self.by_macro)


@lru_cache(maxsize=2000)
def find_includes(content: bytes) -> Includes:
    """Find the headers that `content` names under any condition. Offsets are those of its decoded text."""
    if not has_directives(content):
        return Includes()
    named: dict[tuple[int, int], Include] = {}
    by_macro: dict[NameByMacro, None] = {}
    tests_macros = embeds = False
    for reading in read_text(content).readings:
        for directive in reading.directives:
            tests_macros |= _TEST_BY_MACRO.search(reading.text, directive.body, directive.end) is not None
            embeds |= directive.name == _EMBEDDING
            for found in _names_of(reading, directive):
                if isinstance(found, Include):
                    named.setdefault((found.start, found.end), found)
                else:
                    by_macro[found] = None
    return Includes(tuple(named[key] for key in sorted(named)), tuple(by_macro), tests_macros, embeds)


def _names_of(reading: Reading, directive: Directive) -> Iterator[Include | NameByMacro]:
    text, (name, start, body, end) = reading.text, directive
    if name in INCLUDES:
        if match := _NAMED.match(text, body, end):
            at = text.index(name, start)
            yield _include(reading, match.span(1), name, (at, at + len(name)), is_test=False)
        elif rest := reading.without_comments(body, end).strip():
            yield NameByMacro(rest, is_test=False)
    elif name in _CONDITIONS or (name == "define" and _TEST in text[body:end]):
        pattern = _ARGUMENT if name in _CONDITIONS else _TEST_OF_NAME
        for match in pattern.finditer(text, body, end):
            word = match[1] or ""
            yield _include(
                reading, match.span(2), word if word.startswith(_TEST) else "", match.span(1), is_test=True
            )
        if name in _CONDITIONS and _CALL.search(text, body, end):
            yield NameByMacro(reading.without_comments(body, end).strip(), is_test=True)


def _include(
    reading: Reading, span: tuple[int, int], word: str, word_span: tuple[int, int], *, is_test: bool
) -> Include:
    spelled, at, of_word = reading.text[slice(*span)], reading.original_of(*span), slice(0, 0)
    if word:
        of_word = reading.original_of(*word_span)
    return Include(
        at.start, at.stop, spelled[1:-1], spelled[0] == '"', is_test, word, of_word.start, of_word.stop
    )


def leading_headers(content: bytes) -> tuple[str, ...]:
    """Return the headers that `content` includes before anything else, as the tool chain's are included."""
    if b"<" not in content:
        return ()
    names: list[str] = []
    position, reading = 0, read_text(content).reading
    for directive in reading.directives:
        header = _NAMED.match(reading.text, directive.body, directive.end)
        is_first = not reading.without_comments(position, directive.start).strip()
        if not (is_first and directive.name == "include" and header and header[1].startswith("<")):
            break
        names.append(header[1][1:-1])
        position = directive.end
    return tuple(names)


class PossibleName(NamedTuple):
    """A header that the text `includer` may name by macros."""

    includer: str
    name: str
    is_quoted: bool
    is_test: bool


def names_by_macros(texts: Mapping[str, bytes], definitions: bytes = b"") -> set[PossibleName]:
    """List the headers that `texts` may name, with any values of their macros and of `definitions`."""
    using = {name: found for name, text in texts.items() if (found := find_includes(text).by_macro)}
    if not using:
        return set()
    macros = [macro for text in (definitions, *texts.values()) for macro in find_macros(text)]
    may_test = any(_TEST in macro.spelled for macro in macros)
    return {
        PossibleName(includer, name, is_quoted, part.is_test)
        for includer, parts in using.items()
        for part in parts
        if not part.is_test or may_test or _TEST in part.text
        for name, is_quoted in _expanded_names(part, macros)
    }


def names_in_macros(content: bytes) -> frozenset[str]:
    """List the names in quotes or angle brackets, such as headers, in the macros of `content`."""
    spelled = (name for macro in find_macros(content) for name in re.findall(HEADER_NAME, macro.spelled))
    return frozenset(name[1:-1] for name in spelled)


def _expanded_names(part: NameByMacro, macros: Iterable[Macro]) -> Iterator[tuple[str, bool]]:
    pattern = _EXPANDED_TEST if part.is_test else _EXPANDED_NAME
    for text in expansions(part.text, macros):
        for match in pattern.finditer(text) if part.is_test else filter(None, [pattern.match(text)]):
            name: str = match["quoted"] or match["angled"] or ""
            if name:
                yield name, match["quoted"] is not None


def rewrite_includes(content: bytes, spell: Callable[[Include], tuple[str, str] | None]) -> bytes:
    """Replace the words and names of includes by what `spell` returns. Lines keep their numbers."""
    if not (named := find_includes(content).named):
        return content
    text, start = content.decode(errors="surrogateescape"), 0
    parts: list[str] = []
    for include in named:
        if (spelled := spell(include)) is None:
            continue
        word, name = spelled
        for begin, end, replacement in (
            (include.word_start, include.word_end, word),
            (include.start, include.end, name),
        ):
            if begin < end and replacement != include.word:
                continued = "\\\n" * text.count("\n", begin, end)
                parts += text[start:begin], replacement, continued
                start = end
    return "".join([*parts, text[start:]]).encode(errors="surrogateescape")


def names_its_includes(content: bytes) -> bool:
    """True if every include of `content` names a file of the project or of the tool chain.

    Others depend on a macro, or lead to any file of this machine.
    """
    found = find_includes(content)
    is_certain = not (found.may_name_more or found.embeds)
    return is_certain and not any(OUTSIDE.match(include.name) for include in found.named)
