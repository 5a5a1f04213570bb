"""The page of all messages that a user can meet, in Markdown.

Which these are follows from two rules. A message is one of an exception in ``cuda_ext/errors.py``, of an
``ImportError``, of what ``click`` shows, of a warning, or of CMake's ``FATAL_ERROR``; and under ``runtime``,
whose functions a user calls, of ``TypeError``, ``ValueError`` and ``FileExistsError`` too. All others end
within the package, or are mistakes of its own.

``page.toml`` says what stands beside the messages: the groups, each with its modules, and explanations.
"""

from __future__ import annotations

import ast
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatch
from functools import cache
from pathlib import Path
from typing import Any

from messages.cmake import in_cmake
from messages.cpp import in_cpp
from messages.message import Message
from messages.python import WARNING, Package

__all__ = ["as_markdown", "messages"]

_PACKAGE = Path(__file__).resolve().parents[2] / "cuda_ext"
_PAGE = tomllib.loads(Path(__file__).with_name("page.toml").read_text("utf-8"))
_OF_COMMANDS = {"BadParameter": "Exit code 2", "UsageError": "Exit code 2", "Failure": "Exit code 1"}
_OF_VALUES = frozenset({"FileExistsError", "TypeError", "ValueError"})
_HEADINGS = {**_OF_COMMANDS, "ConditionError": "After the condition", WARNING: "Told, and the build goes on"}


@cache
def messages() -> dict[str, list[Message]]:
    """All messages, by the title of the group that they belong to, in the order of their source."""
    found: dict[str, list[Message]] = {group["title"]: [] for group in _PAGE["groups"]}
    for message in _all_messages():
        place = message.file.relative_to(_PACKAGE).as_posix()
        group = next(g for g in _PAGE["groups"] if any(fnmatch(place, pattern) for pattern in g["modules"]))
        found[group["title"]].append(message)
    return found


def _all_messages() -> Iterable[Message]:
    kinds = frozenset(_exceptions()) | _OF_COMMANDS.keys() | {"ConditionError", "ImportError"}
    for name, module in Package(_PACKAGE).modules.items():
        of_values = _OF_VALUES if name.startswith("cuda_ext.runtime.") else frozenset()
        yield from sorted(module.messages(kinds | of_values))
    for path in sorted(_PACKAGE.rglob("*.cmake")):
        yield from in_cmake(path)
    for path in sorted(_PACKAGE.rglob("*.hpp")):
        yield from in_cpp(path)


def _exceptions() -> dict[str, ast.ClassDef]:
    tree = ast.parse((_PACKAGE / "errors.py").read_bytes())
    return {node.name: node for node in tree.body if isinstance(node, ast.ClassDef)}


def as_markdown() -> str:
    """The page. Raises :class:`ValueError` for an explanation of a message that does not exist."""
    explanations = {each["message"]: each["text"].strip() for each in _PAGE["explanations"]}
    by_group = messages()
    texts = [message.text for found in by_group.values() for message in found]
    for beginning in explanations:
        if not any(text.startswith(beginning) for text in texts):
            raise ValueError(f"scripts/messages/page.toml: no message begins with {beginning!r}")
    sections = [
        _section(group, by_group[group["title"]], explanations)
        for group in _PAGE["groups"]
        if by_group[group["title"]]
    ]
    return "\n\n".join([_PAGE["introduction"].strip(), *sections, _classes()]) + "\n"


def _section(group: Mapping[str, Any], found: Iterable[Message], explanations: Mapping[str, str]) -> str:
    by_kind: dict[str, list[str]] = {}
    for message in found:
        texts = by_kind.setdefault(message.kind, [])
        if message.text not in texts:
            texts.append(message.text)
    parts = [f"## {group['title']}", group["text"].strip()]
    for kind, texts in by_kind.items():
        parts.append(f"{_HEADINGS.get(kind, f'`{kind}`')}:")
        parts.append("\n".join(_items(texts, explanations)))
    return "\n\n".join(parts)


def _items(texts: Sequence[str], explanations: Mapping[str, str]) -> Iterator[str]:
    """`texts` as items of a list, each explanation below the last that it is about."""
    about = {
        max(number for number, text in enumerate(texts) if text.startswith(beginning)): explanation
        for beginning, explanation in explanations.items()
        if any(text.startswith(beginning) for text in texts)
    }
    for number, text in enumerate(texts):
        fence = "``" if "`" in text else "`"
        yield f"- {fence}{' '.join(text.split())}{fence}"
        if explanation := about.get(number):
            yield f"\n  {' '.join(explanation.split())}\n"


def _classes() -> str:
    """The exceptions, each with the one that it is a case of, and what it means."""
    rows = [
        f"| `{name}` | {', '.join(f'`{ast.unparse(base)}`' for base in node.bases)} | {_first_line(node)} |"
        for name, node in _exceptions().items()
    ]
    head = ["| class | is a | meaning |", "| --- | --- | --- |"]
    return "\n".join(["## Classes", "", _PAGE["classes"].strip(), "", *head, *rows])


def _first_line(node: ast.ClassDef) -> str:
    document = ast.get_docstring(node) or ""
    return document.partition("\n\n")[0].replace("\n", " ").replace("``", "`")
