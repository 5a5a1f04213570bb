"""The messages of a CMake module: what ``message(FATAL_ERROR ...)`` says."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from messages.message import Message, has_words, placeholder

__all__ = ["in_cmake"]

_FATAL = re.compile(r'message\(FATAL_ERROR((?:\s*"(?:[^"\\]|\\.)*")+)\)')
_STRING = re.compile(r'"((?:[^"\\]|\\.)*)"')


def in_cmake(path: Path) -> Iterator[Message]:
    """All messages in `path` that end CMake, besides those that Python has made."""
    source = path.read_text("utf-8")
    for found in _FATAL.finditer(source):
        text = "".join(_STRING.findall(found[1])).replace('\\"', '"')
        text = re.sub(r"\$\{(\w+)\}", lambda variable: placeholder(variable[1]), text)
        if has_words(text):
            yield Message(path, source.count("\n", 0, found.start()) + 1, "FATAL_ERROR", text)
