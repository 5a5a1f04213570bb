"""The difference between two builds: what grew, what shrank, what is new and what is gone."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TypeVar

from cuda_ext.builder.report.record import BuildRecord, ImageRecord, JobRecord, KernelRecord

__all__ = ["Comparison", "Pair", "Place", "compare", "natural", "spills"]

# A module, a unit in it, and for kernels the kernel.
Place = tuple[str, ...]
# Compilations never take the same time twice: less than this, in seconds and as a share, is no difference.
_NOISE = (0.05, 0.1)

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Pair:
    """A number in two builds; ``None`` where it was not known or not there."""

    before: float | None
    after: float | None

    @property
    def change(self) -> float:
        """How much it grew; 0 where either is not known."""
        return 0 if self.before is None or self.after is None else self.after - self.before


@dataclass(frozen=True, slots=True)
class Comparison:
    """What is different in a build, worst first.

    ``kernels`` and ``images`` are pairs that differ, of what is in both builds; ``jobs`` those that both
    compiled, with a difference that is more than noise. ``new`` and ``gone`` are kernels with their
    architectures; kernels that only came to another architecture, or left one, are not among them.
    """

    kernels: tuple[tuple[KernelRecord, KernelRecord], ...]
    images: tuple[tuple[ImageRecord, ImageRecord], ...]
    jobs: tuple[tuple[JobRecord, JobRecord], ...]
    fatbins: tuple[tuple[str, Pair], ...]
    new: Mapping[Place, tuple[str, ...]]
    gone: Mapping[Place, tuple[str, ...]]
    new_architectures: tuple[str, ...]
    gone_architectures: tuple[str, ...]

    @property
    def same(self) -> bool:
        """Whether all that ships is as large as before, and made of the same kernels."""
        return not any(
            (
                *(self.kernels, self.images, self.fatbins, self.new, self.gone),
                *(self.new_architectures, self.gone_architectures),
            )
        )


def compare(before: BuildRecord, after: BuildRecord) -> Comparison:
    """Compare two builds of a project."""
    kernels = [
        pair
        for pair in _both(
            before.kernels, after.kernels, lambda k: (k.module, k.unit, k.kernel, k.architecture)
        )
        if pair[0] != pair[1]
    ]
    images = [
        pair
        for pair in _both(before.images, after.images, lambda i: (i.module, i.unit, i.architecture))
        if pair[0] != pair[1]
    ]
    jobs = [
        pair
        for pair in _both(
            (job for job in before.jobs if job.outcome == "compiled"),
            (job for job in after.jobs if job.outcome == "compiled"),
            lambda job: (job.module, job.unit, job.architecture, job.action),
        )
        if abs(pair[1].duration - pair[0].duration) > max(_NOISE[0], _NOISE[1] * pair[0].duration)
    ]
    fatbins = [
        (path, Pair(before.fatbins.get(path), after.fatbins.get(path)))
        for path in sorted({*before.fatbins, *after.fatbins})
        if before.fatbins.get(path) != after.fatbins.get(path)
    ]
    places_before, places_after = _places(before.kernels), _places(after.kernels)
    built_before, built_after = ({image.architecture for image in build.images} for build in (before, after))
    return Comparison(
        kernels=tuple(sorted(kernels, key=_severity)),
        images=tuple(sorted(images, key=lambda pair: -abs(pair[1].size - pair[0].size))),
        jobs=tuple(sorted(jobs, key=lambda pair: -abs(pair[1].duration - pair[0].duration))),
        fatbins=tuple(sorted(fatbins, key=lambda item: -abs((item[1].after or 0) - (item[1].before or 0)))),
        new={place: found for place, found in places_after.items() if place not in places_before},
        gone={place: found for place, found in places_before.items() if place not in places_after},
        new_architectures=tuple(sorted(built_after - built_before, key=natural)),
        gone_architectures=tuple(sorted(built_before - built_after, key=natural)),
    )


def spills(kernel: KernelRecord) -> int | None:
    """The bytes that a thread of `kernel` stores and loads since it ran out of registers."""
    if kernel.spill_stores is None and kernel.spill_loads is None:
        return None
    return (kernel.spill_stores or 0) + (kernel.spill_loads or 0)


def natural(architecture: str) -> tuple[object, ...]:
    """Where an architecture stands among others: cubins before PTX, and ``sm_90`` before ``sm_100``."""
    kind, _, rest = architecture.partition("_")
    number = re.match(r"\d*", rest)
    return (kind != "sm", kind, int(number[0] or 0) if number else 0, rest)


def _both(
    before: Iterable[_T], after: Iterable[_T], key: Callable[[_T], tuple[str, ...]]
) -> list[tuple[_T, _T]]:
    known = {key(item): item for item in before}
    return [(known[key(item)], item) for item in after if key(item) in known]


def _places(kernels: Iterable[KernelRecord]) -> dict[Place, tuple[str, ...]]:
    found: dict[Place, set[str]] = {}
    for kernel in kernels:
        found.setdefault((kernel.module, kernel.unit, kernel.kernel), set()).add(kernel.architecture)
    return {place: tuple(sorted(found[place], key=natural)) for place in sorted(found)}


def _severity(pair: tuple[KernelRecord, KernelRecord]) -> tuple[object, ...]:
    """More spills come first, then more registers, then whatever changed most in size."""
    before, after = pair
    spilled = Pair(spills(before), spills(after)).change
    registers = Pair(before.registers, after.registers).change
    place = (after.module, after.unit, after.kernel, after.architecture)
    return (-spilled, -registers, -abs(after.code_size - before.code_size), place)
