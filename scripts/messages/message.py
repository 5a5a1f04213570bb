"""A message as the page shows it: what stands in it always, and names for what differs."""

# ruff: noqa: RUF001 - what differs in a message stands in these brackets

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Message", "has_words", "placeholder"]

# What a thing is called is the thing, to who reads a message.
_THE_THING_ITSELF = {"expression", "get", "name", "text", "title", "value", "where"}
_IN_PLAIN_WORDS = {"here": "where", "key path": "where", "qualname": "type", "strerror": "reason"}


@dataclass(frozen=True, order=True)
class Message:
    """`text`, which an exception or a warning of the class `kind` shows; `file` makes it."""

    file: Path
    line: int
    kind: str
    text: str


def placeholder(*names: str) -> str:
    """What stands for a value: the last of the `names` that lead to it."""
    words = [name.strip("_").replace("_", " ").lower() for name in names]
    word = next((word for word in reversed(words) if word not in _THE_THING_ITSELF), words[-1])
    return f"‹{_IN_PLAIN_WORDS.get(word, word)}›"


def has_words(text: str) -> bool:
    """Whether `text` says something of its own, besides the values in it."""
    return re.search("[a-z]{2}", re.sub("‹.*?›", "", text)) is not None
