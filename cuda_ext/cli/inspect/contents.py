"""Compiled code as data: from a whole wheel to a kernel in one image. ``--json`` prints these fields.

Sizes count bytes, and ``None`` stands for what is not known.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import Literal

from cuda_ext.facts.architecture import ImageKind
from cuda_ext.formats.cubin import Resources
from cuda_ext.formats.fatbin import Codec
from cuda_ext.formats.spelling import normalise, plain_name

Kind = Literal["wheel", "directory", "module", "fatbin", "cubin", "ptx", "tileir"]


@dataclass(frozen=True, slots=True)
class Source:
    """A source, the digest of its text and headers, and its options as compilers spell them."""

    name: str
    sha256: str
    options: tuple[str, ...]
    instantiate: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Image:
    """An image. ``stored`` counts its bytes in the fatbin, where it may be compressed.

    ``parts`` counts the bytes of a cubin by what they are for. ``missing`` is the Python package that could
    decompress it, and is not installed.
    """

    architecture: str
    kind: ImageKind
    file: str
    codec: Codec
    stored: int
    size: int
    missing: str | None = None
    parts: Mapping[str, int] | None = None


@dataclass(frozen=True, slots=True)
class Unit:
    """One source or several, with their images."""

    title: str
    sources: tuple[Source, ...]
    images: tuple[Image, ...]


@dataclass(frozen=True, slots=True)
class KernelImage:
    """A kernel in one image, and what that fixes of launches.

    Its resources are known where that is a cubin which could be read.
    """

    architecture: str
    lowered: str
    resources: Resources | None
    launch: str | None = None


@dataclass(frozen=True, slots=True)
class Kernel:
    """A kernel. ``name`` is its name expression, or its lowered name where nothing else is known."""

    name: str
    signature: str | None
    lowered: str
    unit: str
    images: tuple[KernelImage, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """Its name expression, the name of its template or function, and its lowered name."""
        return self.name, plain_name(self.name), self.lowered

    def matches(self, pattern: str) -> bool:
        """Return True if `pattern`, with ``*`` for anything, matches one of its names."""
        return normalise(pattern) in self.names or any(fnmatchcase(name, pattern) for name in self.names)


@dataclass(frozen=True, slots=True)
class Variable:
    """A ``__constant__`` or ``__device__`` variable."""

    name: str
    lowered: str
    space: str
    type: str
    size: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Module:
    """A module of kernels, or an image without a manifest.

    ``place`` is its directory within what was named, ``size`` the sum of its files. ``embedded`` has the
    SHA-256 of each source that ships for compilation at run time. What only a manifest contains is ``None``
    without one.
    """

    name: str
    place: str
    size: int
    compiler: str | None = None
    compress: str | None = None
    jit: bool | None = None
    embedded: Mapping[str, str] | None = None
    variants: Mapping[str, str] | None = None
    units: tuple[Unit, ...]
    kernels: tuple[Kernel, ...]
    symbols: tuple[Variable, ...]


@dataclass(frozen=True, slots=True)
class Contents:
    """The contents of a wheel, a directory, an installed package or an image.

    ``files`` are those that ship, by path, with their sizes there. ``damaged`` has a message for each module
    that could not be read. ``is_part`` tells that kernels were selected.
    """

    path: str
    kind: Kind
    size: int
    modules: tuple[Module, ...]
    files: Mapping[str, int]
    damaged: tuple[str, ...] = ()
    is_part: bool = False

    @property
    def has_manifests(self) -> bool:
        return all(module.compiler is not None for module in self.modules)

    @property
    def kernels(self) -> tuple[Kernel, ...]:
        return tuple(kernel for module in self.modules for kernel in module.kernels)

    def units_with(self, pattern: str) -> set[str]:
        """Return the titles of the units with kernels that match `pattern`."""
        return {kernel.unit for kernel in self.kernels if kernel.matches(pattern)}

    def with_kernels(self, pattern: str, titles: Collection[str]) -> Contents:
        """Return the kernels that match `pattern` and the units of these `titles`, and nothing else."""
        modules = []
        for module in self.modules:
            kernels = tuple(kernel for kernel in module.kernels if kernel.matches(pattern))
            units = tuple(unit for unit in module.units if unit.title in titles)
            modules.append(replace(module, units=units, kernels=kernels, symbols=()))
        return replace(self, modules=tuple(modules), is_part=True)

    def without_empty_modules(self) -> Contents:
        """Return the modules that hold kernels."""
        return replace(self, modules=tuple(module for module in self.modules if module.kernels))
