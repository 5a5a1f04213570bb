"""Lists and brackets in CUDA text without comments: arguments, declarators and template arguments."""

from __future__ import annotations

import re
from collections.abc import Iterator

# Brackets and commas, besides literals and operators that hold them. An open quote is not searched for long.
_BRACKET = r"\d(?:'?[\w.])*|'(?:\\.|[^'\\]){0,64}'|\"(?:\\.|[^\"\\]){0,999}\"|->|<<|[<>]=|[()<>\[\]{},]"


def split_arguments(text: str) -> Iterator[str]:
    """Split `text`, a list of arguments or declarators, at the commas outside of brackets.

    >>> list(split_arguments("pair<int, float>, 256"))
    ['pair<int, float>', '256']
    """
    depth, start = 0, 0
    for match in re.finditer(_BRACKET, text, re.DOTALL):
        if match[0] == "," and not depth:
            yield text[start : match.start()].strip()
            start = match.end()
        depth += _step(match[0])
    if text[start:].strip():
        yield text[start:].strip()


def take_parentheses(text: str) -> tuple[str, str] | None:
    """Divide `text` into what the parentheses at its start enclose, and what follows them.

    >>> take_parentheses("(pair<int, float>) const")
    ('pair<int, float>', 'const')
    """
    depth = 0
    for match in re.finditer(_BRACKET, text, re.DOTALL):
        depth += _step(match[0])
        if not depth and match[0] != ",":
            break
    if depth or not text.startswith("("):
        return None
    return text[1 : match.start()].strip(), text[match.end() :].strip()


def _step(token: str) -> int:
    """Return the change of depth in brackets behind `token`."""
    return (token in "<([{") - (token in ">)]}")


def find_end(text: str, start: int, ends: str, brackets: str) -> int:
    """Find the first of `ends` from `start` on, outside of `brackets`; return its index, or the end."""
    depth = 0
    for match in re.compile(f"[{re.escape(ends + brackets)}]").finditer(text, start):
        if match[0] in ends and depth <= 0:
            return match.start()
        if match[0] in brackets:
            depth += _step(match[0])
    return len(text)


def closing_bracket(text: str, start: int, brackets: str = "()") -> int:
    """Return the index of the bracket that closes the one before `start`."""
    return find_end(text, start, brackets[1], brackets)
