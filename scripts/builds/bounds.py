"""The limits that builds with cuda_ext must keep, compared with the measured figures."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from builds.cuda_ext_builds import CLONE, COLD, NO_CHANGES, dask_label
from builds.measuring import Result, Sample, Series
from builds.other_builds import INVOCATIONS, REFERENCE
from builds.scale import Planning

# Builds of (e), by the number of processes.
TOGETHER = {jobs: f"cuda_ext -j {jobs}" for jobs in (1, 2)}
APART = {jobs: f"cuda_ext -j {jobs}, with a header of the project first" for jobs in (1, 2)}


@dataclass(frozen=True, slots=True)
class Measured:
    """The results of one run of the benchmark."""

    results: Mapping[str, Result]
    planning: Planning | None
    memory: tuple[Sample, ...]

    def series(self, key: str, label: str) -> Series | None:
        result = self.results.get(key)
        return result.series.get(label) if result else None


@dataclass(frozen=True, slots=True)
class Bound:
    """A limit in `unit`, and the measured figure; ``None`` if it was not measured."""

    title: str
    limit: float
    unit: str
    figure: float | None
    at_least: bool = False

    @property
    def verdict(self) -> str:
        if self.figure is None:
            return "not measured"
        if self.figure >= self.limit if self.at_least else self.figure <= self.limit:
            return "holds"
        return f"misses by {abs(self.figure / self.limit - 1):.0%}"


def check_bounds(measured: Measured) -> Iterator[Bound]:
    b_cold = _seconds(measured.series("b", COLD))
    reference = _seconds(measured.series("b", REFERENCE.label))
    clone = _seconds(measured.series("b", CLONE))
    one, two = (_seconds(measured.series("dask", dask_label(workers))) for workers in (1, 2))
    planning = measured.planning
    peak = max((sample.peak_bytes or 0 for sample in measured.memory), default=None)

    yield Bound(f"(b) cold / {REFERENCE.label}", 0.1, "x", _ratio(b_cold, reference))
    for key, limit in (("c", 0.9), ("d", 0.6)):
        cold = _seconds(measured.series(key, COLD))
        with_nvcc = [_seconds(measured.series(key, invocation.label)) for invocation in INVOCATIONS]
        best = min((seconds for seconds in with_nvcc if seconds is not None), default=None)
        yield Bound(f"({key}) cold / the fastest way to run nvcc", limit, "x", _ratio(cold, best))
    for jobs, limit in ((1, 0.4), (2, 1.0)):
        together, apart = (_seconds(measured.series("e", labels[jobs])) for labels in (TOGETHER, APART))
        yield Bound(
            f"(e) precompiled headers / read by each source, -j {jobs}", limit, "x", _ratio(together, apart)
        )
    yield Bound("(b) no changes, inside cuda_ext", 100, "ms", _internal_ms(measured, "b"))
    yield Bound("(a) no changes, inside cuda_ext", 20, "ms", _internal_ms(measured, "a"))
    yield Bound("(b) new clone, warm cache / cold", 5, "%", _scaled(_ratio(clone, b_cold), 100))
    largest = max(planning.seconds) if planning else 20_000
    per_unit = planning.per_unit[largest] if planning else None
    yield Bound(f"planning, each further unit up to {largest:,}", 0.1, "ms", _scaled(per_unit, 1000))
    yield Bound(
        "the same / each further unit of few",
        1.1,
        "x",
        planning.growth if planning else None,
    )
    yield Bound("(c) one Dask worker / two", 1.7, "x", _ratio(one, two), at_least=True)
    yield Bound("peak memory of the driver process", 300, "MB", _scaled(peak, 1e-6))


def _internal_ms(measured: Measured, key: str) -> float | None:
    series = measured.series(key, NO_CHANGES)
    return _scaled(series.internal, 1000) if series else None


def _seconds(series: Series | None) -> float | None:
    return series.seconds if series else None


def _ratio(value: float | None, reference: float | None) -> float | None:
    return None if value is None or reference is None else value / reference


def _scaled(value: float | None, factor: float) -> float | None:
    return None if value is None else value * factor
