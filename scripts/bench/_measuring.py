"""Samples, and rounds in which every contender takes its turn."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from bench._workloads import Workload

__all__ = ["Contender", "Result", "Sample", "Series", "compete"]


@dataclass(frozen=True, slots=True)
class Sample:
    """One measurement: wall time of the processes, and what ours told from within.

    ``inside`` is the time in our code, without that of ``imports``. ``cpu`` is the time of all processors.
    """

    label: str
    seconds: float
    inside: float | None = None
    imports: float | None = None
    peak_bytes: int | None = None
    cpu: float | None = None


@dataclass(frozen=True, slots=True)
class Series:
    """All samples of one label, in the order they were taken."""

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
    def inside(self) -> float | None:
        return _median(s.inside for s in self.samples)

    @property
    def imports(self) -> float | None:
        return _median(s.imports for s in self.samples)

    @property
    def cpu(self) -> float | None:
        return _median(s.cpu for s in self.samples)

    @property
    def peak_bytes(self) -> int | None:
        return max((s.peak_bytes for s in self.samples if s.peak_bytes is not None), default=None)


def _median(told: Iterable[float | None]) -> float | None:
    known = [value for value in told if value is not None]
    return statistics.median(known) if known else None


@dataclass(frozen=True, slots=True)
class Contender:
    """Takes its turn in a round and gives one or more samples. Raises what went wrong."""

    name: str
    take_turn: Callable[[], Iterable[Sample]]


@dataclass(frozen=True, slots=True)
class Result:
    """What one workload's contenders were measured at, by label, and what could not run, and why."""

    workload: Workload
    series: Mapping[str, Series]
    left_out: Mapping[str, str]


def compete(
    workload: Workload, contenders: Sequence[Contender], rounds: int, tell: Callable[[str], None]
) -> Result:
    """Let every contender run once per round, so that a drift of the machine hits all alike.

    A contender that fails is left out from then on.
    """
    samples: dict[str, list[Sample]] = {}
    left_out: dict[str, str] = {}
    for number in range(1, rounds + 1):
        for contender in contenders:
            if contender.name in left_out:
                continue
            try:
                for sample in contender.take_turn():
                    samples.setdefault(sample.label, []).append(sample)
                    tell(
                        f"({workload.key}) round {number} of {rounds}: {sample.label}: {sample.seconds:.2f} s"
                    )
            except RuntimeError as error:
                left_out[contender.name] = str(error)
                tell(f"({workload.key}) round {number} of {rounds}: {contender.name}: failed")
    return Result(workload, {label: Series(tuple(taken)) for label, taken in samples.items()}, left_out)
