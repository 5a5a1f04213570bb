"""Spans of a compiler's own time trace: how they nest, and what each costs by itself."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from cuda_ext.builder.report.record import JobRecord, Span
from cuda_ext.toolchain.time_trace import HEADER

__all__ = ["HEADER", "Header", "NestedSpan", "headers", "nested", "phases"]


@dataclass(frozen=True, slots=True)
class NestedSpan:
    """A span that ends within what it began in; ``parent`` is the index of that, or ``None``."""

    span: Span
    parent: int | None


@dataclass(frozen=True, slots=True)
class Header:
    """What one header costs, in seconds over all compilations, and in how many it was read.

    ``exclusive`` leaves out the headers that it includes.
    """

    name: str
    exclusive: float
    inclusive: float
    jobs: int


def nested(job: JobRecord) -> list[NestedSpan]:
    """The spans of `job`, each after the one that it lies in, and cut off where that or the job ends."""
    found: list[NestedSpan] = []
    # The index and the end of each span that the next one may lie in.
    around: list[tuple[int | None, float]] = [(None, job.duration)]
    for span in sorted(job.spans, key=lambda span: (span.start, -span.duration)):
        end = span.start + span.duration
        while len(around) > 1 and around[-1][1] <= span.start:
            around.pop()
        parent, limit = around[-1]
        if span.start < 0 or end > limit:
            start, end = max(span.start, 0.0), min(end, limit)
            if end < start:
                continue
            span = Span(span.name, span.detail, start, end - start)
        around.append((len(found), end))
        found.append(NestedSpan(span, parent))
    return found


def phases(spans: Sequence[NestedSpan]) -> dict[str, float]:
    """The seconds of each phase of one compilation, without the phases within it."""
    alone = _alone(spans, range(len(spans)))
    totals: dict[str, float] = {}
    for index, each in enumerate(spans):
        totals[each.span.name] = totals.get(each.span.name, 0.0) + alone[index]
    return totals


def headers(jobs: Iterable[Sequence[NestedSpan]]) -> list[Header]:
    """What each header costs over `jobs`, the dearest first.

    A header that includes itself is counted once where it is outermost.
    """
    exclusive: dict[str, float] = {}
    inclusive: dict[str, float] = {}
    count: dict[str, int] = {}
    for spans in jobs:
        chosen = [index for index, each in enumerate(spans) if each.span.name == HEADER]
        alone = _alone(spans, chosen)
        around: list[Span] = []
        open_headers: Counter[str] = Counter()
        seen = set()
        for index in chosen:
            span = spans[index].span
            while around and around[-1].start + around[-1].duration <= span.start:
                open_headers[around.pop().detail] -= 1
            exclusive[span.detail] = exclusive.get(span.detail, 0.0) + alone[index]
            if not open_headers[span.detail]:
                inclusive[span.detail] = inclusive.get(span.detail, 0.0) + span.duration
            around.append(span)
            open_headers[span.detail] += 1
            seen.add(span.detail)
        for name in seen:
            count[name] = count.get(name, 0) + 1
    found = (Header(name, exclusive[name], inclusive[name], count[name]) for name in exclusive)
    return sorted(found, key=lambda header: (-header.exclusive, header.name))


def _alone(spans: Sequence[NestedSpan], chosen: Iterable[int]) -> dict[int, float]:
    """The seconds of each of the `chosen` spans without the chosen ones within it."""
    alone = {index: spans[index].span.duration for index in chosen}
    for index in alone:
        each = spans[index]
        parent = each.parent
        while parent is not None and parent not in alone:
            parent = spans[parent].parent
        if parent is not None:
            alone[parent] -= each.span.duration
    # Rounded ends may overlap by less than a clock shows.
    return {index: seconds if seconds > 0 else 0.0 for index, seconds in alone.items()}
