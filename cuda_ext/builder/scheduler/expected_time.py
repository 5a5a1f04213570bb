"""Estimate the time of jobs from their size, so that the longest start first.

On 99 jobs of tests/gallery and the example project, eight workers need 0.3 % longer than with known times,
and 23 % longer in random order.
"""

from __future__ import annotations

from functools import lru_cache

from cuda_ext.compiler.jobs import Job, LinkJob
from cuda_ext.text.includes import find_includes

# Seconds for NVRTC 13.5 on a core of a server: for any job, and for each byte of a source with its
# instantiations, of the project's headers, and of linked objects.
_JOB, _BYTE, _HEADER_BYTE, _LINKED_BYTE = 0.02, 2e-5, 2e-6, 3e-6
# The headers that take longest, by the prefix of their names, and any other header. They include each other,
# so only the longest counts.
_HEADERS = {
    "cutlass/": 3.0,
    "cute/": 3.0,
    "cub/": 0.6,
    "thrust/": 0.4,
    "cuda/": 0.4,
    "cooperative_": 0.4,
}
_HEADER = 0.05


def expected_seconds(job: Job) -> float:
    """Estimate the seconds that `job` takes."""
    if isinstance(job, LinkJob):
        return _JOB + _LINKED_BYTE * sum(len(i.data) for i in job.inputs)
    unit = job.unit
    explicit = unit.source.count(b"template __global__")
    templates = max(1, unit.source.count(b"__global__") - explicit)
    # An instantiation takes as long as its template, which is the share of one kernel in the text.
    copies = 1 + (len(unit.instantiate) + explicit) / templates
    own = _BYTE * len(unit.source) * copies + _HEADER_BYTE * sum(map(len, unit.headers.values()))
    return _JOB + own + max(map(header_seconds, (unit.source, *unit.headers.values())))


@lru_cache(maxsize=10_000)  # since units share their headers
def header_seconds(text: bytes) -> float:
    """Return the seconds of the slowest of the tool chain's headers that `text` includes."""
    included = (each for each in find_includes(text).named if not (each.is_quoted or each.is_test))
    return max((_seconds(each.name) for each in included), default=0.0)


def _seconds(header: str) -> float:
    return next((seconds for start, seconds in _HEADERS.items() if header.startswith(start)), _HEADER)
