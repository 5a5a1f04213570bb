"""Findings of doctor as plain data, and their output on a terminal or as JSON."""

from __future__ import annotations

import shutil
import sys
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Literal

from cuda_ext.cli.terminal import echo_json, show_line
from cuda_ext.formats.quantities import format_count

Level = Literal["ok", "note", "warning", "problem"]

# From good to bad. A note is harmless; a problem must be solved.
LEVELS: tuple[Level, ...] = ("ok", "note", "warning", "problem")
_STYLES: dict[Level, str] = {"ok": "green", "note": "cyan", "warning": "yellow", "problem": "bold red"}


@dataclass(frozen=True, slots=True)
class Finding:
    """``text`` describes the state of ``subject``, with further lines in ``details``.

    ``remedy`` says in words what to do, and ``command`` what to type. All findings other than ok have one of
    them. ``facts`` are for programs.
    """

    level: Level
    subject: str
    text: str
    remedy: str = ""
    command: str = ""
    details: Sequence[str] = ()
    facts: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Section:
    """The findings about one subject."""

    title: str
    findings: Sequence[Finding]


def show(sections: Sequence[Section], *, as_json: bool) -> int:
    """Print all findings; return the exit code."""
    levels = [finding.level for section in sections for finding in section.findings]
    counts: dict[Level, int] = {level: levels.count(level) for level in LEVELS}
    if as_json:
        # Fields may be added; existing ones keep their meaning.
        shown = [asdict(section, dict_factory=_empty_as_null) for section in sections]
        echo_json({"counts": counts, "sections": shown})
    else:
        _show_sections(sections, counts)
    return 1 if counts["problem"] else 0


def _empty_as_null(fields: Sequence[tuple[str, object]]) -> dict[str, object]:
    return {name: None if value == "" else value for name, value in fields}


def _show_sections(sections: Sequence[Section], counts: Mapping[Level, int]) -> None:
    for section in sections:
        if not section.findings:
            continue
        show_line((section.title, "bold"))
        for finding in section.findings:
            _show_finding(finding)
        show_line()
    present = [level for level in reversed(LEVELS) if counts[level] and level != "ok"]
    summary = ", ".join(format_count(counts[level], level) for level in present)
    show_line((summary or "no problems", _STYLES[present[0] if present else "ok"]))


def _show_finding(finding: Finding) -> None:
    """Print the level and the text, and below it what to do."""
    label = f" {finding.level:<8}"
    separator = "" if finding.text.startswith("=") else ": "
    text, bold = f"{finding.subject}{separator}{finding.text}", len(finding.subject)
    for line in _wrap(text, len(label)):
        show_line((label, _STYLES[finding.level]), (line[:bold], "bold"), line[bold:])
        label, bold = " " * len(label), 0
    indent = label
    for detail in finding.details:
        for line in _wrap(detail, len(indent) + 2):
            show_line(f"{indent}  ", (line, "dim"))
    arrow = "\N{RIGHTWARDS ARROW} " if (sys.stdout.encoding or "").lower().startswith("utf") else "> "
    if finding.remedy:
        colon = ":" if finding.command and not finding.remedy.endswith("?") else ""
        for line in _wrap(f"{finding.remedy}{colon}", len(indent) + len(arrow)):
            show_line(indent, arrow, line)
            arrow = "  "
    if finding.command:  # on one line, to be copied
        show_line(indent, arrow, (finding.command, "bold"))


def _wrap(text: str, indent: int) -> Iterator[str]:
    """Yield the lines of `text` behind `indent` characters. Paths are not broken."""
    width = max(20, shutil.get_terminal_size().columns - indent)
    for paragraph in text.splitlines():
        yield from textwrap.wrap(paragraph, width, break_long_words=False, break_on_hyphens=False)
