"""What doctor finds, as plain data, and the one place that shows it: on a terminal, or as JSON."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Literal

from cuda_ext.cli.terminal import echo_json, open_console
from cuda_ext.formats.quantities import format_count

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

__all__ = ["LEVELS", "Finding", "Level", "Section", "show"]

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
    from rich.text import Text

    console = open_console()
    for section in sections:
        if not section.findings:
            continue
        console.print(Text(section.title, "bold"))
        for finding in section.findings:
            _show_finding(console, finding)
        console.print()
    present = [level for level in reversed(LEVELS) if counts[level] and level != "ok"]
    summary = ", ".join(format_count(counts[level], level) for level in present)
    console.print(Text(summary or "no problems", _STYLES[present[0] if present else "ok"]))


def _show_finding(console: Console, finding: Finding) -> None:
    """Print the level and the text, and below it what to do."""
    from rich.text import Text

    label = Text(f" {finding.level:<8}", _STYLES[finding.level])
    separator = "" if finding.text.startswith("=") else ": "
    _print(console, label, f"{finding.subject}{separator}{finding.text}", bold=len(finding.subject))
    indent = " " * len(label)
    for detail in finding.details:
        _print(console, Text(f"{indent}  "), detail, "dim")
    arrow = "\N{RIGHTWARDS ARROW} " if console.encoding.startswith("utf") else "> "
    if finding.remedy:
        colon = ":" if finding.command and not finding.remedy.endswith("?") else ""
        _print(console, Text(indent + arrow), f"{finding.remedy}{colon}")
        arrow = "  "
    if finding.command:  # on one line, to be copied
        console.print(Text(indent + arrow) + Text(finding.command, "bold"), soft_wrap=True)


def _print(console: Console, label: Text, text: str, style: str = "", bold: int = 0) -> None:
    """Print `text` wrapped behind `label`, `bold` characters of it bold. Paths are not broken."""
    from rich.text import Text

    width = max(20, console.width - len(label))
    for paragraph in text.splitlines():
        for line in textwrap.wrap(paragraph, width, break_long_words=False, break_on_hyphens=False):
            shown = Text(line, style)
            shown.stylize("bold", 0, bold)
            console.print(Text.assemble(label, shown), soft_wrap=True)
            label, bold = Text(" " * len(label)), 0
