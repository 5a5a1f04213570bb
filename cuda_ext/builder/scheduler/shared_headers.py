"""Find compilations that begin with the same headers, so that a worker precompiles these once."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass

from cuda_ext.builder.scheduler.expected_time import header_seconds
from cuda_ext.compiler.jobs import CompileJob, Job
from cuda_ext.text.includes import leading_headers

# Precompiling takes as long as compiling two or three units. Headers that take fewer seconds are read anew.
FEWEST, _SECONDS = 4, 0.4
_Names = tuple[str, ...]


@dataclass(frozen=True, eq=False, slots=True)
class SharedHeaders:
    """The include directives that units of the same options and targets begin with, as source text.

    ``tasks`` compile these units, of ``all_tasks`` that are planned together.
    """

    source: bytes
    tasks: int
    all_tasks: int


def share_headers(jobs: Collection[CompileJob]) -> dict[Job, SharedHeaders]:
    """Find the tool chain's headers that several of `jobs`, all of one compiler, share."""
    alike: dict[object, dict[CompileJob, _Names]] = defaultdict(dict)
    for job in jobs:
        options = job.unit.options
        if not options.pre_include and (names := leading_headers(job.unit.source)):
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
    """Find the common beginning of `sequences` that saves most; empty if none is worth it."""
    counts = Counter(beginning for names in sequences for beginning in _beginnings(names))
    saved = {
        names: (count - FEWEST + 1) * (header_seconds(_source(names)) + 0.05 * len(names))
        for names, count in counts.items()
        if count >= FEWEST and header_seconds(_source(names)) >= _SECONDS
    }
    return max(saved, key=lambda names: saved[names], default=())


def _beginnings(names: _Names) -> Iterator[_Names]:
    """Yield the beginnings with at least half of `names`: shorter ones leave too much to read."""
    return (names[:count] for count in range(len(names), (len(names) - 1) // 2, -1))


def _source(names: _Names) -> bytes:
    return "".join(f"#include <{name}>\n" for name in names).encode(errors="surrogateescape")
