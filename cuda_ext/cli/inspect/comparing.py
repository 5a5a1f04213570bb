"""The difference of two :class:`Contents`: of their builds, and of what only manifests contain."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from cuda_ext.builder.report.difference import (
    Build,
    Change,
    Difference,
    Place,
    compare,
    find_changes,
)
from cuda_ext.cli.inspect.contents import Contents, Image, Module, Variable
from cuda_ext.cli.terminal import Failure
from cuda_ext.formats.resources import Usage

__all__ = ["ContentsDifference", "compare_contents"]


@dataclass(frozen=True, slots=True)
class ContentsDifference:
    """All that differs.

    ``settings`` are by module, source (empty for the module's own) and name; ``sources`` are digests by
    module and name, ``symbols`` variables by module and name.
    """

    before: Contents
    after: Contents
    build: Difference[Image]
    modules: tuple[Change[str], ...] = ()
    units: tuple[Change[str], ...] = ()
    settings: tuple[Change[str], ...] = ()
    sources: tuple[Change[str], ...] = ()
    symbols: tuple[Change[Variable], ...] = ()

    @property
    def is_empty(self) -> bool:
        """Whether nothing differs, as far as it is known."""
        own = (self.modules, self.units, self.settings, self.sources, self.symbols)
        return self.build.is_empty and not any(own)


def compare_contents(before: Contents, after: Contents) -> ContentsDifference:
    """Compare two builds.

    Where one of them has no manifest, kernels are identified by their lowered names, and only units that
    share kernels with the other one are compared. Raises :class:`Failure` if nothing is in both, or if a name
    is ambiguous.
    """
    if not (before.has_manifests and after.has_manifests):
        return _compare_by_lowered_name(before, after)
    old, new = _name_modules(before, after)
    same_kind = before.kind == after.kind
    build = compare(
        _build(old, before.files if same_kind else {}), _build(new, after.files if same_kind else {}), _stored
    )
    old_digests, new_digests = _digests(old, new)
    return ContentsDifference(
        before,
        after,
        build,
        modules=find_changes({(m.name,): m.name for m in old}, {(m.name,): m.name for m in new}),
        units=find_changes(_units(old), _units(new)),
        settings=tuple(c for c in find_changes(_settings(old), _settings(new)) if c.before and c.after),
        sources=find_changes(old_digests, new_digests),
        symbols=find_changes(_symbols(old), _symbols(new), lambda symbol: symbol.size),
    )


def _compare_by_lowered_name(before: Contents, after: Contents) -> ContentsDifference:
    lowered = [{kernel.lowered for module in c.modules for kernel in module.kernels} for c in (before, after)]
    if not (common := set.intersection(*lowered)):
        raise Failure(
            f"{before.path} and {after.path} have no kernels in common",
            remedy="name two builds of the same kernels",
        )
    difference = compare(
        _build_by_lowered_name(before, common), _build_by_lowered_name(after, common), _stored
    )
    return ContentsDifference(before, after, replace(difference, images=()))


def _build_by_lowered_name(contents: Contents, common: set[str]) -> Build[Image]:
    """Return the units that hold kernels in `common`, as one module without a name."""
    images: dict[Place, Image] = {}
    kernels: dict[Place, Usage | None] = {}
    for module in contents.modules:
        shared = {kernel.unit for kernel in module.kernels if kernel.lowered in common}
        for unit in (unit for unit in module.units if unit.title in shared):
            for image in unit.images:
                images["", f"{module.name} {unit.title}", image.architecture] = image
        for kernel in (kernel for kernel in module.kernels if kernel.unit in shared):
            for kernel_image in kernel.images:
                kernels["", kernel.lowered, kernel_image.architecture] = kernel_image.resources
    return Build(images, kernels)


def _name_modules(*both: Contents) -> Iterator[Sequence[Module]]:
    """Return the modules of both; if each has only one, that may have been renamed."""
    one = all(len(contents.modules) == 1 for contents in both)
    for contents in both:
        names = [module.name for module in contents.modules]
        if len({*names}) < len(names):
            places = ", ".join(sorted(module.place for module in contents.modules))
            raise Failure(
                f"has several modules of one name, in {places}",
                where=contents.path,
                remedy="name one of them",
            )
        title = both[-1].modules[0].name if one else ""
        yield [replace(module, name=title or module.name) for module in contents.modules]


def _build(modules: Sequence[Module], files: Mapping[str, int]) -> Build[Image]:
    return Build(
        images={
            (module.name, unit.title, image.architecture): image
            for module in modules
            for unit in module.units
            for image in unit.images
        },
        kernels={
            (module.name, kernel.name, image.architecture): image.resources
            for module in modules
            for kernel in module.kernels
            for image in kernel.images
        },
        # The metadata of a wheel lies in a directory with the version in its name.
        files={(re.sub(r"^[^/]*\.(dist-info|data)/", r"*.\1/", path),): size for path, size in files.items()},
    )


def _stored(image: Image) -> int:
    return image.stored


def _units(modules: Sequence[Module]) -> dict[Place, str]:
    return {(module.name, unit.title): unit.title for module in modules for unit in module.units}


def _settings(modules: Sequence[Module]) -> dict[Place, str]:
    settings: dict[Place, str] = {}
    for module in modules:
        settings[module.name, "", "compiler"] = module.compiler or ""
        settings[module.name, "", "compress"] = module.compress or ""
        settings[module.name, "", "jit"] = "yes" if module.jit else "no"
        for unit in module.units:
            for source in unit.sources:
                settings[module.name, source.name, "options"] = " ".join(source.options)
    return settings


def _digests(old: Sequence[Module], new: Sequence[Module]) -> Iterator[dict[Place, str]]:
    """Return the digests of the sources and headers that ship, or else of sources with all their headers."""
    ship = all(module.embedded is not None for module in (*old, *new))
    for modules in (old, new):
        if ship:
            yield {(m.name, file): digest for m in modules for file, digest in (m.embedded or {}).items()}
        else:
            yield {(m.name, s.name): s.sha256 for m in modules for unit in m.units for s in unit.sources}


def _symbols(modules: Sequence[Module]) -> dict[Place, Variable]:
    return {(module.name, symbol.name): symbol for module in modules for symbol in module.symbols}
