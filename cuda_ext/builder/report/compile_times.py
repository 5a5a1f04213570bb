"""What the compilers spent their time on, by phase and by header, from the time traces of their jobs."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from cuda_ext.builder.report.build_record import JobRecord
from cuda_ext.compiler.products import HEADER, Span

__all__ = [
    "CompileTimes",
    "HeaderTime",
    "NestedSpan",
    "PhaseTime",
    "compile_times",
    "header_times",
    "nest_spans",
    "phase_seconds",
]


@dataclass(frozen=True, slots=True)
class NestedSpan:
    """A span that ends within its parent; ``parent`` is the index of that, or ``None``."""

    span: Span
    parent: int | None


@dataclass(frozen=True, slots=True)
class PhaseTime:
    """The seconds of one phase over all jobs, without the phases within it, and how many jobs had it."""

    name: str
    seconds: float
    jobs: int


@dataclass(frozen=True, slots=True)
class HeaderTime:
    """The seconds of one header over all jobs, and how many jobs read it.

    ``exclusive`` leaves out the headers that it includes.
    """

    name: str
    exclusive: float
    inclusive: float
    jobs: int


@dataclass(frozen=True, slots=True)
class CompileTimes:
    """The time of all traced jobs, which is ``seconds`` in sum.

    ``of_jobs`` has the seconds of each phase by the index of the job; ``phases`` and ``headers`` begin with
    the most expensive.
    """

    seconds: float
    of_jobs: Mapping[int, Mapping[str, float]]
    phases: tuple[PhaseTime, ...]
    headers: tuple[HeaderTime, ...]


def compile_times(jobs: Sequence[JobRecord]) -> CompileTimes:
    """Sum up the spans of `jobs`."""
    nested = {index: nest_spans(job) for index, job in enumerate(jobs) if job.spans}
    of_jobs = {index: phase_seconds(spans) for index, spans in nested.items()}
    seconds: Counter[str] = Counter()
    count: Counter[str] = Counter()
    for of_job in of_jobs.values():
        seconds.update(of_job)
        count.update(of_job.keys())
    phases = (PhaseTime(name, seconds[name], count[name]) for name in count)
    return CompileTimes(
        seconds=sum(jobs[index].duration for index in nested),
        of_jobs=of_jobs,
        phases=tuple(sorted(phases, key=lambda phase: (-phase.seconds, phase.name))),
        headers=tuple(header_times(nested.values())),
    )


def nest_spans(job: JobRecord) -> list[NestedSpan]:
    """Return the spans of `job`, each after its parent, and cut off where that or the job ends."""
    nested: list[NestedSpan] = []
    # The index and the end of each span that the next one may lie in.
    parents: list[tuple[int | None, float]] = [(None, job.duration)]
    for span in sorted(job.spans, key=lambda span: (span.start, -span.duration)):
        end = span.start + span.duration
        while len(parents) > 1 and parents[-1][1] <= span.start:
            parents.pop()
        parent, limit = parents[-1]
        if span.start < 0 or end > limit:
            start, end = max(span.start, 0.0), min(end, limit)
            if end < start:
                continue
            span = Span(span.name, span.detail, start, end - start)
        parents.append((len(nested), end))
        nested.append(NestedSpan(span, parent))
    return nested


def phase_seconds(spans: Sequence[NestedSpan]) -> Mapping[str, float]:
    """Return the seconds of each phase of one job, without the phases within it."""
    exclusive = _exclusive_seconds(spans, range(len(spans)))
    seconds: defaultdict[str, float] = defaultdict(float)
    for index, nested in enumerate(spans):
        seconds[nested.span.name] += exclusive[index]
    return seconds


def header_times(jobs: Iterable[Sequence[NestedSpan]]) -> list[HeaderTime]:
    """Return the time of each header over `jobs`, the most expensive first.

    A header that includes itself counts once, where it is outermost.
    """
    exclusive: defaultdict[str, float] = defaultdict(float)
    inclusive: defaultdict[str, float] = defaultdict(float)
    count: Counter[str] = Counter()
    for spans in jobs:
        of_headers = [index for index, nested in enumerate(spans) if nested.span.name == HEADER]
        own = _exclusive_seconds(spans, of_headers)
        outer: list[Span] = []
        names: Counter[str] = Counter()  # of the outer spans
        for index in of_headers:
            span = spans[index].span
            while outer and outer[-1].start + outer[-1].duration <= span.start:
                names[outer.pop().detail] -= 1
            exclusive[span.detail] += own[index]
            if not names[span.detail]:
                inclusive[span.detail] += span.duration
            outer.append(span)
            names[span.detail] += 1
        count.update({spans[index].span.detail for index in of_headers})
    times = (HeaderTime(name, exclusive[name], inclusive[name], count[name]) for name in exclusive)
    return sorted(times, key=lambda header: (-header.exclusive, header.name))


def _exclusive_seconds(spans: Sequence[NestedSpan], chosen: Iterable[int]) -> Mapping[int, float]:
    """Return the seconds of each of the `chosen` spans without the chosen ones within it."""
    seconds = {index: spans[index].span.duration for index in chosen}
    for index in seconds:
        parent = spans[index].parent
        while parent is not None and parent not in seconds:
            parent = spans[parent].parent
        if parent is not None:
            seconds[parent] -= spans[index].span.duration
    # Rounded ends may overlap by less than the clock resolves.
    return {index: max(0.0, left) for index, left in seconds.items()}
