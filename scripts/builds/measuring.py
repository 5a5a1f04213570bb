"""Measure contenders in rounds, so that changes of the machine's speed affect all of them."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from builds.workloads import Workload


@dataclass(frozen=True, slots=True)
class Sample:
    """One measurement: wall time of the processes, and what cuda_ext measures in its own process.

    ``internal`` is the time in cuda_ext's code, without that of its ``imports``. ``cpu`` is the CPU time.
    """

    label: str
    seconds: float
    internal: float | None = None
    imports: float | None = None
    peak_bytes: int | None = None
    cpu: float | None = None


@dataclass(frozen=True, slots=True)
class Series:
    """All samples with one label, in the order of measurement."""

    samples: tuple[Sample, ...]

    @property
    def seconds(self) -> float:
        return statistics.median(s.seconds for s in self.samples)

    @property
    def least(self) -> float:
        return min(s.seconds for s in self.samples)

    @property
    def most(self) -> float:
        return max(s.seconds for s in self.samples)

    @property
    def internal(self) -> float | None:
        return _median(s.internal for s in self.samples)

    @property
    def imports(self) -> float | None:
        return _median(s.imports for s in self.samples)

    @property
    def cpu(self) -> float | None:
        return _median(s.cpu for s in self.samples)

    @property
    def peak_bytes(self) -> int | None:
        return max((s.peak_bytes for s in self.samples if s.peak_bytes is not None), default=None)


def _median(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return statistics.median(known) if known else None


@dataclass(frozen=True, slots=True)
class Contender:
    """A way to build. ``take_turn`` yields its samples of one round, or raises :class:`RuntimeError`."""

    name: str
    take_turn: Callable[[], Iterable[Sample]]


@dataclass(frozen=True, slots=True)
class Result:
    """The samples of a workload by label, and the contenders that failed with the reasons."""

    workload: Workload
    series: Mapping[str, Series]
    left_out: Mapping[str, str]


def measure(
    workload: Workload, contenders: Sequence[Contender], rounds: int, report: Callable[[str], None]
) -> Result:
    """Run every contender once per round, and leave out a contender after its first failure."""
    samples: dict[str, list[Sample]] = {}
    left_out: dict[str, str] = {}
    for number in range(1, rounds + 1):
        for contender in contenders:
            if contender.name in left_out:
                continue
            try:
                for sample in contender.take_turn():
                    samples.setdefault(sample.label, []).append(sample)
                    report(
                        f"({workload.key}) round {number} of {rounds}: {sample.label}: {sample.seconds:.2f} s"
                    )
            except RuntimeError as error:
                left_out[contender.name] = str(error)
                report(f"({workload.key}) round {number} of {rounds}: {contender.name}: failed")
    return Result(workload, {label: Series(tuple(taken)) for label, taken in samples.items()}, left_out)
