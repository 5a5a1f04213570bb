"""Find compilations that begin with the same headers, so that a worker precompiles these once."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass

from cuda_ext.builder.scheduler.expected_time import header_seconds
from cuda_ext.compiler.jobs import CompileJob, Job
from cuda_ext.text.includes import leading_headers

# Precompiling headers takes as long as compiling two or three units, so it pays only for several
# units, and for headers that take long to read.
FEWEST, _SECONDS = 4, 0.4
_Names = tuple[str, ...]


@dataclass(frozen=True, eq=False, slots=True)
class SharedHeaders:
    """The include directives at the beginning of several units with the same options and targets.

    ``source`` is their text. ``tasks`` is the number of these units, and ``all_tasks`` that of all units in
    the plan.
    """

    source: bytes
    tasks: int
    all_tasks: int


def share_headers(jobs: Collection[CompileJob]) -> dict[Job, SharedHeaders]:
    """Find the headers of the tool chain that several `jobs` share. All `jobs` have one compiler."""
    alike: dict[object, dict[CompileJob, _Names]] = defaultdict(dict)
    for job in jobs:
        options = job.unit.options
        is_whole = not (options.pre_include or options.skip_host_code)
        if is_whole and (names := leading_headers(job.unit.source)):
            alike[repr(options), job.architectures][job] = names
    shared: dict[Job, SharedHeaders] = {}
    for leading in alike.values():
        while best := _best(leading.values()):
            using = [job for job, names in leading.items() if best in _beginnings(names)]
            headers = SharedHeaders(_source(best), len(using), len(jobs))
            for job in using:
                shared[job] = headers
                del leading[job]
    return shared


def _best(sequences: Iterable[_Names]) -> _Names:
    """Find the common beginning that saves the most time; empty if precompiling none pays off."""
    counts = Counter(beginning for names in sequences for beginning in _beginnings(names))
    saved = {
        names: (count - FEWEST + 1) * (header_seconds(_source(names)) + 0.05 * len(names))
        for names, count in counts.items()
        if count >= FEWEST and header_seconds(_source(names)) >= _SECONDS
    }
    return max(saved, key=lambda names: saved[names], default=())


def _beginnings(names: _Names) -> Iterator[_Names]:
    """Yield the beginnings with at least half of `names`. Shorter ones save too little."""
    return (names[:count] for count in range(len(names), (len(names) - 1) // 2, -1))


def _source(names: _Names) -> bytes:
    return "".join(f"#include <{name}>\n" for name in names).encode(errors="surrogateescape")
