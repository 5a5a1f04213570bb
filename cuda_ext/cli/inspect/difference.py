"""What changed between two builds: the largest changes come first."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Generic, TypeVar

from cuda_ext.cli.inspect.contents import Contents, Image, Kernel, Module, Unit, options_of
from cuda_ext.cli.terminal import Failure
from cuda_ext.formats.architecture import Architecture
from cuda_ext.formats.resources import Resources
from cuda_ext.manifest import Symbol

__all__ = ["Change", "Difference", "Place", "compare"]

# What is told apart by it: a module, something in it, and so on.
Place = tuple[str, ...]

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Change(Generic[_T]):
    """Something in two builds; ``None`` where it was not, or is no more."""

    place: Place
    before: _T | None
    after: _T | None


@dataclass(frozen=True, slots=True)
class Difference:
    """All that is not the same.

    ``settings`` are told by module, source (empty for the module's own) and name, ``sources`` by module and
    name with their digests, ``architectures`` with the bytes that all their images take as they are stored,
    ``images`` by module, unit and architecture, and ``kernels`` by module, kernel and architecture, with what
    they take in both. ``new`` and ``gone`` are kernels with their architectures; they do not count as such
    for an architecture that the whole module came to, or left.
    """

    before: Contents
    after: Contents
    modules: tuple[Change[str], ...]
    units: tuple[Change[str], ...]
    settings: tuple[Change[str], ...]
    sources: tuple[Change[str], ...]
    files: tuple[Change[int], ...]
    architectures: tuple[Change[int], ...]
    images: tuple[Change[Image], ...]
    kernels: tuple[Change[Resources], ...]
    new: Mapping[Place, tuple[str, ...]]
    gone: Mapping[Place, tuple[str, ...]]
    symbols: tuple[Change[Symbol], ...]

    @property
    def same(self) -> bool:
        """Whether nothing changed, as far as it is known."""
        found = (self.modules, self.units, self.settings, self.sources, self.files, self.architectures)
        return not any((*found, self.images, self.kernels, self.new, self.gone, self.symbols))


def compare(before: Contents, after: Contents) -> Difference:
    """Compare two builds.

    Where one of them has no manifest, kernels are told by their lowered names, and of the other only the
    units count that hold some of these. Raises :class:`Failure` where nothing is in both, or where names do
    not tell it apart.
    """
    by_name = before.has_manifests and after.has_manifests
    old, new = _by_name(before, after) if by_name else _by_lowered_name(before, after)
    old_digests, new_digests = _digests(old, new)
    return Difference(
        before=before,
        after=after,
        modules=_changes({(m.name,): m.name for m in old}, {(m.name,): m.name for m in new}),
        units=_changes(_units(old), _units(new)),
        settings=tuple(c for c in _changes(_settings(old), _settings(new)) if c.before and c.after),
        sources=_changes(old_digests, new_digests),
        files=_changes(_files(before), _files(after), int) if by_name and before.kind == after.kind else (),
        architectures=_changes(_architectures(old), _architectures(new), int),
        images=_changes(_images(old), _images(new), lambda image: image.stored) if by_name else (),
        kernels=_kernel_changes(_resources(old), _resources(new)),
        new=_only_in(new, old),
        gone=_only_in(old, new),
        symbols=_changes(_symbols(old), _symbols(new), lambda symbol: symbol.size),
    )


def _by_name(*both: Contents) -> Iterator[Sequence[Module]]:
    """The modules of both, found by their names; if each has one, it may have been renamed."""
    one = all(len(contents.modules) == 1 for contents in both)
    for contents in both:
        names = [module.name for module in contents.modules]
        if len({*names}) < len(names):
            places = ", ".join(sorted(module.place for module in contents.modules))
            raise Failure(f"{contents.path}: has modules of one name, in {places}; name one of them")
        title = both[-1].modules[0].name if one else ""
        yield [replace(module, name=title or module.name) for module in contents.modules]


def _by_lowered_name(*both: Contents) -> Iterator[Sequence[Module]]:
    """For both, a module without a name, with the units that share kernels with the other."""
    names = [{kernel.lowered for module in c.modules for kernel in module.kernels} for c in both]
    if not (common := set.intersection(*names)):
        paths = " and ".join(contents.path for contents in both)
        raise Failure(f"{paths} have no kernels in common; name two builds of the same kernels")
    for contents in both:
        images: list[Image] = []
        kernels: list[Kernel] = []
        for module in contents.modules:
            shared = {kernel.unit for kernel in module.kernels if kernel.lowered in common}
            images += (image for unit in module.units if unit.title in shared for image in unit.images)
            kernels += (
                replace(kernel, expression=kernel.lowered, unit="")
                for kernel in module.kernels
                if kernel.unit in shared
            )
        yield [Module("", ".", contents.size, (Unit("", (), tuple(images)),), tuple(kernels), ())]


def _units(modules: Sequence[Module]) -> dict[Place, str]:
    return {(module.name, unit.title): unit.title for module in modules for unit in module.units}


def _settings(modules: Sequence[Module]) -> dict[Place, str]:
    found: dict[Place, str] = {}
    for module in modules:
        if module.compiler is not None:
            found[module.name, "", "compiler"] = module.compiler
            found[module.name, "", "compress"] = module.compress or ""
            found[module.name, "", "jit"] = "yes" if module.jit else "no"
        for unit in module.units:
            for source in unit.sources:
                found[module.name, source.name, "options"] = " ".join(options_of(source))
    return found


def _digests(old: Sequence[Module], new: Sequence[Module]) -> Iterator[dict[Place, str]]:
    """The sources and headers that ship, or where they do not, the sources with digests of all they reach."""
    ship = all(module.embedded is not None for module in (*old, *new))
    for modules in (old, new):
        if ship:
            yield {(m.name, file): digest for m in modules for file, digest in (m.embedded or {}).items()}
        else:
            yield {(m.name, s.name): s.sha256 for m in modules for unit in m.units for s in unit.sources}


def _files(contents: Contents) -> dict[Place, int]:
    # The metadata of a wheel lies in a directory with the version in its name.
    return {
        (re.sub(r"^[^/]*\.(dist-info|data)/", r"*.\1/", path),): size for path, size in contents.files.items()
    }


def _architectures(modules: Sequence[Module]) -> dict[Place, int]:
    sums: Counter[Place] = Counter()
    for module in modules:
        for unit in module.units:
            for image in unit.images:
                sums[image.architecture,] += image.stored
    return sums


def _images(modules: Sequence[Module]) -> dict[Place, Image]:
    return {
        (module.name, unit.title, image.architecture): image
        for module in modules
        for unit in module.units
        for image in unit.images
    }


def _symbols(modules: Sequence[Module]) -> dict[Place, Symbol]:
    return {
        (module.name, symbol.name): replace(symbol, unit=0) for module in modules for symbol in module.symbols
    }


def _resources(modules: Sequence[Module]) -> dict[Place, Resources]:
    return {
        (module.name, kernel.expression, image.architecture): image.resources
        for module in modules
        for kernel in module.kernels
        for image in kernel.images
        if image.resources is not None
    }


def _kernel_changes(
    old: Mapping[Place, Resources], new: Mapping[Place, Resources]
) -> tuple[Change[Resources], ...]:
    """More spills come first, then more registers, then whatever changed most in size."""

    def severity(change: Change[Resources]) -> tuple[object, ...]:
        before, after = old[change.place], new[change.place]
        spilled = (after.spilled or 0) - (before.spilled or 0)
        registers = (after.registers or 0) - (before.registers or 0)
        return -spilled, -registers, -abs(after.code - before.code), change.place

    both = {place: found for place, found in old.items() if place in new}
    return tuple(sorted(_changes(both, {place: new[place] for place in both}), key=severity))


def _only_in(these: Sequence[Module], others: Sequence[Module]) -> dict[Place, tuple[str, ...]]:
    """The kernels that only `these` modules have, with the architectures for which that is so."""
    known = _built(others)
    architectures = {m.name: {i.architecture for unit in m.units for i in unit.images} for m in others}
    found = {}
    for place, built in _built(these).items():
        there = known.get(place)
        missing = built if there is None else (built - there) & architectures[place[0]]
        if missing:
            found[place] = tuple(sorted(missing, key=Architecture.parse))
    return found


def _built(modules: Sequence[Module]) -> dict[Place, set[str]]:
    """The architectures for which each kernel was built."""
    return {
        (module.name, kernel.expression): {image.architecture for image in kernel.images}
        for module in modules
        for kernel in module.kernels
    }


def _changes(
    old: Mapping[Place, _T], new: Mapping[Place, _T], size: Callable[[_T], int] = lambda _: 0
) -> tuple[Change[_T], ...]:
    """What is not the same in both, by how much its `size` changed."""

    def growth(change: Change[_T]) -> tuple[object, ...]:
        before, after = (0 if value is None else size(value) for value in (change.before, change.after))
        return -abs(after - before), change.place

    found = (Change(place, old.get(place), new.get(place)) for place in {**old, **new})
    return tuple(sorted((change for change in found if change.before != change.after), key=growth))
