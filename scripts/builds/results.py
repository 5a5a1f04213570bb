"""Format the results of ``scripts/bench_build.py`` as text and as JSON."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import asdict

from bench.tables import WIDTH, format_pairs, format_table

from builds.bounds import Measured, check_bounds
from builds.measuring import Result, Series
from builds.other_builds import REFERENCE
from builds.scale import Planning


def as_text(machine: Mapping[str, str], notes: Sequence[str], measured: Measured) -> str:
    parts = [format_pairs(machine), *(textwrap.fill(note, WIDTH) for note in notes)]
    parts += [format_result(result) for result in measured.results.values()]
    if measured.planning:
        parts.append(_format_planning(measured.planning))
    if measured.memory:
        peaks = [
            (s.label, _format_time(s.seconds), f"{(s.peak_bytes or 0) / (1 << 20):.0f} MiB")
            for s in measured.memory
        ]
        parts.append("Many units\n" + format_table(("build", "wall", "peak memory"), peaks))
    rows = [
        (
            bound.title,
            f"{'>=' if bound.at_least else '<='} {bound.limit:g} {bound.unit}",
            "-" if bound.figure is None else f"{bound.figure:.3g} {bound.unit}",
            bound.verdict,
        )
        for bound in check_bounds(measured)
    ]
    parts.append("Bounds\n" + format_table(("", "bound", "measured", ""), rows))
    return "\n\n".join(parts)


def as_json(machine: Mapping[str, str], notes: Sequence[str], measured: Measured) -> dict[str, object]:
    return {
        "machine": dict(machine),
        "notes": list(notes),
        "workloads": {key: samples_as_json(result) for key, result in measured.results.items()},
        "planning_seconds": dict(measured.planning.seconds) if measured.planning else {},
        "memory": [asdict(sample) for sample in measured.memory],
        "bounds": [asdict(bound) | {"verdict": bound.verdict} for bound in check_bounds(measured)],
    }


def samples_as_json(result: Result) -> dict[str, object]:
    return {
        "title": result.workload.title,
        "samples": {
            label: [asdict(sample) for sample in series.samples] for label, series in result.series.items()
        },
        "left_out": dict(result.left_out),
    }


def format_result(result: Result) -> str:
    workload, series = result.workload, result.series
    reference = series.get(REFERENCE.label)
    rows = [(label, *_format_series(each, reference)) for label, each in series.items()]
    head = ("", "median", "least .. most", "CPU", "imports", "inside cuda_ext", f"/ {REFERENCE.label}")
    lines = [f"({workload.key}) {workload.title}: {workload.images} images", format_table(head, rows)]
    for name, error in result.left_out.items():
        reason = "\n".join(error.strip().splitlines()[:12])
        lines.append(textwrap.indent(f"left out: {name}: {reason}", "  "))
    return "\n".join(lines)


def _format_series(series: Series, reference: Series | None) -> tuple[str, ...]:
    return (
        _format_time(series.seconds),
        f"{_format_time(series.least)} .. {_format_time(series.most)}",
        "" if series.cpu is None else _format_time(series.cpu),
        "" if series.imports is None else _format_time(series.imports),
        "" if series.internal is None else _format_time(series.internal),
        f"{series.seconds / reference.seconds:.3f} x" if reference else "",
    )


def _format_planning(planning: Planning) -> str:
    rows = [
        (f"{count:,}", _format_time(planning.seconds[count]), f"{seconds * 1000:.3f} ms")
        for count, seconds in planning.per_unit.items()
    ]
    return "Planning\n" + format_table(("units", "all", "per unit"), rows)


def _format_time(seconds: float) -> str:
    return f"{seconds:.2f} s" if seconds >= 1 else f"{seconds * 1000:.1f} ms"
