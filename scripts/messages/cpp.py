"""The messages of a C++ header: what ``failure(ErrorKind::load, {"...", value})`` puts together."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from messages.message import Message, has_words, placeholder

__all__ = ["in_cpp"]

# refused() is a failure() of one kind.
_BEGINNING = re.compile(r"\b(?:failure\(\s*ErrorKind::(\w+),|refused\()\s*\{")
# A string, a bracket, a comma, or anything between them.
_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[(\[{}\])]|,|[^"(\[{}\]),]+')


def in_cpp(path: Path) -> Iterator[Message]:
    """All messages in `path`, each with the class of the exception that carries it."""
    source = re.sub(r"^[ \t]*//.*$", "", path.read_text("utf-8"), flags=re.MULTILINE)
    for found in _BEGINNING.finditer(source):
        text = "".join(map(_text, _parts(source, found.end())))
        if has_words(text):
            kind = "".join(map(str.capitalize, (found[1] or "argument").split("_"))) + "Error"
            yield Message(path, source.count("\n", 0, found.start()) + 1, kind, text)


def _parts(source: str, start: int) -> Iterator[str]:
    """The expressions from `start` to the brace that ends their list."""
    part, depth = "", 0
    for token in _TOKEN.finditer(source, start):
        if depth == 0 and token[0] in (",", "}"):
            yield part.strip()
            part = ""
            if token[0] == "}":
                return
            continue
        depth += {"(": 1, "[": 1, "{": 1, ")": -1, "]": -1, "}": -1}.get(token[0], 0)
        part += token[0]


def _text(part: str) -> str:
    """What an expression is in a message: a string as it is, and a name for anything else."""
    strings = re.findall(r'"((?:[^"\\]|\\.)*)"', part)
    if strings and re.fullmatch(r'(\s*"(?:[^"\\]|\\.)*")+', part):
        return "".join(strings).replace('\\"', '"').replace("\\n", "\n")
    if words := [string for string in strings if " " in string.strip()]:
        return str(words[0])  # of a conditional expression
    if re.search(r"\(.*,", part):
        part = part.partition("(")[0]  # what the function gives, not what it takes
    return placeholder(*re.findall(r"[A-Za-z_]\w*", part)) if part else ""
