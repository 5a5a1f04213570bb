"""Find the structures that a source defines, and the names of their members, without compiling it.

What is found here is a proposal, as in :mod:`~cuda_ext.text.declarations`: the compiler says which of the
names are members, and of which types. Macros of the project are expanded; conditions are not evaluated.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from typing import NamedTuple

from cuda_ext.text.brackets import closing_bracket, find_end
from cuda_ext.text.declarations import declared_variables, names_in
from cuda_ext.text.lexer import read_text
from cuda_ext.text.macros import WORD, Macro, expand_macros, find_macros


class DeclaredMember(NamedTuple):
    """A name that may be a member of a structure.

    It ``is_certain`` unless it depends on a condition or a macro. A private member and a bit-field
    ``is_hidden``: neither has an offset that other code may ask for. It ``is_unnamed`` if its type is.
    """

    name: str
    is_certain: bool = True
    is_hidden: bool = False
    is_unnamed: bool = False


class DeclaredStructure(NamedTuple):
    """A structure or alias. ``scopes`` are its namespaces and classes, as far as they are known.

    ``words`` are all words of its definition, and ``bases`` the names of its bases. It ``is_clear`` if each
    of its statements was understood. An alias has words alone.
    """

    name: str
    scopes: tuple[str, ...]
    words: frozenset[str]
    members: tuple[DeclaredMember, ...] = ()
    bases: tuple[str, ...] = ()
    is_clear: bool = True
    is_alias: bool = False

    @property
    def qualified(self) -> str:
        return "::".join([*self.scopes, self.name])


_BRACKETED = re.compile(r"\b(?:alignas|__align__|__attribute__|__declspec)\s*\(|\btemplate\s*<")
_ATTRIBUTES = re.compile(r"\[\[(?:(?!\[\[).)*?\]\]")
_DEFINITION = re.compile(
    r"\b(?P<kind>struct|class|union)\b|\bnamespace\b(?P<namespace>[^;{}=()]*)\{"
    r"|\busing\s+(?P<alias>\w+)\s*=(?P<meaning>[^;{}]*);|\btypedef\b(?P<typedef>[^;{}]*?)\b(?P<new>\w+)\s*;"
)
_TYPEDEF = re.compile(r"\btypedef\s+(?:const\s+)?\Z")
# What divides the body of a structure.
_PART = re.compile(
    r"(?m)^[ \t]*#[ \t]*(?P<directive>\w+).*$|(?P<access>\b(?:public|private|protected)\b)\s*:(?!:)|[{};]"
)
_SKIPPED = re.compile(r"\s*(?:using|typedef|friend|static|constexpr|inline)\b|[^(]*\boperator\b")
_NESTED = re.compile(
    r"\s*(?:const\s+|volatile\s+|mutable\s+)*(?P<kind>struct|class|union|enum)\b(?P<name>[^{]*)\{"
)
_KEYWORDS = re.compile(r"\b(?:struct|class|union|enum|typename|mutable)\b")
_BIT_FIELD = re.compile(r"(?<!:):(?!:)")
_FIRST_WORD = re.compile(r"\s*(\w+)")
# A statement that begins so is the use of a macro, unless it declares a constructor.
_CALL = re.compile(r"\s*(\w+)\s*\((?!\s*[*&])")
_NOT_BASES = frozenset(["public", "private", "protected", "virtual", "typename", "final"])


def find_structures(texts: Sequence[bytes]) -> tuple[DeclaredStructure, ...]:
    """Find the structures that `texts`, a source and the headers of its project, define anywhere."""
    macros = tuple(macro for text in texts for macro in find_macros(text))
    return tuple(structure for text in texts for structure in _find(text, macros))


@lru_cache(maxsize=1000)
def _find(content: bytes, macros: tuple[Macro, ...]) -> tuple[DeclaredStructure, ...]:
    """Cached, since units share their headers."""
    text = _structures_alone(read_text(content).plain)
    found: list[DeclaredStructure] = []
    scopes: list[tuple[int, str]] = []  # each with its end
    for mark in _DEFINITION.finditer(text):
        while scopes and mark.start() > scopes[-1][0]:
            scopes.pop()
        names = tuple(name for _, name in scopes if name)
        if mark["namespace"] is not None:
            end = closing_bracket(text, mark.end(), "{}")
            scopes.append((end, "::".join(w for w in WORD.findall(mark["namespace"]) if w != "inline")))
        elif mark["kind"]:
            if read := _read_definition(text, mark, macros, names):
                found.append(read[0])
                scopes.append((read[1], read[0].name))
        else:
            meaning = mark["meaning"] or mark["typedef"] or ""
            words = frozenset(WORD.findall(expand_macros(meaning, macros)))
            found.append(DeclaredStructure(mark["alias"] or mark["new"], names, words, is_alias=True))
    return tuple(found)


def _structures_alone(text: str) -> str:
    """Remove attributes, and the heads of templates, which hold the word ``class``."""
    text = _ATTRIBUTES.sub(" ", text)
    parts, start = [], 0
    for match in _BRACKETED.finditer(text):
        if match.start() >= start:
            parts.append(text[start : match.start()])
            start = find_end(text, match.end(), ")" if match[0].endswith("(") else ">", "()<>") + 1
    return " ".join([*parts, text[start:]])


def _read_definition(
    text: str, mark: re.Match[str], macros: tuple[Macro, ...], scopes: tuple[str, ...]
) -> tuple[DeclaredStructure, int] | None:
    """Read the structure whose keyword is at `mark`, with the offset of its last brace."""
    start = find_end(text, mark.end(), "{;=)", "()<>")
    if not text.startswith("{", start):
        return None
    name, bases = _divide_head(text[mark.end() : start])
    end = closing_bracket(text, start + 1, "{}")
    if not name and _TYPEDEF.search(text[max(0, mark.start() - 100) : mark.start()]):
        declared = _FIRST_WORD.match(text, end + 1)
        name = declared[1] if declared else ""
    body = expand_macros(text[start + 1 : end], macros)
    members, is_clear = _members(body, mark["kind"] != "class", name)
    words = frozenset(WORD.findall(f"{bases} {body}"))
    return DeclaredStructure(name, scopes, words, members, _base_names(bases), is_clear), end


def _divide_head(head: str) -> tuple[str, str]:
    """Divide what precedes the brace of a structure: its name, and its bases behind a colon."""
    colon = _BIT_FIELD.search(head)
    own, bases = (head[: colon.start()], head[colon.end() :]) if colon else (head, "")
    own = own.partition("<")[0]
    words = [word for word in WORD.findall(own[own.rfind(")") + 1 :]) if word != "final"]
    return (words[-1] if words else ""), bases


def _base_names(bases: str) -> tuple[str, ...]:
    while (outer := re.sub(r"<[^<>]*>", " ", bases)) != bases:
        bases = outer
    names = (WORD.findall(base) for base in bases.split(","))
    return tuple(words[-1] for each in names if (words := [w for w in each if w not in _NOT_BASES]))


def _members(body: str, is_public: bool, name: str) -> tuple[tuple[DeclaredMember, ...], bool]:
    """List the members in the `body` of `name`; return True if each of its statements was understood."""
    found: list[DeclaredMember] = []
    is_clear = True
    for statement, public, is_certain in _statements(body, is_public):
        text, is_unnamed = statement, False
        if nested := _NESTED.match(text):
            end = closing_bracket(text, nested.end(), "{}")
            inner, text = text[nested.end() : end], text[end + 1 :]
            is_unnamed = not _divide_head(nested["name"])[0]
            if not text.strip() and nested["kind"] != "enum" and is_unnamed:
                # The members of an anonymous one are those of the outer one.
                members, inner_is_clear = _members(inner, nested["kind"] != "class", "")
                found += (
                    m._replace(is_certain=m.is_certain and is_certain, is_hidden=m.is_hidden or not public)
                    for m in members
                )
                is_clear = is_clear and inner_is_clear
                continue
            text = f"{name} {text}" if text.strip() else ""
        if not text.strip() or _SKIPPED.match(text):
            continue
        text = _KEYWORDS.sub(" ", text)
        call = _CALL.match(text)
        names = None if call and call[1] != name else declared_variables(_without_braces(text))
        if names is None:
            is_clear = False
            found += (DeclaredMember(word, is_certain=False) for word in names_in(text))
            continue
        is_hidden = not public or (_BIT_FIELD.search(text) is not None and "?" not in text)
        found += (DeclaredMember(each, is_certain, is_hidden, is_unnamed) for each in names)
    return tuple(found), is_clear


def _statements(body: str, is_public: bool) -> Iterator[tuple[str, bool, bool]]:
    """Yield the statements of a structure: whether each is public, and depends on no condition."""
    start = position = 0
    conditions = 0
    while mark := _PART.search(body, position):
        position = mark.end()
        if mark["directive"]:
            conditions += mark["directive"].startswith("if")
            conditions -= mark["directive"] == "endif"
            body = body[: mark.start()] + " " * (position - mark.start()) + body[position:]
        elif mark["access"]:
            is_public = mark["access"] == "public"
            start = position
        elif mark[0] == "{":
            position = closing_bracket(body, position, "{}") + 1
            head = body[start : mark.start()]
            if "(" in head and not _NESTED.match(body, start) and "=" not in head:  # a function
                # Members may be initialised with braces before its body.
                while follows := re.compile(r"\s*[,{]").match(body, position):
                    opening = body.find("{", follows.end() - 1)
                    if opening < 0:
                        break
                    position = closing_bracket(body, opening + 1, "{}") + 1
                start = position
        else:
            yield body[start : mark.start()], is_public, not conditions
            start = position


def _without_braces(text: str) -> str:
    while (outer := re.sub(r"\{[^{}]*\}", " ", text)) != text:
        text = outer
    return text


def reachable(structures: Iterable[DeclaredStructure], words: Iterable[str]) -> list[DeclaredStructure]:
    """List the `structures` that `words` name, and those that their definitions name, nearest first."""
    by_name: dict[str, list[DeclaredStructure]] = {}
    for structure in structures:
        # One without a name belongs to the one around it.
        name = structure.name or (structure.scopes[-1] if structure.scopes else "")
        by_name.setdefault(name, []).append(structure)
    found: dict[DeclaredStructure, None] = {}
    pending = sorted(by_name.keys() & set(words))
    known = set(pending)
    while pending:
        more: set[str] = set()
        for structure in (each for name in pending for each in by_name[name]):
            found.setdefault(structure)
            more |= structure.words
        pending = sorted((more & by_name.keys()) - known)
        known.update(pending)
    return [*found]
