"""Findings for programs. Fields may be added; those that are there keep their meaning."""

from __future__ import annotations

from collections.abc import Sequence

from cuda_ext.cli.doctor.finding import LEVELS, Finding, Section

__all__ = ["sections_as_json"]


def sections_as_json(sections: Sequence[Section]) -> dict[str, object]:
    levels = [finding.level for section in sections for finding in section.findings]
    return {
        "counts": {level: levels.count(level) for level in LEVELS},
        "sections": [
            {"title": section.title, "findings": list(map(_finding, section.findings))}
            for section in sections
        ],
    }


def _finding(finding: Finding) -> dict[str, object]:
    return {
        "level": finding.level,
        "subject": finding.subject,
        "text": finding.text,
        "remedy": finding.remedy or None,
        "command": finding.command or None,
        "details": list(finding.details),
        "facts": dict(finding.facts),
    }
