"""What there is to know of compiled code, as plain data: from a whole wheel to a kernel in one image.

Sizes count bytes, and ``None`` is what is not known.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import Literal

from cuda_ext.compiler.name_expressions import normalise, plain_name
from cuda_ext.formats.fatbin import Codec
from cuda_ext.formats.resources import Resources
from cuda_ext.manifest import ImageKind, Source, Symbol

__all__ = ["Contents", "Image", "Kernel", "KernelImage", "Kind", "Module", "Unit", "options_of"]

Kind = Literal["wheel", "directory", "module", "fatbin", "cubin", "ptx"]


@dataclass(frozen=True, slots=True)
class Image:
    """An image: its ``stored`` bytes are those in the fatbin, where it may be compressed.

    ``missing`` is the Python package that reads it and is not installed.
    """

    architecture: str
    kind: ImageKind
    file: str
    codec: Codec
    stored: int
    size: int
    missing: str | None = None


@dataclass(frozen=True, slots=True)
class Unit:
    """One or several sources, with the images made of them."""

    title: str
    sources: tuple[Source, ...]
    images: tuple[Image, ...]


@dataclass(frozen=True, slots=True)
class KernelImage:
    """A kernel in one image; what it takes is known of cubins that could be read."""

    architecture: str
    lowered: str
    resources: Resources | None


@dataclass(frozen=True, slots=True)
class Kernel:
    """A kernel by its name expression, or by its lowered name where nothing else is known."""

    expression: str
    signature: str | None
    lowered: str
    unit: str
    images: tuple[KernelImage, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """What people call it: its expression, its template or function, and its lowered name."""
        return self.expression, plain_name(self.expression), self.lowered

    def matches(self, pattern: str) -> bool:
        """Whether `pattern` is one of its names, with ``*`` for anything."""
        return normalise(pattern) in self.names or any(fnmatchcase(name, pattern) for name in self.names)


@dataclass(frozen=True, slots=True)
class Module:
    """A module of kernels. ``compiler`` and what follows is ``None`` for an image without a manifest.

    ``place`` is where it lies within what was named, ``size`` that of all its files there. ``embedded`` has
    the SHA-256 of each source that ships for compilation on demand.
    """

    name: str
    place: str
    size: int
    units: tuple[Unit, ...]
    kernels: tuple[Kernel, ...]
    symbols: tuple[Symbol, ...]
    compiler: str | None = None
    compress: str | None = None
    embedded: Mapping[str, str] | None = None
    variants: Mapping[str, str] | None = None

    @property
    def jit(self) -> bool | None:
        """Whether it can be compiled on demand."""
        return None if self.compiler is None else self.embedded is not None


@dataclass(frozen=True, slots=True)
class Contents:
    """All of it: ``files`` are those that ship, by path, as large as they are there.

    ``damaged`` tells of each module that could not be read.
    """

    path: str
    kind: Kind
    size: int
    files: Mapping[str, int]
    modules: tuple[Module, ...]
    damaged: tuple[str, ...] = ()

    @property
    def has_manifests(self) -> bool:
        return all(module.compiler is not None for module in self.modules)

    def only(self, pattern: str) -> Contents:
        """The same, of whose kernels only those are left that match `pattern`."""
        modules = (
            replace(module, kernels=tuple(kernel for kernel in module.kernels if kernel.matches(pattern)))
            for module in self.modules
        )
        return replace(self, modules=tuple(modules))

    def around_its_kernels(self) -> Contents:
        """The same without modules and units that hold no kernel, and without variables."""
        modules = []
        for module in filter(lambda module: module.kernels, self.modules):
            titles = {kernel.unit for kernel in module.kernels}
            units = tuple(unit for unit in module.units if unit.title in titles)
            modules.append(replace(module, units=units, symbols=()))
        return replace(self, modules=tuple(modules))


def options_of(source: Source) -> tuple[str, ...]:
    """How `source` was compiled: as compilers spell it, and as the configuration calls the rest."""
    flags = {"relaxed-constexpr": source.options.relaxed_constexpr, "relocatable": source.options.relocatable}
    return (*source.options.spelled(), *(name for name, is_set in flags.items() if is_set))
