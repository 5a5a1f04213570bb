"""The difference of two builds as data. The report of a build and ``cuda-ext inspect`` show it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from cuda_ext.formats.architecture import Architecture
from cuda_ext.formats.resources import Usage

__all__ = [
    "Build",
    "Change",
    "Difference",
    "Place",
    "architecture_order",
    "compare",
    "find_changes",
    "growth",
]

# What identifies something in a build: the module, a unit in it, and so on.
Place = tuple[str, ...]

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Build(Generic[_T]):
    """What is compared of a build.

    ``images`` are by module, unit and architecture; ``kernels`` by module, name and architecture, with
    ``None`` where their usage is not known, and the name may have several parts. ``files`` are the bytes that
    ship, by path.
    """

    images: Mapping[Place, _T]
    kernels: Mapping[Place, Usage | None]
    files: Mapping[Place, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Change(Generic[_T]):
    """Something that differs; ``None`` in the build that lacks it."""

    place: Place
    before: _T | None
    after: _T | None


@dataclass(frozen=True, slots=True)
class Difference(Generic[_T]):
    """All that differs between two builds, the largest changes first.

    ``architectures`` have the bytes of all their images. ``kernels`` are in both builds, and begin with those
    that became worst. ``new`` and ``gone`` are kernels with their architectures; an architecture that the
    whole module gained or lost does not count there.
    """

    images: tuple[Change[_T], ...]
    architectures: tuple[Change[int], ...]
    kernels: tuple[Change[Usage], ...]
    new: Mapping[Place, tuple[str, ...]]
    gone: Mapping[Place, tuple[str, ...]]
    files: tuple[Change[int], ...]

    @property
    def is_empty(self) -> bool:
        """Whether nothing differs, as far as it is known."""
        return not any((self.images, self.architectures, self.kernels, self.new, self.gone, self.files))


def compare(before: Build[_T], after: Build[_T], image_size: Callable[[_T], int]) -> Difference[_T]:
    """Compare two builds; `image_size` gives the bytes of an image."""
    return Difference(
        images=find_changes(before.images, after.images, image_size),
        architectures=find_changes(
            _size_by_architecture(before, image_size), _size_by_architecture(after, image_size), int
        ),
        kernels=_find_kernel_changes(before, after),
        new=_find_kernels_missing_in(before, after),
        gone=_find_kernels_missing_in(after, before),
        files=find_changes(before.files, after.files, int),
    )


def find_changes(
    before: Mapping[Place, _T], after: Mapping[Place, _T], size: Callable[[_T], float] = lambda _: 0
) -> tuple[Change[_T], ...]:
    """Find what is not equal in both, sorted by how much its `size` changed."""

    def amount(change: Change[_T]) -> tuple[object, ...]:
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


def _size_by_architecture(build: Build[_T], image_size: Callable[[_T], int]) -> Mapping[Place, int]:
    sizes: Counter[Place] = Counter()
    for (*_, architecture), image in build.images.items():
        sizes[architecture,] += image_size(image)
    return sizes


def _find_kernel_changes(before: Build[_T], after: Build[_T]) -> tuple[Change[Usage], ...]:
    """Find the kernels in both builds that differ: first by spills, then by registers, then by size."""
    old, new = (
        {place: usage for place, usage in build.kernels.items() if usage is not None}
        for build in (before, after)
    )

    def severity(change: Change[Usage]) -> tuple[object, ...]:
        was, became = old[change.place], new[change.place]
        spilled, registers = growth(was.spilled, became.spilled), growth(was.registers, became.registers)
        return -spilled, -registers, -abs(became.code - was.code), change.place

    both = old.keys() & new.keys()
    changes = find_changes({place: old[place] for place in both}, {place: new[place] for place in both})
    return tuple(sorted(changes, key=severity))


def _find_kernels_missing_in(build: Build[_T], other: Build[_T]) -> dict[Place, tuple[str, ...]]:
    """Find the kernels of `other` that `build` lacks, with the architectures for which it does."""
    compiled = {(module, architecture) for module, _, architecture in build.images}
    names = {place[:-1] for place in build.kernels}
    missing: dict[Place, list[str]] = {}
    for place in other.kernels:
        kernel, architecture = place[:-1], place[-1]
        if place not in build.kernels and (kernel not in names or (kernel[0], architecture) in compiled):
            missing.setdefault(kernel, []).append(architecture)
    return {
        kernel: tuple(sorted(architectures, key=architecture_order))
        for kernel, architectures in missing.items()
    }
