"""The difference of two :class:`Contents`: of their builds, and of what only manifests contain."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from cuda_ext.builder.report.difference import Build, Changes, Place, compare
from cuda_ext.cli.inspect.contents import Contents, Module, spell_options
from cuda_ext.cli.terminal import Failure
from cuda_ext.facts.codec import plain
from cuda_ext.facts.symbols import Symbol

# What is compared, by kind, and the parts of a place. The source of a setting of the module is empty.
PLACES = {
    "modules": ("module",),
    "units": ("module", "unit"),
    "settings": ("module", "source", "setting"),
    "sources": ("module", "source"),
    "files": ("path",),
    "images": ("module", "unit", "architecture"),
    "kernels": ("module", "kernel", "architecture"),
    "symbols": ("module", "symbol"),
    "structures": ("module", "structure"),
    "constants": ("module", "constant"),
}


def compare_contents(before: Contents, after: Contents) -> Changes:
    """Compare two builds.

    Where one of them has no manifest, kernels are identified by their lowered names, and only units that
    share kernels with the other one are compared. Raises :class:`Failure` if nothing is in both, or if a name
    is ambiguous.
    """
    if not (before.has_manifests and after.has_manifests):
        return _compare_by_lowered_name(before, after)
    old, new = _unambiguous_modules(before), _unambiguous_modules(after)
    if len(old) == len(new) == 1:  # it may have been renamed
        manifest = old[0].manifest._replace(module=new[0].manifest.module)
        old = [old[0]._replace(manifest=manifest)]
    is_part = before.is_part or after.is_part
    ship = not is_part and all(module.manifest.embedded is not None for module in (*old, *new))
    same_kind = before.kind == after.kind and not is_part
    changes = compare(
        _describe_build(old, before.files if same_kind else {}, ship),
        _describe_build(new, after.files if same_kind else {}, ship),
        shipped_size,
    )
    return {**changes, "settings": tuple(c for c in changes["settings"] if c.before and c.after)}


def _compare_by_lowered_name(before: Contents, after: Contents) -> Changes:
    both = before, after
    common = set.intersection(*({kernel.lowered for kernel in each.kernels} for each in both))
    if not common:
        raise Failure(
            f"{before.path} and {after.path} have no kernels in common",
            remedy="name two builds of the same kernels",
        )
    old, new = (_describe_kernels(each, common) for each in both)
    # The names of images are not comparable.
    return {**dict.fromkeys(PLACES, ()), **compare(old, new, shipped_size), "images": ()}


def _describe_kernels(contents: Contents, common: set[str]) -> Build:
    """Return the units that hold kernels in `common`, by lowered names."""
    build: dict[str, dict[Place, Any]] = {"images": {}, "kernels": {}}
    for module in contents.modules:
        manifest = module.manifest
        lowered = {kernel.expression: kernel.lowered for kernel in manifest.kernels}
        shared = {module.titles[kernel.unit] for kernel in manifest.kernels if kernel.lowered in common}
        for image in (image for image in module.images if image.unit in shared):
            build["images"]["", f"{manifest.module} {image.unit}", image.architecture] = image.stored
            for name, resources in image.kernels.items():
                build["kernels"]["", lowered[name], image.architecture] = resources
    return build


def _unambiguous_modules(contents: Contents) -> Sequence[Module]:
    if len({module.manifest.module for module in contents.modules}) < len(contents.modules):
        places = ", ".join(sorted(module.place for module in contents.modules))
        raise Failure(
            f"has several modules of one name, in {places}", where=contents.path, remedy="name one of them"
        )
    return contents.modules


def _describe_build(modules: Sequence[Module], files: Mapping[str, int], ship: bool) -> Build:
    """Return what is compared: of sources, those that `ship`, or else the compiled ones with all headers."""
    build: dict[str, dict[Place, Any]] = {kind: {} for kind in PLACES}
    # The metadata of a wheel lies in a directory with the version in its name.
    build["files"] = {(re.sub(r"^[^/]*\.(dist-info|data)/", r"*.\1/", path),): n for path, n in files.items()}
    for module in modules:
        manifest = module.manifest
        name, embedded = manifest.module, manifest.embedded
        build["modules"][name,] = name
        build["settings"] |= {
            (name, "", "compiler"): manifest.compilers,
            (name, "", "compress"): manifest.compress,
            (name, "", "jit"): "no" if embedded is None else "yes",
        }
        # The number of a unit is not part of a variable.
        build["symbols"] |= {(name, symbol.name): symbol._replace(unit=0) for symbol in manifest.symbols}
        build["structures"] |= {(name, each.name): each._replace(units=()) for each in manifest.structures}
        build["constants"] |= {(name, each.name): each._replace(unit=0) for each in manifest.constants}
        if ship:
            build["sources"] |= {(name, file): digest for file, digest in (embedded or {}).items()}
        for title, unit in zip(module.titles, manifest.units, strict=True):
            build["units"][name, title] = title
            for source in unit.sources:
                build["settings"][name, source.name, "options"] = spell_options(source)
                if not ship:
                    build["sources"][name, source.name] = source.sha256
        for image in module.images:
            build["images"][name, image.unit, image.architecture] = image.stored
            for kernel, resources in image.kernels.items():
                build["kernels"][name, kernel, image.architecture] = resources
    return build


def shipped_size(value: object) -> int:
    """Return the bytes that ship of an image, a variable or a file; 0 for everything else."""
    if isinstance(value, Symbol):
        return value.size
    return value if isinstance(value, int) else 0


def difference_as_json(before: Contents, after: Contents) -> dict[str, object]:
    """Return all that changed from `before` to `after`. Raises as :func:`compare_contents` does.

    Changes are by kind, with places as in ``PLACES``. Fields may be added; any other change increases
    ``schema``.
    """
    changes = compare_contents(before, after)
    return {
        "schema": 1,
        "before": before.head,
        "after": after.head,
        "same": not any(changes.values()),
        "changes": plain(changes, []),
    }
