"""What was measured, as text of at most 110 columns and as JSON."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict

from bench._bounds import Measured, bounds
from bench._measuring import Result, Series
from bench._others import REFERENCE
from bench._scale import Planning

__all__ = ["as_json", "as_text", "competition_text", "machine_text", "samples_json", "table_text"]

WIDTH = 110


def as_text(machine: Mapping[str, str], notes: Sequence[str], measured: Measured) -> str:
    parts = [machine_text(machine), *(textwrap.fill(note, WIDTH) for note in notes)]
    parts += [competition_text(result) for result in measured.results.values()]
    if measured.planning:
        parts.append(_planning(measured.planning))
    if measured.memory:
        peaks = [(s.label, _time(s.seconds), f"{(s.peak_bytes or 0) / 1e6:.0f} MB") for s in measured.memory]
        parts.append("Many units\n" + table_text(("build", "wall", "peak memory"), peaks))
    rows = [
        (b.what, f"{'>=' if b.at_least else '<='} {b.limit:g} {b.unit}", _figure(b.figure, b.unit), b.verdict)
        for b in bounds(measured)
    ]
    parts.append("Bounds\n" + table_text(("what", "bound", "measured", ""), rows))
    return "\n\n".join(parts)


def as_json(machine: Mapping[str, str], notes: Sequence[str], measured: Measured) -> dict[str, object]:
    return {
        "machine": dict(machine),
        "notes": list(notes),
        "workloads": {key: samples_json(result) for key, result in measured.results.items()},
        "planning_seconds": dict(measured.planning.seconds) if measured.planning else {},
        "memory": [asdict(sample) for sample in measured.memory],
        "bounds": [asdict(bound) | {"verdict": bound.verdict} for bound in bounds(measured)],
    }


def samples_json(result: Result) -> dict[str, object]:
    return {
        "title": result.workload.title,
        "samples": {
            label: [asdict(sample) for sample in series.samples] for label, series in result.series.items()
        },
        "left_out": dict(result.left_out),
    }


def competition_text(result: Result) -> str:
    workload, series = result.workload, result.series
    reference = series.get(REFERENCE.label)
    rows = [(label, *_row(s, reference)) for label, s in series.items()]
    head = ("", "median", "least .. most", "CPU", "imports", "inside ours", f"/ {REFERENCE.label}")
    lines = [f"({workload.key}) {workload.title}: {workload.images} images", table_text(head, rows)]
    for name, why in result.left_out.items():
        reason = "\n".join(why.strip().splitlines()[:12])
        lines.append(textwrap.indent(f"left out: {name}: {reason}", "  "))
    return "\n".join(lines)


def _row(series: Series, reference: Series | None) -> tuple[str, ...]:
    return (
        _time(series.seconds),
        f"{_time(series.least)} .. {_time(series.most)}",
        "" if series.cpu is None else _time(series.cpu),
        "" if series.imports is None else _time(series.imports),
        "" if series.inside is None else _time(series.inside),
        f"{series.seconds / reference.seconds:.3f} x" if reference else "",
    )


def _planning(planning: Planning) -> str:
    rows = [
        (f"{count:,}", _time(planning.seconds[count]), f"{seconds * 1000:.3f} ms")
        for count, seconds in planning.per_unit.items()
    ]
    return "Planning\n" + table_text(("units", "all", "per unit"), rows)


def machine_text(pairs: Mapping[str, str]) -> str:
    width = max(map(len, pairs))
    return "\n".join(f"{name:{width}}  {value}" for name, value in pairs.items())


def table_text(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Columns as wide as their content: the first to the left, the others to the right."""
    # A column without values is left out.
    columns = [column for column in zip(head, *rows, strict=True) if any(column[1:])]
    widths = [max(map(len, column)) for column in columns]
    lines = [
        f"  {first:{widths[0]}}  "
        + "  ".join(f"{cell:>{width}}" for cell, width in zip(rest, widths[1:], strict=True))
        for first, *rest in zip(*columns, strict=True)
    ]
    return "\n".join(line.rstrip() for line in lines)


def _time(seconds: float) -> str:
    return f"{seconds:.2f} s" if seconds >= 1 else f"{seconds * 1000:.1f} ms"


def _figure(value: float | None, unit: str) -> str:
    return "-" if value is None else f"{value:.3g} {unit}"
