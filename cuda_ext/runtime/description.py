"""What is known of a module without a driver."""

from __future__ import annotations

import types
from dataclasses import dataclass

from cuda_ext.manifest import Image, Kernel, Manifest, Symbol, Variants
from cuda_ext.runtime.module import KernelModule, library_of

__all__ = ["Description", "UnitDescription", "describe"]


@dataclass(frozen=True, slots=True)
class UnitDescription:
    """A translation unit, or several that were linked, with the images made of it."""

    source: str
    images: tuple[Image, ...]


@dataclass(frozen=True, slots=True)
class Description:
    """A module's kernels, variants, symbols and images, and which compiler of which CUDA made them."""

    name: str
    compiler: str
    version: str
    units: tuple[UnitDescription, ...]
    kernels: tuple[Kernel, ...]
    symbols: tuple[Symbol, ...]
    variants: tuple[Variants, ...]

    @classmethod
    def of(cls, manifest: Manifest) -> Description:
        return cls(
            manifest.module,
            manifest.compiler,
            manifest.version,
            tuple(UnitDescription(unit.title, unit.images) for unit in manifest.units),
            manifest.kernels,
            manifest.symbols,
            manifest.variants,
        )

    def __str__(self) -> str:
        lines = [f"{self.name}, compiled by {self.compiler} {self.version}"]
        lines += (f"  {kernel.signature}" for kernel in self.kernels)
        lines += (f"  {variants.name}: {variants}" for variants in self.variants)
        lines += (f"  __{s.space}__ {s.type} {s.name}, {s.size} bytes" for s in self.symbols)
        for unit in self.units:
            images = ", ".join(f"{image.architecture} {_kilobytes(image.size)}" for image in unit.images)
            lines.append(f"  {unit.source}: {images}")
        return "\n".join(lines)


def describe(module: types.ModuleType) -> Description:
    """What `module` holds, which a build of this package or ``cuda_ext.compile`` made.

    >>> print(cuda_ext.describe(kernels))  # doctest: +SKIP
    example_project.kernels, compiled by nvrtc 13.5
      axpy<float>(int n, float a, const float* x, float* y)
      __constant__ float[9] weights, 36 bytes
      device/axpy.cu: sm_80 4.2 kB, sm_90 4.6 kB, compute_90 1.8 kB

    Raises :class:`TypeError` for any other module, :class:`~cuda_ext.errors.ManifestError` for a damaged one.
    """
    if not isinstance(module, KernelModule):
        raise TypeError(f"expected a module of kernels, as an import gives it, found {module!r}")
    return Description.of(library_of(module).manifest)


def _kilobytes(size: int) -> str:
    return f"{size / 1000:.1f} kB"
