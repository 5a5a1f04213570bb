"""Pages of the documentation as blocks of code, in their order. docs/about.md says what each kind means."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

__all__ = ["Block", "commands", "merged", "read_blocks", "toml_text", "unused_files"]

_FENCE = re.compile(r"(?P<indent> *)(?P<fence>`{3,}|:{3,})(?P<info>[^`]*)")
_OPTION = re.compile(r":([\w-]+): *(.*)")
_CODE = ("{code-block}", "{code}", "{sourcecode}")
# Commands that compile what a project's own files name.
_BUILDS = re.compile(r"(pip (install|wheel)\b.* \.|cmake --build \w+)( |$)")


@dataclass(frozen=True)
class Block:
    """A block of code. ``line`` is that of its first line of code; ``file`` its caption, or empty."""

    page: Path
    line: int
    language: str
    text: str
    file: str = ""
    classes: frozenset[str] = frozenset()

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"


def read_blocks(page: Path) -> list[Block]:
    """The blocks of a Markdown file. Other directives are no code, but may have some in them."""
    return list(_blocks(page, page.read_text(encoding="utf-8").splitlines()))


def _blocks(page: Path, lines: list[str]) -> Iterator[Block]:
    number = 0
    while number < len(lines):
        opening = _FENCE.fullmatch(lines[number])
        number += 1
        if opening is None:
            continue
        directive, _, argument = opening["info"].strip().partition(" ")
        if directive.startswith("{") and directive not in _CODE:
            continue  # what is in it is read on; its end opens nothing that has an end
        if opening["fence"][0] == ":" or not opening["info"].strip():
            continue
        language = argument.strip() if directive in _CODE else directive
        end = number
        while end < len(lines) and lines[end].strip() != opening["fence"]:
            end += 1
        code = [line.removeprefix(opening["indent"]) for line in lines[number:end]]
        first = number + 1
        options: dict[str, str] = {}
        while directive in _CODE and code and (option := _OPTION.fullmatch(code[0])):
            options[option[1]] = option[2]
            del code[0]
            first += 1
        if directive in _CODE and code and not code[0]:
            del code[0]
            first += 1
        yield Block(
            page,
            first,
            language,
            "\n".join(code) + "\n",
            options.get("caption", "").strip("`"),
            frozenset(options.get("class", "").split()),
        )
        number = end + 1


def commands(text: str) -> Iterable[tuple[str, list[str]]]:
    """What is typed, and what is shown of what it prints."""
    lines = text.splitlines()
    starts = [number for number, line in enumerate(lines) if line.startswith("$ ")]
    assert starts[:1] == [0], f"a console block begins with a command:\n{text}"
    for start, end in zip(starts, [*starts[1:], len(lines)], strict=True):
        command = [lines[start].removeprefix("$ ")]
        rest = start + 1
        while command[-1].endswith("\\"):
            command.append(lines[rest].removeprefix("> "))
            rest += 1
        shown = [line.rstrip() for line in lines[rest:end] if line.strip() not in ("", "...")]
        yield re.sub(r"\s+# .*$", "", "\n".join(command)), shown


def unused_files(blocks: Sequence[Block]) -> list[Block]:
    """Files in C, C++ and Meson that no later command builds, or that nothing names which it reads."""
    unused = []
    for number, block in enumerate(blocks):
        if block.language not in ("c", "cpp", "meson"):
            continue
        typed = [c for b in blocks[number + 1 :] if b.language == "console" for c, _ in commands(b.text)]
        name = Path(block.file).name
        named = name == "meson.build" or any(name in b.text for b in blocks if b is not block)
        if not named or not any(map(_BUILDS.search, typed)):
            unused.append(block)
    return unused


def merged(table: Mapping[str, Any], more: Mapping[str, Any]) -> dict[str, Any]:
    """`table` with what `more` says: tables are merged, overrides appended, all else is replaced."""
    result = dict(table)
    for key, value in more.items():
        known = result.get(key)
        if isinstance(known, dict) and isinstance(value, dict):
            value = merged(known, value)
        elif isinstance(known, list) and isinstance(value, list) and key == "overrides":
            value = known + value
        result[key] = value
    return result


def toml_text(table: Mapping[str, Any]) -> str:
    """`table` as TOML, a line for each top-level key."""
    return "".join(f"{json.dumps(key)} = {_value(value)}\n" for key, value in table.items())


def _value(value: object) -> str:
    match value:
        case dict():
            return "{" + ", ".join(f"{json.dumps(key)} = {_value(item)}" for key, item in value.items()) + "}"
        case list():
            return "[" + ", ".join(map(_value, value)) + "]"
    return json.dumps(value)
