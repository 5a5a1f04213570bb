"""Macros that a text defines, and their expansion."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple

from cuda_ext.text.brackets import closing_bracket, split_arguments
from cuda_ext.text.lexer import GAP, Reading, read_text

WORD = re.compile(r"[^\W\d]\w*")
SPECIFIERS = r"__(?:(?:tile_)?global|device|constant|managed|tile)__"
# Without those that most functions have.
_NOT_OF_FUNCTIONS = SPECIFIERS.replace("device|", "").replace("|tile)", ")")
_DEFINITION = re.compile(r"\s*(\w+)(\(([^)]*)\))?(.*)", re.DOTALL)
# A condition that asks for what the next directive defines.
GUARD = re.compile(
    rf"[ \t\f\v]*(?:#|%:){GAP}if(?:ndef\b|{GAP}!{GAP}defined\b){GAP}\(?{GAP}(\w+){GAP}\)?{GAP}(?://[^\n]*)?\n"
    rf"(?:\s|//[^\n]*|/\*(?s:.*?)\*/)*+(?:#|%:){GAP}define{GAP}\1\b"
)
# The word before a parameter that is pasted to it, where the result may be the call of a macro.
_CALLS_OF_PASTED = re.compile(r"(\w+)##\w+\s*\(")
_PARAMETER = re.compile(r"(?:(?P<sign>##?)\s*)?\b(?P<name>[^\W\d]\w*)\b(?=(?P<pasted>\s*##)?)")
_STRINGIZED = re.compile(r"(?<!#)#(?!#)\s*\w+")
# What separates an expansion from its neighbours: nothing in a string, a space elsewhere.
_SEAM = "\x1f"
_MOST_EXPANSIONS = 256


class Macro(NamedTuple):
    """A macro, with its parameters unless it has none, and whether it itself declares something.

    ``body`` has no literals; ``spelled`` is as it was written. One that is a name, and surely defined, is
    ``another_name``: that of a parameter may be one.
    """

    name: str
    parameters: tuple[str, ...] | None
    body: str
    spelled: str
    declares: bool = False
    another_name: bool = False


@lru_cache(maxsize=1000)
def find_macros(content: bytes) -> tuple[Macro, ...]:
    """Return the macros that `content` defines."""
    if b"define" not in content:
        return ()
    found = dict.fromkeys(macro for reading in read_text(content).readings for macro in _macros_of(reading))
    return tuple(found)


def definitions_in(content: bytes) -> set[tuple[str, str, str]]:
    """List the macros that `content` defines or undefines: names, directives, and their contents."""
    if b"def" not in content:
        return set()
    reading = read_text(content).reading
    found = (d for d in reading.directives if d.name in ("define", "undef"))
    bodies = ((d.name, reading.without_comments(d.body, d.end)) for d in found)
    return {(match[1], name, match[0]) for name, body in bodies if (match := _DEFINITION.match(body))}


def _macros_of(reading: Reading) -> Iterator[Macro]:
    uncertain = {_first_word(reading, d.body) for d in reading.directives if d.name == "undef"}
    conditions: list[bool] = []  # of those that are open, which are no include guards
    for directive in reading.directives:
        if directive.name in ("if", "ifdef", "ifndef"):
            conditions.append(not GUARD.match(reading.text, directive.start))
        elif directive.name == "endif" and conditions:
            conditions.pop()
        elif directive.name == "define":
            spelled = reading.without_comments(directive.body, directive.end)
            if match := _DEFINITION.match(spelled):
                is_off = any(conditions) or match[1] in uncertain
                plain = _DEFINITION.match(reading.plain(directive.body, directive.end))
                yield _macro(match, plain[4] if plain else "", is_off)


def _macro(match: re.Match[str], plain: str, is_off: bool) -> Macro:
    name, is_function, parameters, spelled = match.groups()
    body = _STRINGIZED.sub(" ", plain)
    names = tuple(p.strip() for p in parameters.split(",")) if is_function else None
    declares = re.search(SPECIFIERS if is_function else _NOT_OF_FUNCTIONS, body)
    # A macro that is an argument may declare something, unless it is pasted to another word.
    calls = any(p and re.search(rf"(?<!##)\b{re.escape(p)}\s*\(", body) for p in names or ())
    another = WORD.fullmatch(body.strip()) is not None and not is_off
    return Macro(name, names, body, spelled.strip(), bool(declares or calls), another)


def _first_word(reading: Reading, start: int) -> str:
    found = WORD.search(reading.text, start)
    return found[0] if found else ""


def declaring_macros(macros: Sequence[Macro]) -> tuple[Macro, ...]:
    """Return the macros that declare something for the device, also by other macros."""
    found = {macro.name: macro for macro in macros if macro.declares}
    words = {macro: set(WORD.findall(macro.body)) for macro in macros} if found else {}
    pasted = {macro: tuple(_CALLS_OF_PASTED.findall(macro.body)) for macro in words}

    def uses(macro: Macro) -> bool:
        return not found.keys().isdisjoint(words[macro]) or any(n.startswith(pasted[macro]) for n in found)

    while more := {macro.name: macro for macro in words if macro.name not in found and uses(macro)}:
        found |= more
    return tuple(found.values())


@lru_cache(maxsize=1000)
def _uses(macros: tuple[Macro, ...]) -> tuple[dict[str, Macro], re.Pattern[str]]:
    """Return the `macros` by name, and what directives and uses of them look like."""
    by_name = {macro.name: macro for macro in macros}
    return by_name, re.compile(rf"(?m)^[ \t]*#.*$|\b({'|'.join(by_name)})\b")


def expand_macros(text: str, macros: tuple[Macro, ...], within: frozenset[str] = frozenset()) -> str:
    """Expand `macros` where `text` and their bodies use them, but those `within` whose bodies it is."""
    return _expand(text, macros, within).replace(_SEAM, " ") if macros else text


def expansions(text: str, macros: Iterable[Macro]) -> list[str]:
    """List all texts that `text`, a part of a directive, may become by any of its macros' definitions.

    >>> macros = find_macros(b"#define S(x) Q(x)\\n#define Q(x) #x\\n#define D one\\n#define D two")
    >>> expansions("S(D/a.h)", macros)
    ['"one/a.h"', '"two/a.h"']
    """
    defined: dict[str, list[Macro]] = {}
    for macro in macros:
        defined.setdefault(macro.name, []).append(macro._replace(body=macro.spelled))
    reached: dict[str, list[Macro]] = {}
    pending = WORD.findall(text)
    while pending:
        name = pending.pop()
        if name in defined and name not in reached:
            reached[name] = defined[name]
            pending += (word for macro in defined[name] for word in WORD.findall(macro.body))
    choices = itertools.islice(itertools.product(*reached.values()), _MOST_EXPANSIONS)
    found = (_expand(text, choice, frozenset()).replace(_SEAM, "") if choice else text for choice in choices)
    return list(dict.fromkeys(found))


def _expand(text: str, macros: tuple[Macro, ...], within: frozenset[str]) -> str:
    by_name, uses = _uses(macros)
    pieces, start = [], 0
    while match := uses.search(text, start):
        pieces.append(text[start : match.start()])
        start = match.end()
        if match[1] is None or match[1] in within:
            pieces.append(match[0])
            continue
        macro = by_name[match[1]]
        values: dict[str, str] = {}
        if macro.parameters is not None:
            opening = re.compile(r"\s*\(").match(text, start)
            if opening is None:
                pieces.append(match[0])
                continue
            start = closing_bracket(text, opening.end()) + 1
            values = _values(macro.parameters, text[opening.end() : start - 1])
        expanded = {name: _expand(value, macros, within) for name, value in values.items()}
        body = _substitute(macro.body, values, expanded)
        pieces += [_SEAM, _expand(body, macros, within | {macro.name}), _SEAM]
    return "".join([*pieces, text[start:]])


def _values(parameters: Sequence[str], arguments: str) -> dict[str, str]:
    """Return the text that each of the `parameters` of a macro stands for."""
    values = list(split_arguments(arguments))
    if parameters and parameters[-1].endswith("..."):
        fixed = len(parameters) - 1
        values = [*values[:fixed], ", ".join(values[fixed:])]
        parameters = [*parameters[:fixed], parameters[-1][:-3].strip() or "__VA_ARGS__"]
    return dict(zip(parameters, values, strict=False))


def _substitute(body: str, values: Mapping[str, str], expanded: Mapping[str, str]) -> str:
    def value(match: re.Match[str]) -> str:
        name, sign = match.group("name", "sign")
        if name not in values:
            return match[0]
        if sign == "#":
            return '"{}"'.format(values[name].replace(_SEAM, ""))
        if sign or match["pasted"]:
            return f"{sign or ''}{values[name]}"
        return match[0].removesuffix(name) + expanded[name]

    return re.sub(r"\s*##\s*", "", _PARAMETER.sub(value, body))
