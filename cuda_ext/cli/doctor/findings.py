"""Findings as plain data, and their output on a terminal."""

from __future__ import annotations

import shutil
import sys
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from cuda_ext.cli.terminal import show_line

Level = Literal["ok", "note", "warning", "problem"]

# From good to bad. A note is harmless; a problem must be solved.
LEVELS: tuple[Level, ...] = ("ok", "note", "warning", "problem")
STYLES: dict[Level, str] = {"ok": "green", "note": "cyan", "warning": "yellow", "problem": "bold red"}


@dataclass(frozen=True, slots=True)
class Finding:
    """The state of ``subject`` in words; ``remedy`` says what to do, and ``command`` what to type."""

    level: Level
    subject: str
    text: str
    remedy: str = ""
    command: str = ""


def show_finding(finding: Finding) -> None:
    """Print the level and the text, and below it what to do."""
    label = f" {finding.level:<8}"
    separator = "" if finding.text.startswith("=") else ": "
    text, bold = f"{finding.subject}{separator}{finding.text}", len(finding.subject)
    for line in _wrap(text, len(label)):
        show_line((label, STYLES[finding.level]), (line[:bold], "bold"), line[bold:])
        label, bold = " " * len(label), 0
    arrow = "\N{RIGHTWARDS ARROW} " if (sys.stdout.encoding or "").lower().startswith("utf") else "> "
    if finding.remedy:
        colon = ":" if finding.command and not finding.remedy.endswith("?") else ""
        for line in _wrap(f"{finding.remedy}{colon}", len(label) + len(arrow)):
            show_line(label, arrow, line)
            arrow = "  "
    if finding.command:  # on one line, to be copied
        show_line(label, arrow, (finding.command, "bold"))


def _wrap(text: str, indent: int) -> Iterator[str]:
    """Yield the lines of `text` behind `indent` characters. Paths are not broken."""
    width = max(20, shutil.get_terminal_size().columns - indent)
    for paragraph in text.splitlines():
        yield from textwrap.wrap(paragraph, width, break_long_words=False, break_on_hyphens=False)
