"""Estimate the time of jobs, from earlier builds or from their size, so that the longest start first."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import NamedTuple

from cuda_ext import __version__
from cuda_ext.cache.dependencies import read_record
from cuda_ext.cache.store import Store
from cuda_ext.compiler.jobs import Job, LinkJob
from cuda_ext.compiler.translation_unit import TranslationUnit
from cuda_ext.facts.codec import encode, key_of
from cuda_ext.text.includes import find_includes

# Estimates without a measurement, in seconds, for NVRTC 13.5 on a core of a server: for any job, and for
# each byte of a source with its instantiations, of the project's headers, and of linked objects.
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


class _Entry(NamedTuple):
    seconds: Mapping[str, float] = {}


class Timings:
    """Seconds by job, for the modules of one build."""

    def __init__(self, store: Store, modules: tuple[str, ...]) -> None:
        self._store = store
        self._key = key_of("timings", __version__, *modules)
        self._known: Mapping[str, float] | None = None
        self._measured: dict[str, float] = {}

    def expected(self, module: str, job: Job) -> float:
        """Return the seconds that `job` took, or an estimate."""
        if self._known is None:
            self._known = read_record(self._store, self._key, _Entry()).seconds
        if (known := self._known.get(f"{module} {job}")) is not None:
            return known
        if isinstance(job, LinkJob):
            return _JOB + _LINKED_BYTE * sum(len(i.data) for i in job.inputs)
        return _estimate(job.unit)

    def measured(self, module: str, job: Job, seconds: float) -> None:
        self._measured[f"{module} {job}"] = round(seconds, 3)

    def save(self) -> None:
        """Keep the measurements for the next build."""
        if self._measured:
            self._store.put(self._key, encode(_Entry({**(self._known or {}), **self._measured})))


def _estimate(unit: TranslationUnit) -> float:
    """Estimate the seconds that a compilation of `unit` for one target takes."""
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
