"""The difference of two :class:`Contents`: of their builds, and of what only manifests contain."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from cuda_ext.builder.report.difference import Build, Difference, Place, compare
from cuda_ext.cli.inspect.contents import Contents, Module, spell_options
from cuda_ext.cli.terminal import Failure
from cuda_ext.facts.codec import plain
from cuda_ext.facts.kernels import Symbol

# What is compared, by kind, and the parts of a place. The source of a setting of the module is empty.
PLACES = {
    "modules": ("module",),
    "units": ("module", "unit"),
    "settings": ("module", "source", "setting"),
    "sources": ("module", "source"),
    "files": ("path",),
    "architectures": ("architecture",),
    "images": ("module", "unit", "architecture"),
    "kernels": ("module", "kernel", "architecture"),
    "symbols": ("module", "symbol"),
}


def compare_contents(before: Contents, after: Contents) -> Difference:
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
        old = [replace(old[0], manifest=manifest)]
    is_part = before.is_part or after.is_part
    ship = not is_part and all(module.manifest.embedded is not None for module in (*old, *new))
    same_kind = before.kind == after.kind and not is_part
    difference = compare(
        _describe_build(old, before.files if same_kind else {}, ship),
        _describe_build(new, after.files if same_kind else {}, ship),
        shipped_size,
    )
    in_both = tuple(c for c in difference.changes["settings"] if c.before and c.after)
    return replace(difference, changes={**difference.changes, "settings": in_both})


def _compare_by_lowered_name(before: Contents, after: Contents) -> Difference:
    both = before, after
    common = set.intersection(*({kernel.lowered for kernel in each.kernels} for each in both))
    if not common:
        raise Failure(
            f"{before.path} and {after.path} have no kernels in common",
            remedy="name two builds of the same kernels",
        )
    old, new = (_describe_kernels(each, common) for each in both)
    difference = compare(old, new, shipped_size)
    known = {kind: difference.changes[kind] for kind in ("architectures", "kernels")}
    return replace(difference, changes={**dict.fromkeys(PLACES, ()), **known})


def _describe_kernels(contents: Contents, common: set[str]) -> Build:
    """Return the units that hold kernels in `common`, by lowered names."""
    build: dict[str, dict[Place, Any]] = {"images": {}, "kernels": {}}
    for module in contents.modules:
        manifest, titles = module.manifest, module.titles
        shared = {titles[kernel.unit] for kernel in manifest.kernels if kernel.lowered in common}
        for title, image, content in module.images():
            if title in shared:
                build["images"]["", f"{manifest.module} {title}", image.architecture] = content.stored
        for kernel in manifest.kernels:
            for image, resources in module.images_of(kernel) if titles[kernel.unit] in shared else ():
                build["kernels"]["", kernel.lowered, image.architecture] = resources
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
    build: dict[str, dict[Place, Any]] = {kind: {} for kind in PLACES if kind != "architectures"}
    # The metadata of a wheel lies in a directory with the version in its name.
    build["files"] = {(re.sub(r"^[^/]*\.(dist-info|data)/", r"*.\1/", path),): n for path, n in files.items()}
    for module in modules:
        manifest = module.manifest
        name, embedded = manifest.module, manifest.embedded
        build["modules"][name,] = name
        build["settings"] |= {
            (name, "", "compiler"): f"{manifest.compiler} {manifest.version}",
            (name, "", "compress"): manifest.compress,
            (name, "", "jit"): "no" if embedded is None else "yes",
        }
        # The number of a unit is not part of a variable.
        build["symbols"] |= {(name, symbol.name): symbol._replace(unit=0) for symbol in manifest.symbols}
        if ship:
            build["sources"] |= {(name, file): digest for file, digest in (embedded or {}).items()}
        for title, unit in zip(module.titles, manifest.units, strict=True):
            build["units"][name, title] = title
            for source in unit.sources:
                build["settings"][name, source.name, "options"] = spell_options(source)
                if not ship:
                    build["sources"][name, source.name] = source.sha256
        for title, image, content in module.images():
            build["images"][name, title, image.architecture] = content.stored
        for kernel in manifest.kernels:
            for image, resources in module.images_of(kernel):
                build["kernels"][name, kernel.expression, image.architecture] = resources
    return build


def shipped_size(value: object) -> int:
    """Return the bytes that ship of an image, a variable or a file; 0 for everything else."""
    if isinstance(value, Symbol):
        return value.size
    return value if isinstance(value, int) else 0


def difference_as_json(before: Contents, after: Contents) -> dict[str, object]:
    """Return all that changed from `before` to `after`. Raises as :func:`compare_contents` does.

    ``before`` and ``after`` of a change are ``null`` where there is nothing. Fields may be added; any other
    change increases ``schema``::

        {"schema": 1, "before": {"path", "kind", "size"}, "after": {...}, "same",
         each kind in PLACES: [{the parts of the place, "before", "after"}],
         "new": [{"module", "kernel", "architectures"}], "gone": [...]}
    """
    difference = compare_contents(before, after)
    kernels = {"new": difference.new, "gone": difference.gone}
    return {
        "schema": 1,
        "before": before.head,
        "after": after.head,
        "same": difference.is_empty,
        **{
            kind: [
                {
                    **dict(zip(parts, change.place, strict=True)),
                    "before": plain(change.before, []),
                    "after": plain(change.after, []),
                }
                for change in difference.changes[kind]
            ]
            for kind, parts in PLACES.items()
        },
        **{
            kind: [{"module": m, "kernel": k, "architectures": a} for (m, k), a in by_place.items()]
            for kind, by_place in kernels.items()
        },
    }
