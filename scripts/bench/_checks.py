"""Is all there that a contender was to build? Nothing wins by doing nothing."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from bench._workloads import Unit, Workload
from cuda_ext import manifest
from cuda_ext.compiler.reflection import read_image
from cuda_ext.formats.architecture import Architecture
from cuda_ext.formats.fatbin import FatbinEntry, read_fatbin

__all__ = ["check_fatbins", "check_packages"]


def check_packages(workload: Workload, built: Path) -> None:
    """The packages in `built` have every image of `workload`, in their fatbins too, and every kernel."""
    kernels = 0
    for name, expected in workload.modules.items():
        directory = built.joinpath(*name.split("."))
        file = directory / manifest.FILE_NAME
        made = manifest.loads(file.read_bytes(), str(file))
        found = sorted(tuple(image.architecture for image in unit.images) for unit in made.units)
        _equal(f"{name}: images", found, sorted(expected))
        for unit in made.units:
            (fatbin,) = {image.file for image in unit.images}
            entries = read_fatbin((directory / fatbin).read_bytes())
            _equal(f"{name}: {fatbin}", _architectures(entries), {i.architecture for i in unit.images})
        _equal(f"{name}: units with kernels", {k.unit for k in made.kernels}, set(range(len(made.units))))
        kernels += len(made.kernels)
    if workload.kernels is not None:
        _equal(f"{workload.title}: kernels", kernels, workload.kernels)


def check_fatbins(units: Iterable[Unit], fatbins: Path) -> None:
    """`fatbins` has one for each of `units`, with its architectures and, in each cubin, its kernels."""
    for unit in units:
        entries = read_fatbin((fatbins / f"{unit.source.stem}.fatbin").read_bytes())
        _equal(str(unit.source), _architectures(entries), set(unit.architectures))
        for entry in entries:
            if entry.kind == "cubin" and not unit.relocatable:
                kernels = len(read_image(Architecture.parse(entry.architecture), entry.payload()).entries)
                _equal(f"{unit.source}: kernels for {entry.architecture}", kernels, unit.kernels or kernels)
                if not kernels:
                    raise RuntimeError(f"{unit.source}: no kernel for {entry.architecture}")


def _architectures(entries: Iterable[FatbinEntry]) -> set[str]:
    return {entry.architecture for entry in entries}


def _equal(what: str, found: object, expected: object) -> None:
    if found != expected:
        raise RuntimeError(f"{what}: found {found}, expected {expected}")
