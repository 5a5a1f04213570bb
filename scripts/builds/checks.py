"""Check that a contender built everything, so that none is fast because it leaves work out."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from builds.workloads import Unit, Workload
from cuda_ext.compiler.signatures.reflection import read_image
from cuda_ext.facts import manifest
from cuda_ext.facts.architecture import Architecture
from cuda_ext.formats.fatbin import FatbinEntry, read_fatbin


def check_packages(workload: Workload, built: Path) -> None:
    """Check that the packages in `built`, and their fatbins, have all images and kernels of `workload`."""
    kernels = 0
    for name, expected in workload.modules.items():
        directory = built.joinpath(*name.split("."))
        file = directory / manifest.FILE_NAME
        written = manifest.loads(file.read_bytes(), str(file))
        images = sorted(tuple(image.architecture for image in unit.images) for unit in written.units)
        _check_equal(f"{name}: images", images, sorted(expected))
        for unit in written.units:
            (fatbin,) = {image.file for image in unit.images}
            entries = read_fatbin((directory / fatbin).read_bytes())
            _check_equal(f"{name}: {fatbin}", _architectures(entries), {i.architecture for i in unit.images})
        _check_equal(
            f"{name}: units with kernels", {k.unit for k in written.kernels}, set(range(len(written.units)))
        )
        kernels += len(written.kernels)
    if workload.kernels is not None:
        _check_equal(f"{workload.title}: kernels", kernels, workload.kernels)


def check_fatbins(units: Iterable[Unit], fatbins: Path) -> None:
    """Check that `fatbins` has one file per unit, with its architectures and the kernels in each cubin."""
    for unit in units:
        entries = read_fatbin((fatbins / f"{unit.source.stem}.fatbin").read_bytes())
        _check_equal(str(unit.source), _architectures(entries), set(unit.architectures))
        for entry in entries:
            if entry.kind == "cubin" and not unit.relocatable:
                kernels = len(read_image(Architecture.parse(entry.architecture), entry.payload()).entries)
                _check_equal(
                    f"{unit.source}: kernels for {entry.architecture}", kernels, unit.kernels or kernels
                )
                if not kernels:
                    raise RuntimeError(f"{unit.source}: no kernel for {entry.architecture}")


def _architectures(entries: Iterable[FatbinEntry]) -> set[str]:
    return {entry.architecture for entry in entries}


def _check_equal(title: str, actual: object, expected: object) -> None:
    if actual != expected:
        raise RuntimeError(f"{title}: got {actual}, expected {expected}")
