"""What was found, as plain data."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal

__all__ = ["LEVELS", "Finding", "Level", "Section", "note", "ok", "problem", "warning"]

Level = Literal["ok", "note", "warning", "problem"]

# From good to bad. With a note all works, and it is not what everybody has; a problem has to be mended.
LEVELS: tuple[Level, ...] = ("ok", "note", "warning", "problem")


@dataclass(frozen=True, slots=True)
class Finding:
    """``text`` says of ``subject`` what was found, and ``details`` more of it, a line each.

    ``remedy`` says in words what to do, and ``command`` as what to type in any shell. One that is not ok has
    one of the two, unless ``text`` is a message of this package, which says it itself. ``facts`` are for
    programs.
    """

    level: Level
    subject: str
    text: str
    remedy: str = ""
    command: str = ""
    details: tuple[str, ...] = ()
    facts: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Section:
    """The findings about one matter."""

    title: str
    findings: tuple[Finding, ...]


_NONE: Mapping[str, object] = {}


def ok(
    subject: str, text: str, details: Iterable[str] = (), *, facts: Mapping[str, object] = _NONE
) -> Finding:
    return Finding("ok", subject, text, details=tuple(details), facts=facts)


def note(
    subject: str, text: str, remedy: str = "", command: str = "", *, facts: Mapping[str, object] = _NONE
) -> Finding:
    return Finding("note", subject, text, remedy, command, facts=facts)


def warning(
    subject: str, text: str, remedy: str = "", command: str = "", *, facts: Mapping[str, object] = _NONE
) -> Finding:
    return Finding("warning", subject, text, remedy, command, facts=facts)


def problem(
    subject: str, text: str, remedy: str = "", command: str = "", *, facts: Mapping[str, object] = _NONE
) -> Finding:
    return Finding("problem", subject, text, remedy, command, facts=facts)
