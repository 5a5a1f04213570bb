"""What doctor finds, as plain data, and how it is shown on a terminal and as JSON."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Literal

from cuda_ext.errors import CudaExtError
from cuda_ext.formats.quantities import format_count

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

__all__ = ["LEVELS", "Finding", "Level", "Section", "as_json", "error_finding", "show_sections"]

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


def error_finding(
    level: Level,
    subject: str,
    error: CudaExtError,
    *,
    prefix: str = "",
    remedy: str = "",
    command: str = "",
    facts: Mapping[str, object] | None = None,
) -> Finding:
    """The finding that `error` was raised. `prefix` precedes its text, `remedy` replaces a missing one."""
    where = f"{error.where}: " if error.where not in ("", subject) else ""
    text = f"{prefix}{where}{error.problem}"
    return Finding(level, subject, text, error.remedy or remedy, command, facts=facts or {})


def as_json(sections: Sequence[Section]) -> dict[str, object]:
    """The sections for programs. Fields may be added; existing ones keep their meaning."""
    levels = [finding.level for section in sections for finding in section.findings]
    return {
        "counts": {level: levels.count(level) for level in LEVELS},
        "sections": [
            {"title": section.title, "findings": list(map(_finding_as_json, section.findings))}
            for section in sections
        ],
    }


def _finding_as_json(finding: Finding) -> dict[str, object]:
    return asdict(finding) | {"remedy": finding.remedy or None, "command": finding.command or None}


def show_sections(sections: Sequence[Section]) -> None:
    """Print all findings: each begins with its level, and is followed by what to do."""
    from rich.console import Console
    from rich.text import Text

    console = Console(highlight=False, markup=False, emoji=False)
    for section in sections:
        if section.findings:
            console.print(Text(section.title, "bold"))
            for finding in section.findings:
                _show(console, finding)
            console.print()
    levels = [finding.level for section in sections for finding in section.findings]
    counts = [format_count(levels.count(level), level) for level in reversed(LEVELS[1:]) if level in levels]
    worst: Level = max(levels, key=LEVELS.index, default="ok")
    console.print(Text(", ".join(counts) or "no problems", _STYLES[worst]))


def _show(console: Console, finding: Finding) -> None:
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
            console.print(label + shown, soft_wrap=True)
            label, bold = Text(" " * len(label)), 0
