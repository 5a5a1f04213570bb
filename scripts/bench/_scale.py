"""What grows with the number of units: planning, and the memory of the process that drives a build."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from bench._measuring import Sample
from bench._ours import Bench, child
from bench._processes import scratch
from bench._workloads import tiny

__all__ = ["Planning", "driver_memory", "planning"]


@dataclass(frozen=True, slots=True)
class Planning:
    """Seconds that planning so many units took, at best."""

    seconds: Mapping[int, float]

    @property
    def per_unit(self) -> dict[int, float]:
        """Seconds for each unit more, up to a number of units: what starting costs is left out."""
        counts = sorted(self.seconds)
        return {
            more: (self.seconds[more] - self.seconds[fewer]) / (more - fewer)
            for fewer, more in itertools.pairwise(counts)
        }

    @property
    def growth(self) -> float:
        """How many times as much a unit costs among the most as among the fewest."""
        per_unit = self.per_unit
        return per_unit[max(per_unit)] / per_unit[min(per_unit)]


def planning(bench: Bench, counts: tuple[int, ...], rounds: int) -> Planning:
    with scratch(bench.directory) as directory:
        roots = {count: tiny(directory / str(count), count) for count in counts}
        taken: dict[int, list[float]] = {count: [] for count in counts}
        for _ in range(rounds):
            for count, root in roots.items():
                sample = child("", "plan", root, cache=bench.headers)
                assert sample.inside is not None
                taken[count].append(sample.inside)
    return Planning({count: min(seconds) for count, seconds in taken.items()})


def driver_memory(bench: Bench, count: int) -> Iterator[Sample]:
    """Builds of `count` units, cold and then with a warm cache: time, and peak memory of their process."""
    with scratch(bench.directory) as directory:
        root = tiny(directory / "project", count)
        cache = bench.fresh_cache(directory / "cache")
        for label in ("cold", "warm cache"):
            yield child(f"{count:,} units, {label}", "build", root, directory / label, cache=cache)
