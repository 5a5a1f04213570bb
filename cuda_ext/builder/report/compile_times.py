"""Sum up the compilers' time by phase and by header, from the time traces of their jobs."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from operator import attrgetter

from cuda_ext.builder.report.build_record import JobRecord
from cuda_ext.compiler.products import HEADER, Span

# The directories around a header, on a machine or in a build environment that no longer exists.
_SURROUNDINGS = re.compile(r".*[/\\](?:(?:site|dist)-packages[/\\]|cuda_ext-\w+[/\\]|(?=nvrtc-headers-))")


@dataclass(frozen=True, slots=True)
class CompileTime:
    """The seconds of one phase or header over all jobs, and how many jobs had it.

    ``exclusive`` leaves out the phases or headers within it.
    """

    name: str
    exclusive: float
    inclusive: float
    jobs: int


def nest_spans(job: JobRecord) -> list[Span]:
    """Return the spans of `job`, each after the span around it, and cut at the end of it or of the job."""
    nested: list[Span] = []
    ends = [job.duration]
    for span in sorted(job.spans, key=lambda span: (span.start, -span.duration)):
        while len(ends) > 1 and ends[-1] <= span.start:
            ends.pop()
        start, end = max(span.start, 0.0), min(span.start + span.duration, ends[-1])
        if start <= end:
            is_whole = start == span.start and end == span.start + span.duration
            nested.append(span if is_whole else span._replace(start=start, duration=end - start))
            ends.append(end)
    return nested


def header_of(span: Span) -> str | None:
    """Return the header that was read in `span`, if any, by its path in an environment or in NVRTC."""
    return _SURROUNDINGS.sub("", span.detail) if span.name == HEADER else None


def sum_times(
    jobs: Iterable[Sequence[Span]], name_of: Callable[[Span], str | None] = attrgetter("name")
) -> tuple[CompileTime, ...]:
    """Sum up the nested spans of `jobs` by `name_of`, by default their phases; the most expensive come first.

    A header that includes itself counts once, at its outermost span.
    """
    exclusive: defaultdict[str, float] = defaultdict(float)
    inclusive: defaultdict[str, float] = defaultdict(float)
    count: Counter[str] = Counter()
    for spans in jobs:
        outer: list[tuple[str, float]] = []  # the spans around the present one: names and ends
        around: Counter[str] = Counter()
        for span in spans:
            if (name := name_of(span)) is None:
                continue
            while outer and outer[-1][1] <= span.start:
                around[outer.pop()[0]] -= 1
            if outer:
                exclusive[outer[-1][0]] -= span.duration
            exclusive[name] += span.duration
            if not around[name]:
                inclusive[name] += span.duration
            outer.append((name, span.start + span.duration))
            around[name] += 1
        count.update(around.keys())
    # Rounded ends may overlap by less than the clock resolves.
    times = (CompileTime(name, max(0.0, exclusive[name]), inclusive[name], count[name]) for name in count)
    return tuple(sorted(times, key=lambda time: (-time.exclusive, time.name)))
