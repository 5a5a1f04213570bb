"""Measure costs that grow with the number of units: planning, and memory of the build's main process."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from bench.processes import temporary_directory

from builds.cuda_ext_builds import Bench, run_child
from builds.measuring import Sample
from builds.workloads import write_tiny


@dataclass(frozen=True, slots=True)
class Planning:
    """The least time in seconds to plan a project, by its number of units."""

    seconds: Mapping[int, float]

    @property
    def per_unit(self) -> dict[int, float]:
        """Seconds for each additional unit, by the number of units; without the fixed cost."""
        counts = sorted(self.seconds)
        return {
            more: (self.seconds[more] - self.seconds[fewer]) / (more - fewer)
            for fewer, more in itertools.pairwise(counts)
        }

    @property
    def growth(self) -> float:
        """The time per additional unit of the largest project, relative to that of the smallest."""
        per_unit = self.per_unit
        return per_unit[max(per_unit)] / per_unit[min(per_unit)]


def measure_planning(bench: Bench, counts: tuple[int, ...], rounds: int) -> Planning:
    with temporary_directory(bench.directory) as directory:
        roots = {count: write_tiny(directory / str(count), count) for count in counts}
        taken: dict[int, list[float]] = {count: [] for count in counts}
        for _ in range(rounds):
            for count, root in roots.items():
                sample = run_child("", "plan", root, cache=bench.headers)
                assert sample.internal is not None
                taken[count].append(sample.internal)
    return Planning({count: min(seconds) for count, seconds in taken.items()})


def measure_memory(bench: Bench, count: int) -> Iterator[Sample]:
    """Build `count` units with an empty and then a warm cache; measure time and peak memory."""
    with temporary_directory(bench.directory) as directory:
        root = write_tiny(directory / "project", count)
        cache = bench.fresh_cache(directory / "cache")
        for label in ("cold", "warm cache"):
            yield run_child(f"{count:,} units, {label}", "build", root, directory / label, cache=cache)
