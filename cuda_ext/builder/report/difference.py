"""The difference of two builds as data, for the report of a build and ``cuda-ext inspect``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from cuda_ext.facts.architecture import Architecture

# The place of something in a build: the module, a unit in it, and so on.
Place = tuple[str, ...]
# The contents of a build by kind and place: "images" by module, unit and architecture; "kernels" by module,
# name (of one part or several) and architecture, with Resources, or None if these are not known; and others.
Build = Mapping[str, Mapping[Place, Any]]


@dataclass(frozen=True, slots=True)
class Change:
    """Something that differs; ``None`` in the build that lacks it."""

    place: Place
    before: Any
    after: Any


# All that differs between two builds, by kind, the largest changes first: the kinds of a build;
# "architectures" with the bytes of all their images; and the kernels that are "new" or "gone", with their
# architectures, without those that the whole module gained or lost. Changed "kernels" are in both builds, and
# begin with those that became worst.
Changes = Mapping[str, tuple[Change, ...]]


def compare(before: Build, after: Build, size: Callable[[Any], int] = int) -> Changes:
    """Compare two builds with the same kinds; `size` weighs everything except kernels."""
    old, new = (_size_by_architecture(build, size) for build in (before, after))
    added, removed = _find_missing_kernels(before, after), _find_missing_kernels(after, before)
    return {
        **{kind: _find_changes(before[kind], after[kind], size) for kind in before if kind != "kernels"},
        "architectures": _find_changes(old, new),
        "kernels": _find_kernel_changes(before["kernels"], after["kernels"]),
        "new": tuple(Change(place, None, architectures) for place, architectures in added.items()),
        "gone": tuple(Change(place, architectures, None) for place, architectures in removed.items()),
    }


def _find_changes(
    before: Mapping[Place, Any], after: Mapping[Place, Any], size: Callable[[Any], float] = float
) -> tuple[Change, ...]:
    """Find the things that differ, sorted by the change of their `size`."""

    def amount(change: Change) -> tuple[object, ...]:
        old, new = (0 if value is None else size(value) for value in (change.before, change.after))
        return -abs(new - old), change.place

    changes = (Change(place, before.get(place), after.get(place)) for place in {**before, **after})
    return tuple(sorted((change for change in changes if change.before != change.after), key=amount))


def growth(before: int | None, after: int | None) -> int:
    """Return how much larger `after` is; 0 where either is not known."""
    return 0 if before is None or after is None else after - before


def architecture_order(architecture: str) -> tuple[object, ...]:
    """Return the sort key of an architecture, or of several that are separated by commas."""
    try:
        return 0, Architecture.parse(architecture.partition(",")[0]), architecture
    except ValueError:
        return 1, architecture


def _size_by_architecture(build: Build, size: Callable[[Any], int]) -> Mapping[Place, int]:
    sizes: Counter[Place] = Counter()
    for (*_, architecture), image in build["images"].items():
        sizes[architecture,] += size(image)
    return sizes


def _find_kernel_changes(before: Mapping[Place, Any], after: Mapping[Place, Any]) -> tuple[Change, ...]:
    """Find the kernels in both builds that differ: first by spills, then by registers, then by size."""

    def severity(change: Change) -> tuple[object, ...]:
        was, became = change.before, change.after
        spilled, registers = growth(was.spilled, became.spilled), growth(was.registers, became.registers)
        return -spilled, -registers, -abs(became.code - was.code), change.place

    changes = (Change(place, usage, after.get(place)) for place, usage in before.items())
    known = (change for change in changes if change.before is not None and change.after is not None)
    return tuple(sorted((change for change in known if change.before != change.after), key=severity))


def _find_missing_kernels(build: Build, other: Build) -> dict[Place, tuple[str, ...]]:
    """Find the kernels of `other` that `build` lacks, with the architectures for which it does."""
    compiled = {(module, architecture) for module, _, architecture in build["images"]}
    names = {place[:-1] for place in build["kernels"]}
    missing: dict[Place, list[str]] = {}
    for place in other["kernels"]:
        kernel, architecture = place[:-1], place[-1]
        if place not in build["kernels"] and (kernel not in names or (kernel[0], architecture) in compiled):
            missing.setdefault(kernel, []).append(architecture)
    return {
        kernel: tuple(sorted(architectures, key=architecture_order))
        for kernel, architectures in missing.items()
    }
