"""The difference of two :class:`Contents`: of their builds, and of what only manifests contain."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from cuda_ext.builder.report.difference import Build, Difference, Place, compare
from cuda_ext.cli.inspect.contents import Contents, Image, Module, Variable
from cuda_ext.cli.terminal import Failure

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
        old = [replace(old[0], name=new[0].name)]
    is_part = before.is_part or after.is_part
    ship = not is_part and all(module.embedded is not None for module in (*old, *new))
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
    old, new = (_rename_by_lowered_name(each, common) for each in both)
    difference = compare(
        _describe_build(old, {}, ship=False), _describe_build(new, {}, ship=False), shipped_size
    )
    known = {kind: difference.changes[kind] for kind in ("architectures", "kernels")}
    return replace(difference, changes={**dict.fromkeys(PLACES, ()), **known})


def _rename_by_lowered_name(contents: Contents, common: set[str]) -> Sequence[Module]:
    """Return the units that hold kernels in `common`, in modules without names."""
    modules = []
    for module in contents.modules:
        shared = {kernel.unit for kernel in module.kernels if kernel.lowered in common}
        units = (replace(u, title=f"{module.name} {u.title}") for u in module.units if u.title in shared)
        kernels = (replace(k, name=k.lowered) for k in module.kernels if k.unit in shared)
        modules.append(replace(module, name="", units=tuple(units), kernels=tuple(kernels)))
    return modules


def _unambiguous_modules(contents: Contents) -> Sequence[Module]:
    if len({module.name for module in contents.modules}) < len(contents.modules):
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
        name = module.name
        build["modules"][name,] = name
        build["settings"] |= {
            (name, "", "compiler"): module.compiler or "",
            (name, "", "compress"): module.compress or "",
            (name, "", "jit"): "yes" if module.jit else "no",
        }
        build["symbols"] |= {(name, symbol.name): symbol for symbol in module.symbols}
        if ship:
            build["sources"] |= {(name, file): digest for file, digest in (module.embedded or {}).items()}
        for unit in module.units:
            build["units"][name, unit.title] = unit.title
            build["images"] |= {(name, unit.title, image.architecture): image for image in unit.images}
            for source in unit.sources:
                build["settings"][name, source.name, "options"] = " ".join(source.options)
                if not ship:
                    build["sources"][name, source.name] = source.sha256
        for kernel in module.kernels:
            build["kernels"] |= {(name, kernel.name, i.architecture): i.resources for i in kernel.images}
    return build


def shipped_size(value: object) -> int:
    """Return the bytes that ship of an image, a variable or a file; 0 for everything else."""
    match value:
        case Image():
            return value.stored
        case Variable():
            return value.size
        case int():
            return value
    return 0
