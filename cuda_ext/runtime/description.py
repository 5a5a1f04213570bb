"""``cuda_ext.describe``: read the content of a module without a driver."""

from __future__ import annotations

from types import ModuleType
from typing import NamedTuple

from cuda_ext.facts.candidates import Variants
from cuda_ext.facts.constants import Constant
from cuda_ext.facts.kernels import Kernel
from cuda_ext.facts.manifest import Image
from cuda_ext.facts.spelled_variants import spell_variants
from cuda_ext.facts.structures import Structure
from cuda_ext.facts.symbols import Symbol
from cuda_ext.formats.quantities import format_size
from cuda_ext.runtime.module import library_of


class UnitDescription(NamedTuple):
    """A translation unit, or several that were linked, with its images."""

    source: str
    images: tuple[Image, ...]


class Description(NamedTuple):
    """The kernels, variants, symbols, structures, constants and images of a module, and their compiler.

    ``compiler`` is ``nvrtc`` or ``nvcc``, ``version`` its CUDA version; or it is the front-end of all units.
    ``compilers`` names the front-ends of the other units, too. Sizes are in bytes.
    """

    name: str
    compiler: str
    version: str
    units: tuple[UnitDescription, ...]
    kernels: tuple[Kernel, ...]
    symbols: tuple[Symbol, ...]
    variants: tuple[Variants, ...]
    structures: tuple[Structure, ...] = ()
    constants: tuple[Constant, ...] = ()
    compilers: str = ""

    def __str__(self) -> str:
        lines = [f"{self.name}, compiled by {self.compilers}"]
        specialised = {each.name: each.candidates for each in self.variants if each.is_one_kernel}
        for kernel in self.kernels:
            candidates = specialised.get(kernel.expression, ())
            conditions = (f"if {each.condition}" if each.when else "otherwise" for each in candidates)
            lines += [f"  {kernel.signature}", *(f"    {condition}" for condition in conditions)]
        lines += (
            f"  {spell_variants(each, self.kernels)}" for each in self.variants if not each.is_one_kernel
        )
        lines += (f"  {structure.declaration}" for structure in self.structures)
        lines += (f"  {constant.declaration}" for constant in self.constants)
        lines += (f"  __{s.space}__ {s.type} {s.name}, {s.size} bytes" for s in self.symbols)
        for unit in self.units:
            images = ", ".join(f"{image.architecture} {format_size(image.size)}" for image in unit.images)
            lines.append(f"  {unit.source}: {images}")
        return "\n".join(lines)


def describe(module: ModuleType) -> Description:
    """Describe a module of kernels, imported or from :func:`cuda_ext.compile`. It needs no driver.

    >>> print(cuda_ext.describe(kernels))  # doctest: +SKIP
    example_project.kernels, compiled by nvrtc 13.5
      axpy<float>(int n, float a, const float* x, float* y)
      __constant__ float[9] weights, 36 bytes
      device/axpy.cu: sm_80 4.1 KiB, sm_90 4.5 KiB, compute_90 1.8 KiB

    Raises :class:`TypeError` for any other module, :class:`~cuda_ext.errors.ManifestError` for a damaged one.
    """
    manifest = library_of(module).manifest
    units = tuple(UnitDescription(unit.title, unit.images) for unit in manifest.units)
    origin = manifest.module, manifest.compiler, manifest.version
    symbols, variants = tuple(manifest.symbols), tuple(manifest.variants)
    more = tuple(manifest.structures), tuple(manifest.constants), manifest.compilers
    return Description(*origin, units, manifest.named_kernels, symbols, variants, *more)
