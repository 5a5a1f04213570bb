"""The text of sources as declarations are sought in it: without comments, and macros expanded."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import NamedTuple

from cuda_ext.compiler.name_expressions import split_arguments

WORD = re.compile(r"[^\W\d]\w*")
SPECIFIERS = r"__(?:(?:tile_)?global|device|constant|managed|tile)__"
# Without those that most functions have.
_NOT_OF_FUNCTIONS = SPECIFIERS.replace("device|", "").replace("|tile)", ")")
_TEXT = re.compile(
    r'(?P<linkage>\bextern\s*"C")|//(?:\\\r?\n|[^\n])*|/\*.*?(?:\*/|\Z)'
    r'|\b(?:u8|[uUL])?R"(?P<fence>[^()\\\s"]*)\(.*?(?:\)(?P=fence)"|\Z)'
    r"|\"(?:\\.|[^\"\\\n])*\"|(?<![0-9a-fA-F])'(?:\\.|[^'\\\n])*'|\\\r?\n",
    re.DOTALL,
)
C_LINKAGE = "extern_C"
# With its continued lines, before comments are removed: few lines of headers are definitions.
_DEFINITION = re.compile(
    rb"(?m)^[ \t]*(?:/\*.*?\*/[ \t]*)*#[ \t]*define\b((?:[^\n\\]|\\\r?\n|\\(?!\r?\n))*)$"
)
_CONDITION = re.compile(rb"(?m)^[ \t]*#[ \t]*if")
_END_OF_CONDITION = re.compile(rb"(?m)^[ \t]*#[ \t]*endif")
_INCLUDE_GUARD = re.compile(
    rb"(?m)^[ \t]*#[ \t]*if(?:ndef[ \t]+|[ \t]*![ \t]*defined\b[ \t(]*)(\w+)[ \t)]*\s+#[ \t]*define[ \t]+\1\b"
)
_MACRO = re.compile(r"\s*(\w+)(\(([^)]*)\))?(.*)", re.DOTALL)


def plain_text(content: bytes, spell_comment: Callable[[str], str] = lambda _: " ") -> str:
    """The text without literals and continued lines; `spell_comment` gives what replaces a comment."""

    def spell(match: re.Match[str]) -> str:
        if match["linkage"]:
            return f"{C_LINKAGE} "
        return spell_comment(match[0]) if match[0].startswith(("//", "/*")) else " "

    return _TEXT.sub(spell, content.decode(errors="replace"))


def closing_bracket(text: str, start: int, brackets: str = "()") -> int:
    """The index of the bracket that closes the one before `start`."""
    depth = 1
    for match in re.compile(f"[{brackets}]").finditer(text, start):
        depth += 1 if match[0] == brackets[0] else -1
        if not depth:
            return match.start()
    return len(text)


class Macro(NamedTuple):
    """A macro, with its parameters unless it has none, and whether it itself declares something.

    One that is a name, and surely defined, is ``another_name``: that of a parameter may be one.
    """

    name: str
    parameters: tuple[str, ...] | None
    body: str
    declares: bool
    another_name: bool = False


@lru_cache(maxsize=1000)
def find_macros(content: bytes) -> tuple[Macro, ...]:
    """The macros that `content` defines."""
    macros = []
    for definition in _DEFINITION.finditer(content):
        if match := _MACRO.match(plain_text(definition[1])):
            name, is_function, parameters, body = match.groups()
            names = tuple(p.strip() for p in parameters.split(",")) if is_function else None
            declares = re.search(SPECIFIERS if is_function else _NOT_OF_FUNCTIONS, body)
            # A macro that is an argument may declare something.
            calls = any(p and re.search(rf"\b{re.escape(p)}\s*\(", body) for p in names or ())
            is_name = WORD.fullmatch(body.strip()) is not None
            another = is_name and not _may_be_off(content, definition.start(), name.encode())
            macros.append(Macro(name, names, body, bool(declares or calls), another))
    return tuple(macros)


def _may_be_off(content: bytes, start: int, name: bytes) -> bool:
    """Whether the macro `name`, defined at `start`, depends on a condition or is undefined somewhere."""
    conditions = len(_CONDITION.findall(content, 0, start)) - len(_INCLUDE_GUARD.findall(content, 0, start))
    ends = len(_END_OF_CONDITION.findall(content, 0, start))
    return conditions > ends or re.search(rb"#[ \t]*undef[ \t]+%b\b" % re.escape(name), content) is not None


def declaring_macros(macros: Sequence[Macro]) -> tuple[Macro, ...]:
    """The macros that declare something for the device, also by other macros."""
    found = {macro.name: macro for macro in macros if macro.declares}
    words = {macro: set(WORD.findall(macro.body)) for macro in macros} if found else {}
    while more := {m.name: m for m in words if m.name not in found and not found.keys().isdisjoint(words[m])}:
        found |= more
    return tuple(found.values())


@lru_cache(maxsize=1000)
def _uses(macros: tuple[Macro, ...]) -> tuple[dict[str, Macro], re.Pattern[str]]:
    """The `macros` by name, and what directives and uses of them look like."""
    by_name = {macro.name: macro for macro in macros}
    return by_name, re.compile(rf"(?m)^[ \t]*#.*$|\b({'|'.join(by_name)})\b")


def expand_macros(text: str, macros: tuple[Macro, ...], within: frozenset[str] = frozenset()) -> str:
    """Expand `macros` where `text` and their bodies use them, but those `within` whose bodies it is."""
    if not macros:
        return text
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
            arguments = split_arguments(text[opening.end() : start - 1])
            values = dict(zip(macro.parameters, arguments, strict=False))
        body = WORD.sub(lambda word, values=values: values.get(word[0], word[0]), macro.body)  # type: ignore[misc]
        body = re.sub(r"\s*##\s*", "", body)
        pieces += [" ", expand_macros(body, macros, within | {macro.name}), " "]
    return "".join([*pieces, text[start:]])
