"""Findings on a terminal: each begins with its level, and what to do stands below it."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from functools import partial

from rich.console import Console
from rich.text import Text

from cuda_ext.cli.doctor.finding import LEVELS, Finding, Level, Section
from cuda_ext.formats.quantities import format_count

__all__ = ["show_sections"]

_STYLES: dict[Level, str] = {"ok": "green", "note": "cyan", "warning": "yellow", "problem": "bold red"}
# Columns of the marks.
_MARK = max(map(len, LEVELS)) + 2


def show_sections(sections: Sequence[Section]) -> None:
    """Print all of them, and a line that counts."""
    target = Console(highlight=False, markup=False, emoji=False)
    for section in sections:
        if section.findings:
            target.print(Text(section.title, "bold"))
            for finding in section.findings:
                _show(target, finding)
            target.print()
    target.print(_summary(sections))


def _show(target: Console, finding: Finding) -> None:
    mark = Text.assemble((f" {finding.level:<{_MARK - 1}}", _STYLES[finding.level]))
    separator = "" if finding.text.startswith("=") else ": "
    lines = _lines(target, f"{finding.subject}{separator}{finding.text}", _MARK)
    lines[0].stylize("bold", 0, len(finding.subject))
    _print(target, mark, lines)
    for detail in finding.details:
        _print(target, Text(" " * (_MARK + 2)), _lines(target, detail, _MARK + 2, "dim"))
    # What to do stands out, and is one line to copy where it is a command.
    arrow = "\N{RIGHTWARDS ARROW} " if target.encoding.startswith("utf") else "> "
    if finding.remedy:
        ending = ":" if finding.command and not finding.remedy.endswith("?") else ""
        lines = _lines(target, f"{finding.remedy}{ending}", _MARK + len(arrow))
        _print(target, Text(" " * _MARK + arrow), lines)
        arrow = "  "
    if finding.command:
        _print(target, Text(" " * _MARK + arrow), [Text(finding.command, "bold")])


def _lines(target: Console, text: str, indent: int, style: str = "") -> list[Text]:
    """`text` as it fits behind `indent`. Paths stay whole, so that they can be copied."""
    width = max(20, target.width - indent)
    wrap = partial(textwrap.wrap, width=width, break_long_words=False, break_on_hyphens=False)
    return [Text(line, style) for part in text.splitlines() for line in wrap(part)]


def _print(target: Console, beginning: Text, lines: Sequence[Text]) -> None:
    """Print `lines` below each other, the first after `beginning`."""
    for number, line in enumerate(lines):
        before = beginning if number == 0 else Text(" " * len(beginning))
        target.print(before + line, soft_wrap=True)


def _summary(sections: Sequence[Section]) -> Text:
    levels = [finding.level for section in sections for finding in section.findings]
    counts = [format_count(levels.count(level), level) for level in reversed(LEVELS[1:]) if level in levels]
    if not counts:
        return Text("all is well", _STYLES["ok"])
    worst = max(levels, key=LEVELS.index)
    return Text(", ".join(counts), _STYLES[worst])
